"""Class names with control characters, or far too many, reach neither a terminal nor a model."""

import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies

import vit_keras
from tests.fuzz import subjects
from vit_keras import weights
from vit_keras.commands import main
from vit_keras.evaluation import report, report_table
from vit_keras.support.command_line import visible, visible_json

pytestmark = pytest.mark.once

HOSTILE = ["cat\x1b[2J\x1b]0;title\x07", "\u202egod\u2066\u200f", "owl\x00\x85\x9b31m\r"]


def commands(text):
    """The characters of a text that a terminal would obey."""
    return {c for c in text if not c.isprintable() and c not in "\n\t\xa0"}


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(strategies.text(strategies.characters(codec=None)))
def test_text_is_shown_without_commands_and_otherwise_as_it_is(text):
    shown = visible(text)
    assert not commands(shown.replace("\u2003", "")) - {c for c in shown if c.isspace()}
    assert shown.encode() is not None
    if text.isprintable():
        assert shown == text
    for indent in (None, 1):
        written = visible_json([text], indent)
        assert json.loads(written) == [text] and not commands(written.replace("\u2003", ""))


def test_reports_errors_and_the_command_info_show_names_without_commands(tmp_path, capsys):
    from safetensors.numpy import save_file

    made = subjects.vision_transformer(np.random.default_rng(2))
    made.class_names = HOSTILE
    weights.save_model(made, tmp_path / "a.keras")
    assert main(["info", str(tmp_path / "a.keras")]) == 0
    shown = capsys.readouterr().out
    assert "cat\\x1b[2J" in shown and "\\u202egod" in shown and not commands(shown)
    table = report_table(report(np.eye(3, dtype="float32"), np.arange(3), HOSTILE))
    assert "cat\\x1b[2J" in table and not commands(table)
    save_file({HOSTILE[0]: np.zeros(3, "float32")}, tmp_path / "a.safetensors")
    assert main(["info", str(tmp_path / "a.safetensors")]) == 1
    error = capsys.readouterr().err
    assert "tensors of no known format" in error and "\\x1b" in error and not commands(error)


def test_wrong_names_of_classes_are_refused(tmp_path):
    path = subjects.made("huggingface folder, foreign", tmp_path)
    config = json.loads((path / "config.json").read_text())
    damaged = "config.json' is damaged: its `id2label` must be"
    for labels, message in (
        (
            {"0": "a" * 2**24},
            "json' is damaged .its .* bytes are more than 16777216",
        ),
        (dict.fromkeys(map(str, range(10**4)), "a"), "labels is 10000 in config.json, 3 in"),
        ({"0": "a", "1": "b", "2": "\ud800"}, damaged),
    ):
        (path / "config.json").write_text(json.dumps({**config, "id2label": labels}))
        with pytest.raises(ValueError, match=message):
            vit_keras.open(path)
