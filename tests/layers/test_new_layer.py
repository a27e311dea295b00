"""The example of a new layer in CONTRIBUTING.md works as it stands there."""

import re

import keras
import numpy as np
import pytest

from tests.helpers import ROOT, assert_close, randomize
from tests.layers import test_harness
from vit_keras import inspection
from vit_keras.inspection import cost_rules
from vit_keras.models import VisionTransformer


@pytest.fixture
def example(monkeypatch):
    """The names that the page's code defines; what it registers is removed after the test."""
    monkeypatch.setattr(cost_rules, "RULES", dict(cost_rules.RULES))
    monkeypatch.setattr(test_harness, "CASES", dict(test_harness.CASES))
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("\n## A new layer\n")[2].partition("\n## ")[0]
    names = {"__name__": "example"}
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, names)
    yield names
    del keras.saving.get_custom_objects()["vit_keras>TokenMixing"]


def test_the_example_passes_the_tests_of_every_layer(example):
    case = test_harness.CASES["TokenMixing"]
    test_harness.check_contract(example["TokenMixing"], case)
    test_harness.check_cost(example["TokenMixing"], case)


def test_the_example_computes_its_formula(example, rng):
    layer = example["TokenMixing"](seed=1)
    x = rng.normal(size=(2, 6, 12)).astype("float32")
    layer.build(x.shape)
    kernel = rng.normal(size=(6, 6)).astype("float32")
    layer.kernel.assign(kernel)
    expected = x + np.stack([kernel.T @ image for image in x])
    assert_close(layer(x), expected, rtol=2e-6)


def test_a_model_with_the_example_is_counted_and_saved(example, rng, tmp_path):
    encoder = VisionTransformer(8, 4, 12, 1, 3, 20, None, classifier="gap")
    tokens = example["TokenMixing"](name="mixing")(encoder.get_layer("encoder_norm").output)
    model = randomize(keras.Model(encoder.input, tokens), rng)
    rows = {row.name: row.macs for row in inspection.flops(model).rows}
    assert rows["mixing"] == 4 * 4 * 12
    model.save(tmp_path / "model.keras")
    images = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(again(images), model(images), rtol=2e-6)
