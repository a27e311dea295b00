"""The second output: attention rollout in the exported graph, beside the one of `inspection`."""

import numpy as np
import pytest

from tests.exporting.builds import files
from tests.helpers import randomise
from vit_keras import exporting, inspection
from vit_keras.exporting import for_inference
from vit_keras.models import HybridViT, ResNet, VisionTransformer, patch_grid
from vit_keras.runtimes import litert_interpreter

SIZES = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def rollout(model, images):
    return inspection.attention_views(model, images).rollout


@pytest.mark.parametrize(
    "given",
    [{}, {"classifier": "gap"}, {"classifier": "map"}, {"position_embedding": "relative"}],
    ids=str,
)
def test_the_rollout_is_that_of_the_whole_model(rng, given):
    model = randomise(VisionTransformer((8, 12), 4, **SIZES, **given), rng)
    images = rng.normal(size=(3, 8, 12, 3)).astype("float32")
    logits, found = for_inference(model, with_attention=True).predict_on_batch(images)
    np.testing.assert_allclose(logits, model.predict_on_batch(images), atol=2e-5)
    assert found.shape == (3, *patch_grid(model))
    np.testing.assert_allclose(found, rollout(model, images), atol=1e-6)


def test_a_hybrid_shows_its_grid(rng):
    model = randomise(HybridViT(64, (1, 1), 0.5, 1, **SIZES), rng)
    images = rng.normal(size=(2, 64, 64, 3)).astype("float32")
    _, found = for_inference(model, with_attention=True).predict_on_batch(images)
    np.testing.assert_allclose(found, rollout(model, images), atol=1e-6)


@pytest.mark.once
def test_files_have_it_beside_the_answer(rng, tmp_path):
    import onnxruntime
    import tensorflow as tf

    model = randomise(VisionTransformer((8, 12), 4, **SIZES), rng)
    images = rng.integers(0, 256, (2, 8, 12, 3), dtype="uint8")
    rows = files(model, tmp_path / "out", images, attention=True)
    expected = rollout(model, (images / 127.5 - 1).astype("float32"))
    assert {row["format"] for row in rows} == {"savedmodel", "litert", "onnx"}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    found = session.run(None, {session.get_inputs()[0].name: images})
    np.testing.assert_allclose(found[1], expected, atol=1e-5)
    served = tf.saved_model.load(tmp_path / "out" / "saved_model").signatures["serving_default"]
    found = served(images=tf.constant(images))
    np.testing.assert_allclose(found["output_1"], expected, atol=1e-5)
    phone = litert_interpreter(tmp_path / "out" / "model.tflite")
    phone.set_tensor(phone.get_input_details()[0]["index"], images[:1])
    phone.invoke()
    outputs = [phone.get_tensor(output["index"]) for output in phone.get_output_details()]
    attention = {output.ndim: output for output in outputs}[3]
    np.testing.assert_allclose(attention, expected[:1], atol=1e-5)


@pytest.mark.once
def test_what_has_no_attention_is_refused(rng, tmp_path):
    with pytest.raises(ValueError, match="Attention is that of EncoderBlock layers"):
        exporting.export(ResNet(32, (1,), 0.5, 5), tmp_path / "out", attention=True)
    model = VisionTransformer(8, 4, **SIZES)
    with pytest.raises(ValueError, match=r"with token merging or with attention.*r=1"):
        exporting.export(model, tmp_path / "out", attention=True, token_merging=1)
    with pytest.raises(ValueError, match="pt2 is made without attention; savedmodel, litert, onnx"):
        exporting.export(model, tmp_path / "out", attention=True, formats=["pt2"])
