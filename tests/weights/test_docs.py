"""The example of a format in CONTRIBUTING.md works."""

import re

import numpy as np
import pytest

import vit_keras
from tests.helpers import ROOT
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.weights.formats import registry

pytestmark = pytest.mark.on("torch")


def test_the_example_of_a_new_format_works(rng, tmp_path, monkeypatch):
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.split("## A new format is one file and one row")[1]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    namespace = {}
    exec(code, namespace)
    monkeypatch.setitem(registry.FORMATS, "example", namespace["FORMAT"])
    source = build(rng, image_size=16, gelu="tanh")
    weights.save(source, tmp_path / "a.npz", format="example")
    with np.load(tmp_path / "a.npz") as file:
        assert "encoderblock_1.LayerNorm_2.gamma" in file.files
    assert_equal_weights(source, vit_keras.open(tmp_path / "a.npz", num_heads=3))
