"""Token merging against a loop in NumPy, and inside whole models."""

import json

import keras
import numpy as np
import pytest

from tests.exporting.builds import export_files
from tests.exporting.test_design_exports import check_graph
from tests.helpers import assert_close, randomize, to_numpy
from tests.reference import softmax
from vit_keras import runtimes
from vit_keras.exporting import for_inference, token_merging
from vit_keras.models import VisionTransformer

SIZES = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def merge_by_hand(x, size, metric, merged, class_token):
    """Merges one image's tokens `(N, D)` of sizes `(N,)` pair by pair; returns both."""
    unit = metric / np.linalg.norm(metric, axis=1, keepdims=True)
    evens, odds = range(0, len(x), 2), range(1, len(x), 2)
    best = {i: max((unit[i] @ unit[j], -j) for j in odds) for i in evens}
    if class_token:
        best[0] = (-np.inf, 0)
    gone = sorted(evens, key=lambda i: -best[i][0])[:merged]
    kept = [i for i in sorted(evens, key=lambda i: best[i][0]) if i not in gone]
    members = {j: [j] for j in odds}
    for i in gone:
        members[-best[i][1]].append(i)
    groups = [[i] for i in kept] + [members[j] for j in odds]
    means = [np.average(x[group], axis=0, weights=size[group]) for group in groups]
    return np.stack(means), np.array([size[group].sum() for group in groups])


@pytest.mark.parametrize(("tokens", "class_token"), [(9, True), (10, False)])
def test_pairs_become_their_weighted_mean(rng, tokens, class_token):
    x, metric = rng.normal(size=(2, 3, tokens, 4)).astype("float32")
    size = rng.integers(1, 5, (3, tokens, 1)).astype("float32")
    tensors = map(keras.ops.convert_to_tensor, (x, size, metric))
    merged, sizes = map(to_numpy, token_merging.merge(*tensors, 3, class_token))
    assert merged.shape == (3, tokens - 3, 4)
    for image in range(3):
        arrays = x[image], size[image, :, 0], metric[image]
        expected, counts = merge_by_hand(*arrays, 3, class_token)
        assert_close(merged[image], expected)
        assert_close(sizes[image, :, 0], counts, rtol=2e-6)
    if class_token:
        assert_close(merged[:, 0], x[:, 0], rtol=2e-6)


@pytest.mark.nightly_on("jax")  # which writes no files
@pytest.mark.parametrize(
    ("classifier", "kind"), [("token", "decreasing"), ("gap", "constant"), ("map", "constant")]
)
def test_merging_equal_tokens_changes_nothing(rng, classifier, kind):
    """Patches are equal and have no positions, so proportional attention undoes the merging."""
    model = randomize(VisionTransformer(16, 4, **SIZES, classifier=classifier), rng)
    positions = model.get_layer("posembed_input").pos_embedding
    positions.assign(np.broadcast_to(rng.normal(size=(1, 1, 12)), positions.shape))
    patch = rng.normal(size=(2, 4, 4, 3)).astype("float32")
    images = np.tile(patch, (1, 4, 4, 1))
    expected = model.predict_on_batch(images)
    outputs = for_inference(model, 2, kind).predict_on_batch(images)
    assert_close(outputs, expected)


@pytest.mark.nightly
@pytest.mark.once
@pytest.mark.parametrize("classifier", ["token", "map"])
def test_files_merge_as_keras_does(rng, tmp_path, classifier):
    model = randomize(VisionTransformer(16, 4, **SIZES, classifier=classifier), rng)
    images = rng.integers(0, 256, (6, 16, 16, 3), dtype="uint8")
    prepared = (images / 127.5 - 1).astype("float32")
    expected = softmax(for_inference(model, 3).predict_on_batch(prepared))
    rows = export_files(model, tmp_path / "out", images, token_merging=3)
    assert {row["format"] for row in rows} == {"savedmodel", "litert", "onnx"}
    for row in rows:
        outputs = runtimes.open(tmp_path / "out" / row["file"])(images)
        assert_close(outputs, expected, rtol=1e-5, name=row["file"])
    check_graph(tmp_path / "out" / "model.tflite")
    (row,) = [row for row in rows if row["format"] == "litert"]
    assert row["left_out"]["intel"] == row["left_out"]["qualcomm"] == {}
    whole = softmax(model.predict_on_batch(prepared))
    agreement = (whole.argmax(axis=-1) == expected.argmax(axis=-1)).mean()
    reference = json.loads((tmp_path / "out" / "manifest.json").read_text())["reference"]
    assert reference["without_merging"]["agreement"] == agreement
    assert np.abs(whole - expected).max() > 1e-3  # otherwise nothing was merged
