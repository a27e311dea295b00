"""Attention rollout as a second output of the graph, compared with `inspection`'s."""

import pytest

from tests.exporting.builds import export_files
from tests.helpers import assert_close, randomize
from vit_keras import inspection
from vit_keras.exporting import for_inference
from vit_keras.models import HybridViT, VisionTransformer, patch_grid
from vit_keras.runtimes import litert_interpreter

SIZES = {"hidden_size": 12, "num_layers": 3, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}


def rollout(model, images):
    return inspection.attention_views(model, images).rollout


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"classifier": "gap"}, {"classifier": "map"}, {"position_embedding": "relative"}],
    ids=str,
)
def test_the_rollout_equals_the_whole_models(rng, arguments):
    model = randomize(VisionTransformer((8, 12), 4, **SIZES, **arguments), rng)
    images = rng.normal(size=(3, 8, 12, 3)).astype("float32")
    logits, attention = for_inference(model, with_attention=True).predict_on_batch(images)
    assert_close(logits, model.predict_on_batch(images))
    assert attention.shape == (3, *patch_grid(model))
    assert_close(attention, rollout(model, images))


@pytest.mark.on("torch")
def test_a_hybrids_rollout_has_its_grid(rng):
    model = randomize(HybridViT(64, (1, 1), 0.5, 1, **SIZES), rng)
    images = rng.normal(size=(2, 64, 64, 3)).astype("float32")
    _, attention = for_inference(model, with_attention=True).predict_on_batch(images)
    assert_close(attention, rollout(model, images))


@pytest.mark.once
def test_exported_files_have_attention_as_second_output(rng, tmp_path):
    import onnxruntime
    import tensorflow as tf

    model = randomize(VisionTransformer((8, 12), 4, **SIZES), rng)
    images = rng.integers(0, 256, (2, 8, 12, 3), dtype="uint8")
    rows = export_files(model, tmp_path / "out", images, attention=True)
    expected = rollout(model, (images / 127.5 - 1).astype("float32"))
    assert {row["format"] for row in rows} == {"savedmodel", "litert", "onnx"}
    session = onnxruntime.InferenceSession(tmp_path / "out" / "model.onnx")
    (source,), targets = session.get_inputs(), session.get_outputs()
    assert (source.name, source.shape) == ("images", ["batch", 8, 12, 3])
    shapes = {target.name: target.shape for target in targets}
    assert shapes == {"output": ["batch", 5], "attention": ["batch", *patch_grid(model)]}
    (attention,) = session.run(["attention"], {"images": images})
    assert_close(attention, expected, rtol=1e-5)
    served = tf.saved_model.load(tmp_path / "out" / "saved_model").signatures["serving_default"]
    outputs = served(images=tf.constant(images))
    assert_close(outputs["output_1"], expected, rtol=1e-5)
    phone = litert_interpreter(tmp_path / "out" / "model.tflite")
    phone.set_tensor(phone.get_input_details()[0]["index"], images[:1])
    phone.invoke()
    outputs = [phone.get_tensor(output["index"]) for output in phone.get_output_details()]
    attention = {output.ndim: output for output in outputs}[3]
    assert_close(attention, expected[:1], rtol=1e-5)
