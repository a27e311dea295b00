"""Weights of hybrids and of BiT in all formats that hold them."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, randomize, weights_by_path
from tests.weights.builds import SMALL, arrays_of, assert_equal_weights
from vit_keras import weights
from vit_keras.models import HybridViT, ResNet

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*computes with")]

STEM = {"resnet_layers": (1, 2), "resnet_width": 0.5}
SUFFIX = {"google": ".npz", "timm": ".safetensors", "bit": ".npz", "vit_keras": ".weights.h5"}


def hybrid(rng=None, image_size=(16, 24), patch_size=1, **changes):
    model = HybridViT(image_size, patch_size=patch_size, **{**STEM, **SMALL, **changes})
    return model if rng is None else randomize(model, rng, scale=0.2)


def bit(rng=None, **changes):
    model = ResNet(**{"image_size": 24, **STEM, "num_classes": 5, **changes})
    return model if rng is None else randomize(model, rng, scale=0.2)


def test_a_published_hybrid_with_padded_norms_gives_its_logits(tmp_path):
    """As some files hold GroupNorm."""
    arrays = arrays_of(GOLDEN / "hybrid_stages.npz")
    norms = [name for name in arrays if "/gn" in f"/{name}"]
    assert norms
    arrays |= {name: arrays[name].reshape(1, 1, 1, -1) for name in norms}
    np.savez(tmp_path / "a.npz", **{f"opt/target/{name}": x for name, x in arrays.items()})
    model = vit_keras.open(tmp_path / "a.npz")
    io = arrays_of(GOLDEN / "hybrid_stages.io.npz")
    assert_close(model(io["images"]), io["logits"])


BARE = {"resnet_layers": (), "patch_size": (4, 2)}
MODELS = [(hybrid, source, {}) for source in ("google", "timm", "vit_keras")]
MODELS += [(hybrid, source, BARE) for source in ("google", "timm", "vit_keras")]
MODELS += [(bit, source, {}) for source in ("bit", "vit_keras")]
MODELS += [(hybrid, "timm", {"channels": 2}), (bit, "bit", {"num_classes": None, "channels": 1})]


@pytest.mark.parametrize(("build", "source", "changes"), MODELS)
def test_saved_models_load_bit_by_bit(rng, tmp_path, build, source, changes):
    model, path = build(rng, **changes), tmp_path / f"a{SUFFIX[source]}"
    weights.save(model, path, format=source)
    assert_equal_weights(model, weights.load(build(**changes), path))
    known = {"num_heads": 3, "image_size": (16, 24), "gelu": "exact"} if build is hybrid else {}
    again = vit_keras.open(path, **known)
    assert_equal_weights(model, again)
    assert build is hybrid or again.input_shape[1:3] == (None, None)


def test_hybrid_loads_at_another_size(rng, tmp_path):
    model = hybrid(rng, image_size=32)
    weights.save(model, tmp_path / "a.npz", format="google")
    other = vit_keras.open(tmp_path / "a.npz", image_size=(48, 32), channels=1)
    assert weights_by_path(other)["posembed_input/pos_embedding"].shape == (1, 1 + 6 * 4, 24)
    kernel = weights_by_path(model)["conv_root/kernel"]
    assert_close(weights_by_path(other)["conv_root/kernel"], kernel.sum(axis=2, keepdims=True))


NAMES = {  # in the files of timm
    "stem.conv.weight": "conv_root/kernel",
    "stages.0.blocks.0.downsample.norm.weight": "block1/unit1/gn_proj/gamma",
    "stages.1.blocks.0.downsample.conv.weight": "block2/unit1/conv_proj/kernel",
    "stages.1.blocks.1.norm3.bias": "block2/unit2/gn3/beta",
}


def test_stem_has_the_names_of_timm(rng, tmp_path):
    model = hybrid(rng)
    weights.save(model, tmp_path / "a.safetensors", format="timm")
    theirs, ours = arrays_of(tmp_path / "a.safetensors"), weights_by_path(model)
    for name, path in NAMES.items():
        tensor = theirs[f"patch_embed.backbone.{name}"]
        tensor = tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor
        np.testing.assert_array_equal(tensor, ours[path])
    weights.save(hybrid(rng, resnet_layers=()), tmp_path / "b.safetensors", format="timm")
    assert "patch_embed.backbone.conv.weight" in arrays_of(tmp_path / "b.safetensors")


def test_a_stem_computes_as_its_source(rng, tmp_path):
    source = hybrid(rng, standardization="timm", group_norm_epsilon=1e-5)
    weights.save(source, tmp_path / "a.safetensors", format="timm")
    model = weights.load(hybrid(), tmp_path / "a.safetensors")
    model.save(tmp_path / "own.keras")
    again = weights.load(hybrid(), tmp_path / "own.keras")
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    for loaded in (model, again):
        assert_close(loaded(images), source(images))
    with pytest.warns(UserWarning, match="google computes with standardization='vit'"):
        weights.save(source, tmp_path / "a.npz", format="google")


OF_BIT = {  # in the published files of BiT
    "root_block/standardized_conv2d/kernel": "root_block/conv_root/kernel",
    "block1/unit01/a/proj/standardized_conv2d/kernel": "block1/unit01/conv_proj/kernel",
    "block2/unit01/a/standardized_conv2d/kernel": "block2/unit01/conv1/kernel",
    "block2/unit02/c/group_norm/gamma": "block2/unit02/gn3/gamma",
    "group_norm/beta": "norm-pre-head/beta",
    "head/conv2d/bias": "head/bias",
}


def test_all_namings_of_bit_give_the_same_model(rng, tmp_path):
    model = bit(rng)
    weights.save(model, tmp_path / "a.npz", format="bit")
    written, ours = arrays_of(tmp_path / "a.npz"), weights_by_path(model)
    for name, path in OF_BIT.items():
        np.testing.assert_array_equal(written[f"resnet/{name}"], ours[path])
    head = written["resnet/head/conv2d/kernel"]
    np.testing.assert_array_equal(head, ours["head/kernel"][None, None])
    numbered = {
        k.replace("standardized_conv2d", "standardized_conv2d_17"): written[k] for k in written
    }
    np.savez(tmp_path / "numbered.npz", **numbered)
    flax = {k.replace("gamma", "scale").replace("beta", "bias"): v for k, v in ours.items()}
    np.savez(tmp_path / "flax.npz", **{f"params/{name}": array for name, array in flax.items()})
    for name in ("a", "numbered", "flax"):
        assert_equal_weights(model, weights.load(bit(), tmp_path / f"{name}.npz"))
        assert_equal_weights(model, vit_keras.open(tmp_path / f"{name}.npz"))
