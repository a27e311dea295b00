"""Damaged JSON is refused with its name, what is wrong, and what to do."""

import dataclasses
import json
import os
import typing

import pytest

from vit_keras.support.checks import LARGEST_JSON_BYTES, parse_json, read_json

pytestmark = pytest.mark.once


class Row(typing.TypedDict):
    step: int
    loss: float
    note: typing.NotRequired[str | None]


@dataclasses.dataclass
class Layout:
    sizes: tuple[float, ...] = ()
    name: str | None = None


KINDS = [
    (dict, '{"a": [1, null]}'),
    (list[Row], '[{"step": 3, "loss": NaN, "more": {}}, {"step": 4, "loss": 1, "note": null}]'),
    (dict[str, float | bool], '{"a": 1, "b": 0.5, "c": true}'),
    (tuple[str, int | None], '["a", null]'),
    (Layout, '{"sizes": [1, 2.5]}'),
]


@pytest.mark.parametrize(("kind", "text"), KINDS)
def test_content_of_the_right_types_is_read(tmp_path, kind, text):
    (tmp_path / "a.json").write_text(text)
    assert json.dumps(read_json(tmp_path / "a.json", kind)) == json.dumps(json.loads(text))


DAMAGED = [
    (b"", "it is empty"),
    (b'{"a": ', "it is not JSON: Expecting value"),
    (b"[" * 10**5, "it is not JSON: it must nest at most 50"),
    (b'[{"step": 1, "step": 2, "loss": 1}]', "it is not JSON: the name 'step' appears twice"),
    (b'[{"step": 9223372036854775808, "loss": 1}]', r"its `\[0\].step` must be an integer"),
    (b'[{"step": NaN, "loss": 1}]', r"its `\[0\].step` must be an integer. Received: nan"),
    (b'[{"step": 1, "loss": -' + b"1" * 400 + b"}]", r"its `\[0\].loss` must be a number"),
    (b'[{"step": 1, "loss": 1, "note": 5}]', r"its `\[0\].note` must be a string. Received: 5"),
    (b'[{"step": \xff', "it is not JSON: 'utf-8' codec can't decode byte 0xff in position 10"),
    (b"null", "it must be a list. Received: None"),
    (b"[3]", r"its `\[0\]` must be an object. Received: 3"),
    (b"[{}]", r"its `\[0\]` lacks `step`"),
]


@pytest.mark.parametrize(("content", "reason"), DAMAGED)
def test_damage_is_told_with_the_name_and_the_remedy(tmp_path, content, reason):
    (tmp_path / "rows.json").write_bytes(content)
    message = rf"^'.*rows.json' is damaged \({reason}.*\)\. Delete it$"
    with pytest.raises(ValueError, match=message):
        read_json(tmp_path / "rows.json", list[Row], "Delete it")


def test_what_is_no_file_or_too_large_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # reading it would wait
    with open(tmp_path / "large", "wb") as file:
        file.truncate(LARGEST_JSON_BYTES + 1)
    reasons = {"pipe": "it is not a file", "large": "its 16777217 bytes are more than 16777216"}
    for name, reason in reasons.items():
        with pytest.raises(ValueError, match=rf"is damaged \({reason}\)\. Delete it"):
            read_json(tmp_path / name, dict, "Delete it")
    with pytest.raises(FileNotFoundError, match="no file .*nowhere'. Delete it"):
        read_json(tmp_path / "nowhere", dict, "Delete it")


def test_names_that_are_not_kept_are_dropped_and_still_checked():
    text = '{"a": {"b": 1, "c": [{"b": 2}]}, "d": 3}'
    assert parse_json(text, "The note", names={"a", "b"}) == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="the name 'c' appears twice"):
        parse_json('{"a": {"c": 1, "c": 2}}', "The note", names={"a"})
