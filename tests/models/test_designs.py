"""Models of every family's design: the same numbers on every backend, in files and in training."""

import json

import keras
import numpy as np
import pytest

from tests.designs import DESIGNS, SIZES, design, images_for, random_design
from tests.golden.designs import FILE, measure
from tests.helpers import assert_close, weights_by_path
from vit_keras import models, weights
from vit_keras.models import VisionTransformer
from vit_keras.models.architectures import architecture_of, of_arguments

# Together they have every option that computes; `make nightly` trains the others too.
TRAINED = ("BEiT", "DINOv3", "PE", "ViT-22B", "ViTDet")


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", DESIGNS)
def test_a_saved_model_is_the_same_model(name, tmp_path):
    model = random_design(name)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for path, value in weights_by_path(model).items():
        np.testing.assert_array_equal(weights_by_path(again)[path], value, err_msg=path)
    images = images_for(model)
    assert_close(again(images), model(images), rtol=2e-6)
    assert architecture_of(again) == architecture_of(model) is not None


TINY = {**SIZES, "image_size": 16}
MADE = {
    "another size": lambda: models.with_image_size(design("SigLIP"), (10, 21)),
    "other patches": lambda: models.with_patch_size(design("DINOv2"), 2),
    "tokens": lambda: models.detector(design("DeiT"), 2, num_tokens=3),
    "boxes": lambda: models.detector(design("registers"), 2, "patches"),
    "merged": lambda: models.merge_lora(models.add_lora(design("PE"), 2)),
    "hybrid": lambda: models.with_image_size(
        models.HybridViT(**{**TINY, "image_size": 32}, resnet_layers=(1,), resnet_width=0.5), 64
    ),
    "positions": lambda: VisionTransformer(
        **TINY, position_embedding="learned_2d", position_embedding_at="every", classifier="gap"
    ),
    "without classes": lambda: VisionTransformer(**{**TINY, "num_classes": 0}, classifier="map"),
}


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", [*DESIGNS, *MADE])
def test_a_model_carries_the_arguments_that_build_it(name):
    model = MADE[name]() if name in MADE else design(name)
    arch = architecture_of(model)
    again = getattr(models, arch.constructor)(**arch.arguments)
    shapes = [{(v.path, tuple(v.shape)) for v in x.weights} for x in (model, again)]
    assert shapes[0] == shapes[1] and architecture_of(again) == arch
    assert of_arguments(json.loads(json.dumps(arch.arguments))) == arch


@pytest.mark.on("torch")
def test_a_clone_carries_its_architecture_when_it_is_copied(tmp_path):
    model = design("CLIP")
    clone = keras.models.clone_model(model)
    with pytest.raises(ValueError, match=r"if it is a clone, call `models.copy_description` first"):
        weights.save(clone, tmp_path / "timm.safetensors", "timm")
    assert architecture_of(models.copy_description(clone, model)) == architecture_of(model)
    config = model.get_config()
    config["architecture"] |= {"hidden_size": "wide"}
    with pytest.raises(ValueError, match="`hidden_size` must be an integer"):
        type(model).from_config(config)


@pytest.mark.parametrize(
    "name", [n if n in TRAINED else pytest.param(n, marks=pytest.mark.nightly) for n in DESIGNS]
)
def test_logits_and_gradients_are_those_of_the_other_backends(name):
    """The file's numbers were computed on torch; see `tests/golden/designs.py`."""
    with np.load(FILE) as file:
        logits, products = file[f"{name}/logits"], file[f"{name}/products"]
    measured, by_path = measure(name)
    assert_close(measured, logits)
    size = np.abs(products).max()
    for (path, value), expected in zip(by_path.items(), products, strict=True):
        assert abs(value - expected) < 1e-4 * size, (path, value, expected)


@pytest.mark.once
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_registers": -1}, "`num_registers` must be a nonnegative int.*num_registers=-1"),
        ({"qkv_bias": "k"}, "`qkv_bias` must be one of 'all', 'qv', 'none'.*'k'"),
        (
            {"position_embedding": "relative_2d", "num_registers": 1},
            "Relative biases cover only the patches and a class token.*Received: 14 tokens for 3x4",
        ),
        ({"patch_keep_rate": 0.5, "rope": {}}, "must be added once, before the blocks"),
        ({"patch_keep_rate": 0.5, "window_size": 2}, r"`window_size` must be None.*\(2, 2\)"),
        ({"window_size": 2, "global_blocks": (0, 2)}, "from 0 to 1.*num_layers=2. Received: 2"),
    ],
)
def test_options_that_do_not_go_together_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        design("CLIP", **arguments)


@pytest.mark.on("jax")
def test_a_model_that_drops_patches_in_training_takes_images_of_any_size():
    model = random_design("CLIP", patch_keep_rate=0.5)  # JAX traces an unknown number of patches
    images = images_for(model)
    answers = models.with_image_size(model, None).predict(images, verbose=0)
    assert_close(answers, random_design("CLIP").predict(images, verbose=0), rtol=5e-6)
