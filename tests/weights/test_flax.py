"""Google's and big_vision's files against Flax's layers, in both directions."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy
from tests.weights.builds import SMALL, build
from vit_keras import weights

pytestmark = pytest.mark.on("torch")

jax = pytest.importorskip("jax")
traverse = pytest.importorskip("flax.traverse_util")

CASES = [
    ("google", "token", None),
    ("google", "token", 9),
    ("google", "gap", None),
    ("big_vision", "token", 9),
    ("big_vision", "gap", None),
    ("big_vision", "map", None),
    ("big_vision", "map", 9),
]


def build_reference(source, classifier, representation_size):
    from tests.weights.flax_vit import FlaxVisionTransformer

    return FlaxVisionTransformer(
        patch_size=8,
        **SMALL,
        classifier=classifier,
        representation_size=representation_size,
        positions_first=source == "big_vision",
    )


def random_parameters(flax_model, images, rng):
    parameters = flax_model.init(jax.random.PRNGKey(0), images)["params"]
    flat = traverse.flatten_dict(parameters, sep="/")
    return {
        name: (name.endswith("scale") + 0.2 * rng.normal(size=value.shape)).astype("float32")
        for name, value in flat.items()
    }


def logits(flax_model, flat, images):
    tree = {"params": traverse.unflatten_dict(flat, sep="/")}
    return np.asarray(flax_model.apply(tree, images))


@pytest.mark.parametrize(("source", "classifier", "representation_size"), CASES)
def test_parameters_of_flax_give_its_logits(rng, tmp_path, source, classifier, representation_size):
    flax_model = build_reference(source, classifier, representation_size)
    images = rng.uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    flat = random_parameters(flax_model, images, rng)
    prefix = "params/" if source == "big_vision" else ""
    np.savez(tmp_path / "a.npz", **{prefix + name: value for name, value in flat.items()})
    ours = vit_keras.open(tmp_path / "a.npz")
    expected = logits(flax_model, flat, images)
    assert_close(ours(images), expected)


@pytest.mark.parametrize(("source", "classifier", "representation_size"), CASES)
def test_flax_computes_the_same_logits_from_a_saved_file(
    rng, tmp_path, source, classifier, representation_size
):
    ours = build(
        rng,
        image_size=16,
        classifier=classifier,
        representation_size=representation_size,
        gelu="tanh",
    )
    if (source, classifier) == ("big_vision", "token"):  # no slot for the class token there
        positions = ours.get_layer("posembed_input").pos_embedding
        positions.assign(to_numpy(positions) * np.array([0, 1, 1, 1, 1])[None, :, None])
    weights.save(ours, tmp_path / "a.npz", format=source)
    with np.load(tmp_path / "a.npz") as file:
        flat = {linen_name(name): file[name] for name in file.files}
    flax_model = build_reference(source, classifier, representation_size)
    images = rng.uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    parameters = random_parameters(flax_model, images, rng)
    assert {k: v.shape for k, v in flat.items()} == {k: v.shape for k, v in parameters.items()}
    expected = to_numpy(ours(images))
    assert_close(logits(flax_model, flat, images), expected)


def linen_name(name):
    """Renames the original numbering as Flax's `convert_pre_linen` does."""
    name = name.removeprefix("params/").replace("MlpBlock_3", "MlpBlock_0")
    name = name.replace("LayerNorm_2", "LayerNorm_1")
    return name.replace("MultiHeadDotProductAttention_1", "MultiHeadDotProductAttention_0")
