"""All forms of big_vision's files hold the same model."""

import re

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy, weights_by_path
from tests.weights.builds import assert_equal_weights, build
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
    with np.load(tmp_path / "written.npz") as file:
        return model, dict(file)


def loaded(tmp_path, arrays, **changes):
    np.savez(tmp_path / "changed.npz", **arrays)
    return weights.load(build(**{**TANH, **changes}), tmp_path / "changed.npz", source="big_vision")


def test_positions_have_no_slot_for_the_class_token(published):
    model, arrays = published
    assert arrays["params/pos_embedding"].shape == (1, 4, 24)
    positions = weights_by_path(model)["posembed_input/pos_embedding"]
    np.testing.assert_array_equal(arrays["params/pos_embedding"], positions[:, 1:])
    assert "params/Transformer/encoderblock_1/MlpBlock_0/Dense_1/kernel" in arrays


@pytest.mark.parametrize("prefix", ["", "params/img/", "opt/target/"])
def test_prefixes_are_removed(published, tmp_path, prefix):
    model, arrays = published
    arrays = {key.replace("params/", prefix, 1): value for key, value in arrays.items()}
    assert_equal_weights(model, loaded(tmp_path, arrays))


def test_the_other_tower_and_the_optimizer_are_left_out(published, tmp_path):
    model, arrays = published
    arrays = {key.replace("params/", "params/img/", 1): value for key, value in arrays.items()}
    others = ("params/txt/head/kernel", "params/t", "params/b", "opt/0/mu/t", "extra/step")
    arrays |= {name: np.ones(3, "float32") for name in others}
    assert_equal_weights(model, loaded(tmp_path, arrays))
    arrays["params/img/cls2"] = np.ones(3)
    with pytest.raises(ValueError, match=r"not in the model: params/img/cls2, \(3,\)"):
        loaded(tmp_path, arrays)


def test_tensor_under_two_names_is_refused(published, tmp_path):
    _, arrays = published
    arrays["params/img/cls"] = arrays["params/cls"]
    with pytest.raises(ValueError, match=r"has tensors twice.*params/cls"):
        loaded(tmp_path, arrays)


@pytest.mark.parametrize(
    "name", ["Transformer/posembed_input/pos_embedding", "Transformer/pos_embedding"]
)
def test_positions_are_read_from_their_older_places(published, tmp_path, name):
    model, arrays = published
    arrays[f"params/{name}"] = arrays.pop("params/pos_embedding")
    assert_equal_weights(model, loaded(tmp_path, arrays))


def test_scanned_blocks_are_read(published, tmp_path):
    model, arrays = published
    scanned = {}
    for key in [key for key in arrays if "/encoderblock_0/" in key]:
        both = [arrays.pop(key.replace("_0/", f"_{i}/", 1)) for i in range(2)]
        scanned[key.replace("encoderblock_0", "encoderblock")] = np.stack(both)
    assert scanned and not any(re.search(r"encoderblock_\d", key) for key in arrays)
    assert_equal_weights(model, loaded(tmp_path, {**arrays, **scanned}))
    assert_equal_weights(model, vit_keras.open(tmp_path / "changed.npz"))


def test_bfloat16_arrays_are_read(published, tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    model, arrays = published
    halves = {key: value.astype(ml_dtypes.bfloat16) for key, value in arrays.items()}
    read = weights_by_path(loaded(tmp_path, halves))
    with np.load(tmp_path / "changed.npz") as file:
        assert file["params/head/bias"].dtype == np.dtype("V2")
    for path, value in weights_by_path(model).items():
        expected = value.astype(ml_dtypes.bfloat16).astype("float32")
        np.testing.assert_array_equal(read[path], expected)


def test_file_without_positions_gets_sin_cos_positions(published, tmp_path):
    _, arrays = published
    del arrays["params/pos_embedding"]
    read = weights_by_path(loaded(tmp_path, arrays))["posembed_input/pos_embedding"]
    np.testing.assert_array_equal(read[:, 0], np.zeros((1, 24)))
    for row in range(2):
        for column in range(2):
            token = read[0, 1 + 2 * row + column]
            for k in range(6):
                angle = np.array([column, row]) / 10_000 ** (k / 5)
                x_y = np.concatenate([np.sin(angle), np.cos(angle)])
                assert_close(token[[k, 12 + k, 6 + k, 18 + k]], x_y, rtol=1e-6)
    with pytest.raises(ValueError, match="do not say `image_size`"):
        vit_keras.open(tmp_path / "changed.npz")
    with pytest.raises(ValueError, match=r"4 must divide `hidden_size`.*hidden_size=6"):
        sincos_2d(2, 2, 6)


@pytest.mark.parametrize("classifier", ["token", "gap", "map"])
def test_fixed_positions_are_written_as_none(rng, tmp_path, classifier):
    model = build(rng, **TANH, position_embedding="sincos2d", classifier=classifier)
    weights.save(model, tmp_path / "a.npz", format="big_vision")
    with np.load(tmp_path / "a.npz") as file:
        assert not [name for name in file if "pos_embedding" in name]
    size = model.input_shape[1:3]
    opened = vit_keras.open(tmp_path / "a.npz", image_size=size)
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    expected = model.predict_on_batch(images)
    assert_close(opened.predict_on_batch(images), expected)
    again = weights.load(
        build(rng, **TANH, position_embedding="sincos2d", classifier=classifier), tmp_path / "a.npz"
    )
    assert_equal_weights(model, again)


def test_positions_of_patches_alone_are_those_of_pool_type_tok(rng, tmp_path):
    """big_vision adds positions to the patches, and the class token comes before them."""
    model = build(rng, **TANH, position_cover="patches")
    weights.save(model, tmp_path / "a.npz", format="big_vision")
    with np.load(tmp_path / "a.npz") as file:
        positions, cls = file["params/pos_embedding"], file["params/cls"]
    np.testing.assert_array_equal(positions, weights_by_path(model)["posembed_input/pos_embedding"])
    np.testing.assert_array_equal(cls, weights_by_path(model)["cls/cls"])
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    opened = vit_keras.open(tmp_path / "a.npz")
    answers = opened.predict_on_batch(images)
    assert_close(answers, model.predict_on_batch(images))
