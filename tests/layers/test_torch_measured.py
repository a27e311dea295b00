"""The choice between two of torch's implementations, and where it is kept."""

import json
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.on("torch")


class Choice(NamedTuple):
    new: bool = False


@pytest.fixture
def measured():
    from vit_keras.layers.kernels import torch_measured

    return torch_measured


def test_a_choice_is_measured_once_and_kept(measured, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    answers = [Choice(True), Choice(False)]
    choose = lambda: measured.kept("colours", Choice, lambda: answers.pop(0))
    assert choose() == Choice(True)
    assert choose() == Choice(True) and len(answers) == 1
    (path,) = (tmp_path / "vit_keras").rglob("*_colours_*.json")
    assert json.loads(path.read_text()) == {"new": True}
    assert measured._keep(path, Choice(False)) == Choice(True)  # another process was first
    path.write_text("{")  # what cannot be read is measured again
    assert choose() == Choice(False)


def test_a_choice_holds_where_nothing_can_be_kept(measured, monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file" / "home"))
    (tmp_path / "file").write_text("not a folder")
    assert measured.kept("colours", Choice, lambda: Choice(True)) == Choice(True)


def test_measuring_tells_a_slow_product_from_a_fast_one(measured):
    import torch

    slow = lambda a, b: [torch.mm(a, b) for _ in range(20)]
    operands = [(torch.ones(200, 300), torch.ones(300, 200))]
    assert measured.is_faster(torch.mm, slow, operands, 3)
    assert not measured.is_faster(slow, torch.mm, operands, 3)
