"""Class names with control characters, or far too many, reach neither a terminal nor a model."""

import json

import keras
import numpy as np
import pytest
from hypothesis import given, strategies

from tests.fuzz.strategies import fixed
from vit_keras.commands import main
from vit_keras.support.command_line import visible, visible_json

pytestmark = pytest.mark.once

ALLOWED = {"\n", "\t"}


def commands(text):
    """The characters of a text that a terminal would obey."""
    return {c for c in text if not c.isprintable() and c not in ALLOWED and c != "\xa0"}


@fixed(100)
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


def test_check_writes_json_without_commands(tmp_path, capsys):
    folder = tmp_path / "pets\x9b2J\x7f"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), "uint8")
            keras.utils.save_img(folder / name / f"{number}.png", pixels, scale=False)
    assert main(["check", str(folder), "--format", "json"]) == 0
    shown = capsys.readouterr().out
    assert "pets\\u009b2J" in shown and not commands(shown)
    assert json.loads(shown)["dataset"] == f"folder:{folder}"
