"""Models rewritten for inference return the numbers of the models that they were made from."""

import json

import keras
import numpy as np
import pytest

from tests.designs import DESIGNS, images_for, random_design
from tests.exporting.builds import check_graph, export_files
from tests.helpers import assert_close, randomize, to_numpy
from tests.reference import softmax
from vit_keras import inspection, runtimes
from vit_keras.exporting import for_inference, serving
from vit_keras.exporting.targets import _torch_program, coreml_program, with_folded_constants
from vit_keras.models import HybridViT, VisionTransformer

WIDTHS = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
ROLLOUTS = {
    "CLIP": {},
    "mixed rotary": {"position_embedding": "relative", "rope": None},  # without a class token
    "SigLIP": {},
    "BEiT": {},
    "DINOv3": {},
}


@pytest.mark.nightly_on("jax")  # which writes no files
@pytest.mark.parametrize("name", DESIGNS)
def test_logits_stay_the_same(name):
    model = random_design(name)
    images = images_for(model)
    expected = to_numpy(model(images))
    assert np.abs(expected).max() > 0.3  # far from the zeros of an untrained head
    rewritten = for_inference(model)
    assert_close(rewritten(images), expected)
    np.testing.assert_array_equal(to_numpy(model(images)), expected)


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", [*ROLLOUTS, "hybrid"])
def test_the_rollout_is_an_output(rng, name):
    if name == "hybrid":
        model = randomize(HybridViT(64, (1, 1), 0.5, 1, **WIDTHS), rng)
    else:
        model = random_design(name, **ROLLOUTS[name])
    images = images_for(model)
    logits, attention = for_inference(model, with_attention=True).predict_on_batch(images)
    assert_close(logits, model.predict_on_batch(images))
    assert_close(attention, inspection.attention_views(model, images).rollout)


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", ["CLIP", "SigLIP", "DINOv3"])
def test_core_ml_gets_the_same_numbers_by_operations_that_it_knows(name):
    """coremltools 9 reads `mul` and not NumPy's `multiply`, which is the same operation."""
    import torch

    model = random_design(name)
    images = images_for(model)
    program = coreml_program(for_inference(model), len(images))
    outputs = program.module()(torch.from_numpy(images)).detach().numpy()
    assert_close(outputs, model.predict_on_batch(images))
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    names = {target.split(".")[1] for target in calls if target.startswith("aten")}
    assert "add" in names and not names & {"multiply", "subtract", "divide", "alias"}


@pytest.mark.on("torch")
def test_executorch_gets_products_with_stored_matrices():
    """XNNPACK takes these alone."""
    import torch

    model = random_design("SigLIP")
    images = images_for(model, 1)
    module = with_folded_constants(_torch_program(for_inference(model), 1))
    assert_close(module(torch.from_numpy(images)).detach().numpy(), model.predict_on_batch(images))
    products = module.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    stored = [[source.op for source in node.all_input_nodes].count("get_attr") for node in products]
    assert len(stored) > 8 and {*stored} == {2}  # a matrix and a bias


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
def test_merged_pairs_become_their_weighted_mean(rng, tokens, class_token):
    x, metric = rng.normal(size=(2, 3, tokens, 4)).astype("float32")
    size = rng.integers(1, 5, (3, tokens, 1)).astype("float32")
    tensors = map(keras.ops.convert_to_tensor, (x, size, metric))
    merged, sizes = map(to_numpy, serving.merge(*tensors, 3, class_token))
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
    model = randomize(VisionTransformer(16, 4, **WIDTHS, classifier=classifier), rng)
    positions = model.get_layer("posembed_input").pos_embedding
    positions.assign(np.broadcast_to(rng.normal(size=(1, 1, 12)), positions.shape))
    images = np.tile(rng.normal(size=(2, 4, 4, 3)).astype("float32"), (1, 4, 4, 1))
    assert_close(for_inference(model, 2, kind)(images), model(images))


@pytest.mark.nightly
@pytest.mark.once
def test_files_merge_as_keras_does(rng, tmp_path):
    model = randomize(VisionTransformer(16, 4, **WIDTHS), rng)
    images = rng.integers(0, 256, (6, 16, 16, 3), dtype="uint8")
    prepared = (images / 127.5 - 1).astype("float32")
    expected = softmax(for_inference(model, 3).predict_on_batch(prepared))
    rows = export_files(model, tmp_path, images, token_merging=3)
    for row in rows:
        outputs = runtimes.open(tmp_path / row["file"])(images)
        assert_close(outputs, expected, rtol=1e-5, name=row["file"])
    check_graph(tmp_path / "model.tflite")
    whole = softmax(model.predict_on_batch(prepared))
    agreement = (whole.argmax(axis=-1) == expected.argmax(axis=-1)).mean()
    reference = json.loads((tmp_path / "manifest.json").read_text())["reference"]
    assert reference["without_merging"]["agreement"] == agreement
    assert np.abs(whole - expected).max() > 1e-3  # otherwise nothing was merged
