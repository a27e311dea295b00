"""A model for inference returns the numbers of the model that it was made from."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize
from vit_keras.exporting import for_inference
from vit_keras.exporting.targets import _torch_program, coreml_program, with_folded_constants
from vit_keras.models import VisionTransformer

SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


@pytest.mark.nightly_on("jax")  # which writes no files
@pytest.mark.parametrize("gelu", ["exact", "tanh"])
@pytest.mark.parametrize("classifier", ["token", "gap", "map", "gap_norm"])
def test_logits_stay_the_same(rng, classifier, gelu):
    arguments = {"classifier": classifier, "gelu": gelu, "layer_norm_epsilon": 1e-3}
    model = randomize(VisionTransformer((8, 12), 4, **SIZES, **arguments), rng)
    images = rng.normal(size=(3, 8, 12, 3)).astype("float32")
    expected = model.predict_on_batch(images)
    rewritten = for_inference(model)
    assert_close(rewritten.predict_on_batch(images), expected)
    np.testing.assert_array_equal(model.predict_on_batch(images), expected)
    last = rewritten.get_layer("encoderblock_1")
    assert last.output.shape[1] == (1 if classifier == "token" else 6)


def test_mixed_precision_becomes_float32(rng):
    single = VisionTransformer(8, 4, **SIZES, seed=1)
    half = VisionTransformer(8, 4, **SIZES, seed=1, dtype="mixed_bfloat16")
    randomize(single, rng)
    half.set_weights(single.get_weights())
    images = rng.normal(size=(3, 8, 8, 3)).astype("float32")
    expected = single.predict(images, verbose=0)
    assert_close(for_inference(half).predict_on_batch(images), expected, rtol=2e-6)


@pytest.mark.on("torch")
@pytest.mark.parametrize("options", [{}, {"classifier": "map"}, {"mlp": "swiglu", "gelu": "quick"}])
def test_core_ml_gets_the_same_numbers_by_operations_that_it_knows(rng, options):
    """coremltools 9 reads `mul` and not NumPy's `multiply`, which is the same operation."""
    model = randomize(VisionTransformer((8, 12), 4, **SIZES, **options), rng)
    images = rng.normal(size=(3, 8, 12, 3)).astype("float32")
    program = coreml_program(for_inference(model), 3)
    import torch

    outputs = program.module()(torch.from_numpy(images)).detach().numpy()
    assert_close(outputs, model.predict_on_batch(images))
    names = {
        str(node.target).split(".")[1]
        for node in program.graph.nodes
        if node.op == "call_function" and str(node.target).startswith("aten")
    }
    assert "add" in names and not names & {"multiply", "subtract", "divide", "alias"}


@pytest.mark.on("torch")
@pytest.mark.parametrize("options", [{}, {"classifier": "map"}])
def test_executorch_gets_products_with_stored_matrices(rng, options):
    """XNNPACK takes these alone."""
    import torch

    model = randomize(VisionTransformer((8, 12), 4, **SIZES, **options), rng)
    images = rng.normal(size=(1, 8, 12, 3)).astype("float32")
    module = with_folded_constants(_torch_program(for_inference(model), 1))
    assert_close(module(torch.from_numpy(images)).detach().numpy(), model.predict_on_batch(images))
    products = module.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
    stored = [[source.op for source in node.all_input_nodes].count("get_attr") for node in products]
    assert len(stored) > 8 and {*stored} == {2}  # a matrix and a bias
