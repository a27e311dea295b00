"""All forms of big_vision's files hold the same model, and a model of Flax's layers reads them."""

import re

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy, weights_by_path
from tests.weights.builds import SMALL, arrays_of, assert_equal_weights, build
from vit_keras import weights
from vit_keras.layers.positions import sincos_2d

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*computes with")]
TANH = {"gelu": "tanh", "image_size": 16}


@pytest.fixture
def published(rng, tmp_path):
    """A model whose class token has a position of zeros, and its arrays by big_vision's names."""
    model = build(rng, **TANH)
    positions = model.get_layer("posembed_input").pos_embedding
    positions.assign(np.concatenate([np.zeros((1, 1, 24)), to_numpy(positions)[:, 1:]], axis=1))
    weights.save(model, tmp_path / "written.npz", format="big_vision")
    return model, arrays_of(tmp_path / "written.npz")


def loaded(tmp_path, arrays, **changes):
    np.savez(tmp_path / "changed.npz", **arrays)
    return weights.load(build(**{**TANH, **changes}), tmp_path / "changed.npz", source="big_vision")


@pytest.mark.parametrize(
    ("classifier", "size"), [("token", 9), ("gap", None), ("map", None), ("map", 9)]
)
def test_flaxs_parameters_give_its_logits_and_are_written_back(rng, tmp_path, classifier, size):
    jax = pytest.importorskip("jax")
    traverse = pytest.importorskip("flax.traverse_util")
    from benchmarks.flax_vit import FlaxVisionTransformer

    options = {"classifier": classifier, "representation_size": size, "positions_first": True}
    theirs = FlaxVisionTransformer(patch_size=8, **SMALL, **options)
    images = rng.uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    parameters = jax.eval_shape(theirs.init, jax.random.PRNGKey(0), images)["params"]
    flat = {
        name: (name.endswith("scale") + 0.2 * rng.normal(size=value.shape)).astype("float32")
        for name, value in traverse.flatten_dict(parameters, sep="/").items()
    }
    np.savez(tmp_path / "a.npz", **{f"params/{name}": value for name, value in flat.items()})
    ours = vit_keras.open(tmp_path / "a.npz")
    tree = {"params": traverse.unflatten_dict(flat, sep="/")}
    assert_close(ours(images), np.asarray(jax.jit(theirs.apply)(tree, images)))
    weights.save(ours, tmp_path / "b.npz", format="big_vision")
    written = arrays_of(tmp_path / "b.npz")
    assert written.keys() == {f"params/{name}" for name in flat}
    assert all(
        written[f"params/{name}"].tobytes() == value.tobytes() for name, value in flat.items()
    )


def renamed(old, new):
    return lambda arrays: {key.replace(old, new, 1): value for key, value in arrays.items()}


def scanned(arrays):
    """The arrays of all blocks in one."""
    stacked = {
        re.sub(r"_\d", "", key, count=1): np.stack([value, arrays[key.replace("_0/", "_1/", 1)]])
        for key, value in arrays.items()
        if "/encoderblock_0/" in key
    }
    return {key: x for key, x in arrays.items() if "/encoderblock_" not in key} | stacked


FORMS = {
    "bare": renamed("params/", ""),
    "a tower": renamed("params/", "params/img/"),
    "an optimizer": renamed("params/", "opt/target/"),
    "older positions": renamed("/pos_emb", "/Transformer/posembed_input/pos_emb"),
    "old positions": renamed("/pos_emb", "/Transformer/pos_emb"),
    "scanned": scanned,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_holds_the_model(published, tmp_path, form):
    model, arrays = published
    changed = FORMS[form](arrays)
    assert changed.keys() != arrays.keys()
    assert_equal_weights(model, loaded(tmp_path, changed))
    source = "big_vision" if form == "older positions" else None  # which Google's files have
    assert_equal_weights(model, vit_keras.open(tmp_path / "changed.npz", source))


def test_the_other_tower_and_the_optimizer_are_left_out(published, tmp_path):
    model, arrays = published
    arrays = FORMS["a tower"](arrays)
    others = ("params/txt/head/kernel", "params/t", "params/b", "opt/0/mu/t", "extra/step")
    arrays |= {name: np.ones(3, "float32") for name in others}
    assert_equal_weights(model, loaded(tmp_path, arrays))
    with pytest.raises(ValueError, match=r"not in the model: params/img/cls2, \(3,\)"):
        loaded(tmp_path, {**arrays, "params/img/cls2": np.ones(3)})
    with pytest.raises(ValueError, match=r"has tensors twice.*params/.*cls"):
        loaded(tmp_path, {**arrays, "params/cls": arrays["params/img/cls"]})


def test_bfloat16_arrays_are_read(published, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model, arrays = published
    halves = {key: value.astype(ml_dtypes.bfloat16) for key, value in arrays.items()}
    read = weights_by_path(loaded(tmp_path, halves))
    assert arrays_of(tmp_path / "changed.npz")["params/head/bias"].dtype == np.dtype("V2")
    for path, value in weights_by_path(model).items():
        expected = value.astype(ml_dtypes.bfloat16).astype("float32")
        np.testing.assert_array_equal(read[path], expected)


def test_file_without_positions_gets_sin_cos_positions(published, tmp_path):
    _, arrays = published
    del arrays["params/pos_embedding"]
    read = weights_by_path(loaded(tmp_path, arrays))["posembed_input/pos_embedding"]
    np.testing.assert_array_equal(read[:, 0], np.zeros((1, 24)))
    np.testing.assert_array_equal(read, sincos_2d(2, 2, 24, 1))
    with pytest.raises(ValueError, match="do not give `image_size`"):
        vit_keras.open(tmp_path / "changed.npz")


@pytest.mark.parametrize("classifier", ["token", "map"])
def test_fixed_positions_are_written_as_none(rng, tmp_path, classifier):
    fixed = {**TANH, "position_embedding": "sincos2d", "classifier": classifier}
    model = build(rng, **fixed)
    weights.save(model, tmp_path / "a.npz", format="big_vision")
    assert not [name for name in arrays_of(tmp_path / "a.npz") if "pos_embedding" in name]
    opened = vit_keras.open(tmp_path / "a.npz", image_size=model.input_shape[1:3])
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    assert_close(opened.predict_on_batch(images), model.predict_on_batch(images))
    assert_equal_weights(model, weights.load(build(rng, **fixed), tmp_path / "a.npz"))
