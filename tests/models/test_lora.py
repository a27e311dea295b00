"""Models with low-rank adapters: what trains, what stays, and the merged model."""

import math

import keras
import numpy as np
import pytest

import vit_keras
from tests.designs import images_for, random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import exporting
from vit_keras.layers.base import fold_in
from vit_keras.models import VisionTransformer, add_lora, lora_layers, merge_lora, with_image_size
from vit_keras.models.lora import lora_variables
from vit_keras.training import SGD
from vit_keras.weights import load, save, save_model

pytestmark = pytest.mark.on("torch")

ALL = ("query", "key", "value", "out", "Dense_0", "Dense_1")
SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 4}


@pytest.fixture
def base(rng):
    return randomize(VisionTransformer(8, 4, **SIZES, name="small"), rng)


@pytest.fixture
def images(rng):
    return rng.normal(size=(3, 8, 8, 3)).astype("float32")


def adapted(base, rng, layers=ALL):
    add_lora(base, 2, layers, alpha=3.0, seed=1)
    for variable in lora_variables(base):
        variable.assign(0.3 * rng.normal(size=variable.shape))
    return base


def test_adapters_of_query_and_value_start_the_same_everywhere(base, images):
    before, logits = weights_by_path(base), base.predict(images, verbose=0)
    assert add_lora(base, 2, seed=7) is base
    np.testing.assert_array_equal(base.predict(images, verbose=0), logits)
    attention = "encoderblock_{}/MultiHeadDotProductAttention_1/{}"
    owners = [attention.format(i, name) for i in (0, 1) for name in ("query", "value")]
    assert [layer.path for layer in lora_layers(base)] == owners
    for layer in lora_layers(base):
        key = fold_in(7, f"{layer.path}/lora_kernel_a")
        drawn = np.random.Generator(np.random.Philox(key=key)).random((12, 2), dtype=np.float32)
        assert_close(layer.lora_kernel_a, (2 * drawn - 1) / math.sqrt(12), rtol=1e-6)
        assert not to_numpy(layer.lora_kernel_b).any()
    trained = {f"{owner}/lora_kernel_{factor}" for owner in owners for factor in "ab"}
    assert {v.path for v in base.trainable_variables} == trained | {"head/kernel", "head/bias"}
    assert weights_by_path(base).keys() == before.keys() | trained


def test_training_leaves_the_base_and_merging_keeps_the_logits(base, images, rng):
    add_lora(base, 2, ALL, alpha=4, train=["head", "encoder_n*"], seed=0)
    before = weights_by_path(base)
    base.compile(SGD(0.1), "mse")
    base.fit(images, rng.normal(size=(3, 4)), epochs=2, batch_size=3, verbose=0)
    after = weights_by_path(base)
    changed = {name for name in after if not np.array_equal(before[name], after[name])}
    assert changed == {v.path for v in base.trainable_variables}
    assert {name for name in changed if "lora" not in name} == {
        *("head/kernel", "head/bias", "encoder_norm/gamma", "encoder_norm/beta")
    }
    merged = merge_lora(base)
    assert weights_by_path(merged).keys() == {n for n in before if "lora" not in n}
    assert len(merged.trainable_variables) == len(merged.weights) and not lora_layers(merged)
    logits = base.predict(images, verbose=0)
    assert_close(merged.predict(images, verbose=0), logits)
    for weight in merged.weights:
        weight.assign(keras.ops.zeros(weight.shape))
    np.testing.assert_array_equal(base.predict(images, verbose=0), logits)  # nothing is shared


def test_files_copies_and_exports_hold_the_merged_model(base, images, rng, tmp_path):
    base.class_names = ["a", "b", "c", "d"]
    adapted(base, rng)
    logits = base.predict(images, verbose=0)
    save_model(base, tmp_path / "model.keras")
    save(base, tmp_path / "hf", format="huggingface")
    models = [vit_keras.open(tmp_path / "model.keras"), vit_keras.open(tmp_path / "hf")]
    models += [with_image_size(base, 8), exporting.for_inference(base)]
    for model in models:
        assert not lora_layers(model) and list(model.class_names) == base.class_names
        assert_close(model.predict(images, verbose=0), logits)
    with pytest.raises(ValueError, match="missing in the file: .*lora_kernel_a"):
        load(base, tmp_path / "hf")


def test_a_rematerialized_model_of_mixed_precision_learns(rng):
    options = {"qkv_bias": "none", "rematerialize": True, "dtype": "mixed_bfloat16"}
    model = random_design("DINOv3", **options)  # whose MLPs have a gate
    adapted(model, rng, ["query", "gate", "Dense_0", "Dense_1"])
    before = weights_by_path(model)
    model.compile(SGD(0.5), "mse")
    model.fit(images_for(model), rng.normal(size=(2, 3)), verbose=0)
    for variable in lora_variables(model):
        assert not np.array_equal(to_numpy(variable), before[variable.path]), variable.path
        assert variable.dtype == "float32"
    merged = weights_by_path(merge_lora(model))
    for layer in lora_layers(model):
        a, b = (to_numpy(v) for v in (layer.lora_kernel_a, layer.lora_kernel_b))
        kernel = before[f"{layer.path}/kernel"]
        expected = kernel + 1.5 * (a @ b.reshape(2, -1)).reshape(kernel.shape)
        assert_close(merged[f"{layer.path}/kernel"], expected, rtol=2e-6)  # not of bfloat16
