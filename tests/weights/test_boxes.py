"""YOLOS and OWL-ViT give what transformers computes, at other sizes too, and go back to it."""

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close
from tests.weights.builds import arrays_of, channels_first
from tests.weights.transformers_models import WITH_MLP, build_theirs, open_strictly, tower
from vit_keras import models, weights
from vit_keras.models import VisionTransformer

FOLDERS = sorted(folder.name for folder in (GOLDEN / "boxes").glob("hf_*"))
YOLOS = {**WITH_MLP, "image_size": [16, 24], "num_detection_tokens": 5}
STEM = {"use_mid_position_embeddings": False, "qkv_bias": False, "image_size": [19, 30]}
MODELS = {  # class and fields
    "yolos": ("YolosForObjectDetection", YOLOS),
    "yolos stem": ("YolosForObjectDetection", {**YOLOS, **STEM}),
    "yolos pooler": ("YolosModel", YOLOS),
    "owlvit": ("OwlViTForObjectDetection", {**tower(hidden_act="gelu"), "projection_dim": 8}),
    "owlv2": (
        "Owlv2ForObjectDetection",
        {**tower(image_size=18, layer_norm_eps=1e-2), "projection_dim": 8},
    ),
}
torch_only = pytest.mark.on("torch")


def theirs_of(model, images):
    """The outputs of a model of transformers by our names, and its embeddings of three texts."""
    import torch

    arguments = {"pixel_values": channels_first(images)}
    if is_owl := type(model).__name__.startswith("Owl"):
        arguments["input_ids"] = torch.tensor([[3, 5, 9], [2, 9, 0], [7, 1, 9]])
        arguments["interpolate_pos_encoding"] = True
    with torch.no_grad():
        outputs = model(**arguments)
    if (pooled := outputs.get("pooler_output")) is not None:
        return {"pooled": pooled}, None
    names = {"logits": "logits", "pred_boxes": "boxes", "objectness_logits": "objectness"}
    arrays = {ours: outputs[name] for name, ours in names.items() if name in outputs}
    return arrays, outputs["text_embeds"][0].numpy() if is_owl else None


def assert_same(model, images, expected, rtol=4e-6):
    outputs = model(images)
    outputs = outputs if isinstance(outputs, dict) else {"pooled": outputs}
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        assert_close(outputs[name], array, rtol, name)


@pytest.mark.parametrize("name", FOLDERS)
def test_golden_folders_give_what_transformers_computes(name, tmp_path):
    model = vit_keras.open(GOLDEN / "boxes" / name)
    io = arrays_of(GOLDEN / "boxes" / name / "io.npz")
    if "text_embeds" in io:
        assert_close(model(io["images"])["embeddings"], io["class_embeds"])
        texts = weights.TextEmbeddings(("cat", "dog", "owl"), io["text_embeds"][0], scale=1.0)
        weights.write_text_embeddings(tmp_path / "texts.npz", texts)
        model = weights.with_text_head(model, tmp_path / "texts.npz")
    names = [key for key in ("logits", "boxes", "objectness") if key in io]
    assert_same(model, io["images"], {key: io[key] for key in names})
    if keras.backend.backend() != "torch":
        return  # positions are resized in NumPy
    weights.save_model(model, tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert_close(again.predict(io["images"], verbose=0)["boxes"], io["boxes"])
    if "images_resized" in io:
        again = models.with_image_size(again, io["images_resized"].shape[1:3])
        assert_same(again, io["images_resized"], {key: io[f"{key}_resized"] for key in names})


@torch_only
@pytest.mark.parametrize("name", MODELS)
def test_live_models_give_the_same_at_two_sizes(rng, tmp_path, name):
    theirs = build_theirs(MODELS[name][0], **MODELS[name][1])
    theirs.save_pretrained(tmp_path / "theirs")
    ours = vit_keras.open(tmp_path / "theirs")
    for size in (ours.input_shape[1:3], (32, 24)):
        images = rng.normal(size=(1, *size, 3)).astype("float32")
        model, (expected, texts) = ours, theirs_of(theirs, images)
        if size != ours.input_shape[1:3]:
            model = vit_keras.open(tmp_path / "theirs", image_size=size)
        if texts is not None:
            model = models.head_from_text(model, texts, scale=1.0)
        assert_same(model, images, expected)
    if texts is not None:
        with pytest.raises(ValueError, match="classifier='token', num_classes=8"):
            weights.save(ours, tmp_path / "ours", format="huggingface")
        return
    weights.save(ours, tmp_path / "ours", format="huggingface")
    again = open_strictly(tmp_path / "ours", MODELS[name][0])
    state = again.state_dict()
    assert all((state[key] == value).all() for key, value in theirs.state_dict().items())
    images = rng.normal(size=(1, *ours.input_shape[1:3], 3)).astype("float32")
    assert_same(ours, images, theirs_of(again, images)[0])


@torch_only
def test_names_and_new_classes(rng, tmp_path):
    theirs = build_theirs(MODELS["yolos"][0], **YOLOS)
    theirs.config.id2label = {i: f"thing {i}" for i in range(5)}
    theirs.save_pretrained(tmp_path)
    ours = vit_keras.open(tmp_path)
    assert ours.class_names == tuple(theirs.config.id2label.values())
    ours.save(tmp_path / "model.keras")
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    for path in (tmp_path, tmp_path / "model.keras"):
        other = vit_keras.open(path, num_classes=2)(images)
        assert_close(other["boxes"], ours(images)["boxes"])
        assert_close(other["logits"], np.zeros((2, 5, 3)), floor=1.0)
        features = vit_keras.open(path, num_classes=None)(images)
        tokens = keras.Model(ours.input, ours.get_layer("encoder_norm").output)
        assert_close(features, tokens(images)[:, 0])  # the class token


@torch_only
def test_what_transformers_cannot_compute_is_refused(rng, tmp_path):
    sizes = {"num_classes": 3, "boxes": "tokens", "num_registers": 2}
    build = lambda size, patch, depth=2, **changes: VisionTransformer(
        size, patch, 24, depth, 3, 40, **{**sizes, **changes}
    )
    cropped = build(18, 4, crop_to_patches=True, position_embedding_at="every")
    cases = (
        (build(16, (4, 8)), "huggingface", r"patch_size is \(4, 4\) in"),
        (cropped, "huggingface", "position_embedding_at='stem'"),
        (build(16, 4, boxes=None), "huggingface", "only the classes YolosModel, .*, boxes=None"),
        (
            build(16, 4, boxes=None, num_registers=0, position_embedding_at="every"),
            "huggingface",
            "'yolos' has only the classes YolosModel, Yol",
        ),
        (build(16, 4), "timm", "boxes='tokens'"),
    )
    for model, project, message in cases:
        with pytest.raises(ValueError, match=message):
            weights.save(model, tmp_path / "model", format=project)
