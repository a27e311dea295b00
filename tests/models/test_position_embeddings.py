"""Each kind and placement of position embeddings equals loops in NumPy."""

import numpy as np
import pytest

import vit_keras
from tests import reference
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras import weights
from vit_keras.models import VisionTransformer, attention_maps, positions_of, with_image_size
from vit_keras.support.resizing import resize_position_embeddings

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
GRID = (3, 2)  # of 12x8 images in patches of 4
CASES = [
    ("none", "stem", "gap"),
    ("learned", "every", "token"),
    ("learned", "shared", "gap"),
    ("learned_2d", "stem", "token"),
    ("learned_2d", "every", "gap"),
    ("sincos2d", "stem", "token"),
    ("relative", "stem", "map"),
    ("rope2d", "stem", "token"),
]
every_case = pytest.mark.parametrize("case", CASES, ids="-".join)


def build(rng, kind, place, classifier, image_size=(12, 8), **changes):
    chosen = {"position_embedding": kind, "position_embedding_at": place, "classifier": classifier}
    model = VisionTransformer(image_size, 4, **{**SIZES, **chosen, **changes}, name="placed")
    return randomize(model, rng, scale=0.15)


def images_of(rng, size=(12, 8)):
    return rng.uniform(-1, 1, (2, *size, 3)).astype("float32")


def tables(arrays, kind, place, classifier, grid=GRID):
    """Returns what is added before each block, by the block's number, from Appendix D.4."""
    token = classifier == "token"
    names = {
        "stem": {0: "posembed_input"},
        "every": {0: "posembed_0", 1: "posembed_1"},
        "shared": {0: "posembed_shared", 1: "posembed_shared"},
    }[place]
    if kind == "learned":
        return {i: arrays[f"{name}/pos_embedding"] for i, name in names.items()}
    if kind == "learned_2d":
        parts = ("x_embedding", "y_embedding", "cls_embedding")[: 2 + token]
        return {
            i: reference.columns_and_rows(grid, *(arrays[f"{name}/{part}"] for part in parts))
            for i, name in names.items()
        }
    return dict.fromkeys(names, reference.sincos(grid, 24, token)) if kind == "sincos2d" else {}


def expected_of(model, images, kind, place, classifier, grid=GRID):
    arrays = {name: value.astype("float64") for name, value in weights_by_path(model).items()}
    turn = lambda x: reference.rotary(x, grid, classifier == "token")
    return reference.forward(
        images,
        arrays,
        num_layers=2,
        classifier=classifier,
        added=tables(arrays, kind, place, classifier, grid),
        **({"turn": turn} if kind == "rope2d" else {}),
    )


@every_case
def test_logits_and_attention_equal_the_formulas(rng, case):
    model, images = build(rng, *case), images_of(rng)
    expected = expected_of(model, images, *case)
    assert_close(model(images), expected["logits"])
    maps = to_numpy(attention_maps(model)(images))
    assert_close(maps, expected["attention"])
    assert positions_of(model) == case[:2]


def test_a_file_of_weights_alone_does_not_state_positions(rng, tmp_path):
    weights.save(build(rng, "learned_2d", "every", "gap"), tmp_path / "model.weights.h5")
    with pytest.raises(ValueError, match=r"does not state which position embeddings"):
        vit_keras.open(tmp_path / "model.weights.h5")


@pytest.mark.parametrize("case", [CASES[i] for i in (1, 2, 4, 5, 7)], ids="-".join)
def test_another_image_size_moves_positions_with_the_grid(rng, case):
    model, images = build(rng, *case), images_of(rng, (16, 20))
    resized = with_image_size(model, (16, 20))
    old, new = (
        tables(weights_by_path(m), *case, grid) for m, grid in ((model, GRID), (resized, (4, 5)))
    )
    for i in old if case[0] != "sincos2d" else ():  # each axis by itself is both at once
        whole = old[i].reshape(1, -1, 24)
        whole = resize_position_embeddings(whole, GRID, (4, 5))
        assert_close(new[i].reshape(whole.shape), whole, rtol=2e-6)
    expected = expected_of(resized, images, *case, grid=(4, 5))["logits"]
    assert_close(resized(images), expected)
    kept = weights_by_path(resized)
    for name, value in weights_by_path(model).items():
        if not name.startswith("posembed") or "cls_embedding" in name:
            np.testing.assert_array_equal(kept[name], value, err_msg=name)
