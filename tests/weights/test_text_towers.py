"""Text towers give what transformers and OpenCLIP compute, and go back to transformers."""

import json
import warnings

import keras
import numpy as np
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, to_numpy
from tests.weights.builds import arrays_of, assert_equal_weights, channels_first
from tests.weights.open_clip_models import two_towers, written
from tests.weights.transformers_models import build_theirs, open_strictly, patches_of
from vit_keras import exporting, weights

torch = pytest.importorskip("torch")

FOLDERS = sorted(folder.name for folder in (GOLDEN / "words").iterdir())


@pytest.mark.parametrize("name", FOLDERS)
def test_golden_towers_are_computed_saved_and_loaded(tmp_path, name):
    folder = GOLDEN / "words" / name
    io = arrays_of(folder / "io.npz")
    masks = [io["attention_mask"]] if "attention_mask" in io else []
    towers = weights.image_text(folder, attention_mask=bool(masks))
    ids = [io["input_ids"], *masks] if masks else io["input_ids"]
    assert_close(towers.image(io["images"]), io["image_embeds"], name="images")
    assert_close(towers.logits(io["images"], ids), io["logits_per_image"], name="logits")
    normalized = towers.text.get_layer("encoder_norm").output
    outputs = keras.Model(towers.text.input, [towers.text.output, normalized])(ids)
    assert_close(outputs[0], io["text_embeds"], name="texts")
    assert_close(outputs[1], io["text_tokens"], name="tokens")
    text = weights.image_text(folder).text  # without masks, which do not concern these texts
    text.save(tmp_path / "text.keras")
    again = keras.saving.load_model(tmp_path / "text.keras")
    assert_close(again(io["input_ids"]), io["text_embeds"], name="loaded")


TEXT = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2}
TEXT |= {"num_attention_heads": 2, "max_position_embeddings": 9}
VISION = {**TEXT, "hidden_size": 12, "num_attention_heads": 3, "image_size": 16, "patch_size": 8}
SIGLIP2 = {"image_size": None, "num_patches": 4}
CASES = {
    "largest": ("CLIP", {"eos_token_id": 2, "hidden_act": "gelu"}, {}, {"projection_dim": 7}),
    "first end": (
        *("CLIP", {"eos_token_id": 5, "layer_norm_eps": 1e-3, "num_attention_heads": 4}, {}),
        {"projection_dim": 20},
    ),
    "worldwide": ("MetaClip2", {"eos_token_id": 2}, {"hidden_act": "gelu"}, {"projection_dim": 5}),
    "siglip": ("Siglip", {"projection_size": 12, "hidden_act": "gelu"}, {}, {}),
    "siglip 2": ("Siglip2", {"projection_size": 12, "layer_norm_eps": 1e-2}, SIGLIP2, {}),
}


def build(kind, text, vision, fields):
    """Two towers of transformers with random weights."""
    vision = {k: v for k, v in {**VISION, **vision}.items() if v is not None}
    towers = {"text_config": {**TEXT, **text}, "vision_config": vision}
    model = build_theirs(f"{kind}Model", f"{kind}Config", **towers, **fields)
    model.logit_scale.data.fill_(0.7)
    return model


def logits(model, images, ids, mask):
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    naflex = type(model).__name__ == "Siglip2Model"
    inputs = patches_of(pixels, model.config) if naflex else {"pixel_values": pixels}
    with torch.no_grad():
        mask = None if mask is None else torch.from_numpy(mask)
        output = model(input_ids=torch.from_numpy(ids), attention_mask=mask, **inputs)
    return output.logits_per_image.numpy()


@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
def test_towers_equal_transformers_and_go_back(rng, tmp_path, case):
    kind, *fields = CASES[case]
    theirs = build(kind, *fields)
    theirs.save_pretrained(tmp_path / "theirs")
    plain, masked = (weights.image_text(tmp_path / "theirs", attention_mask=x) for x in (0, 1))
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    ids = rng.integers(6, 29, (4, 7))  # shorter than the context
    ids[:, 4] = fields[0].get("eos_token_id", 3)
    ids[0, 5:] = 29 if case == "largest" else ids[0, 4]  # of several end tokens, the first
    mask = np.ones_like(ids)
    mask[1, 5:], mask[2, 2], mask[3, :2] = 0, 0, 0
    assert_close(plain.logits(images, ids), logits(theirs, images, ids, None), rtol=1e-5)
    expected = logits(theirs, images, ids, mask)
    assert_close(masked.logits(images, [ids, mask]), expected, rtol=1e-5, name="masked")

    weights.save(plain, tmp_path / "ours", format="huggingface")
    back = open_strictly(tmp_path / "ours", f"{kind}Model")
    assert_close(logits(back, images, ids, mask), expected, rtol=2e-6)
    again = weights.image_text(tmp_path / "ours")
    assert_equal_weights(again.text, plain.text)
    assert_equal_weights(again.image, plain.image)
    assert (again.logit_scale, again.logit_bias) == (plain.logit_scale, plain.logit_bias)


COMPUTED = {"norm_kwargs": {"eps": 1e-3}, "act_kwargs": {"approximate": "tanh"}}
OTHERS = {
    "argmax": ({}, {}, {"quick_gelu": True}),
    "eos": ({"pool_type": "eos", "eos_id": 5, "mlp_ratio": 3.0}, {}, {"embed_dim": 5}),
    "first": (
        {"pool_type": "first", "no_causal_mask": True, "ls_init_value": 0.1, "qk_norm": True},
        *({}, {"init_logit_bias": -3.0, "nonscalar_logit_scale": True}),
    ),
    "last": (
        {"pool_type": "last", "no_causal_mask": True, "proj_bias": True, **COMPUTED},
        *({}, {"custom": True, "init_logit_bias": -3.0}),
    ),
    "no projection": ({"proj_type": "none"}, {}, {"embed_dim": 16}),
}


def open_clip_logits(model, images, ids):
    with torch.no_grad():
        return model.get_logits(channels_first(images), torch.from_numpy(ids))[0].numpy()


@pytest.mark.once
@pytest.mark.parametrize("case", OTHERS)
def test_towers_equal_open_clip(rng, tmp_path, case):
    text, *others = OTHERS[case]
    theirs, config = two_towers(*others, text)
    written(tmp_path, theirs, config)
    towers = weights.image_text(tmp_path)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    ids = rng.integers(6, 29, (3, 9))
    ids[:, 5] = 5 if case == "eos" else 29
    assert_close(towers.logits(images, ids), open_clip_logits(theirs, images, ids), rtol=1e-5)
    if case in ("argmax", "eos"):
        weights.save(towers, tmp_path / "hf", format="huggingface")
        back = open_strictly(tmp_path / "hf", "CLIPModel")
        assert_close(logits(back, images, ids, None), towers.logits(images, ids), rtol=1e-5)
    else:
        with pytest.raises(ValueError, match="transformers has no class for these two towers"):
            weights.save(towers, tmp_path / "hf", format="huggingface")


@pytest.mark.once
def test_openais_state_dict_has_both_towers_heads_of_64_and_the_quick_gelu(rng, tmp_path):
    vision, text = {"width": 128, "head_width": 64}, {"width": 128, "heads": 2}
    theirs, _ = two_towers(vision, {"quick_gelu": True}, text)
    sizes = {"input_resolution": 16, "context_length": 9, "vocab_size": 30}
    sizes = {name: torch.tensor(size) for name, size in sizes.items()}
    torch.save({**theirs.state_dict(), **sizes}, tmp_path / "ViT-B-32.pt")
    with pytest.warns(UserWarning, match="is read as OpenAI's.*quick GELU.*gelu='exact'"):
        towers = weights.image_text(tmp_path / "ViT-B-32.pt")
    images, ids = rng.normal(size=(2, 16, 16, 3)).astype("float32"), rng.integers(0, 30, (3, 9))
    assert_close(towers.logits(images, ids), open_clip_logits(theirs, images, ids), rtol=1e-5)
    with warnings.catch_warnings(action="error", category=UserWarning):
        exact = vit_keras.open(tmp_path / "ViT-B-32.pt", gelu="exact")
    assert np.abs(to_numpy(exact(images)) - to_numpy(towers.image(images))).max() > 1e-3


BOTH = "must hold both towers of"


def without(part):
    return lambda tensors: {name: x for name, x in tensors.items() if part not in name}


# Fields of the configuration, or a change of the tensors, and a part of the message.
CHANGES = [
    ({"model_type": "chinese_clip"}, "one of 'clip', .* model_type='chinese_clip'"),
    ({"text_config": {"vocab_size": 61}}, "vocab_size is 61 in config.json, 60 in the"),
    (without("text_p"), "projection_dim is 20 in config.json, None"),
    (lambda x: {**x, "logit_scale": np.ones(2)}, "must be one number"),
    (without("text"), BOTH),
]


@pytest.mark.once
@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_towers_are_read_whole_or_refused(tmp_path, change, message):
    from safetensors.numpy import save_file

    tensors = arrays_of(GOLDEN / "words/hf_clip/model.safetensors")
    content = json.loads((GOLDEN / "words/hf_clip/config.json").read_text())
    for name, value in ({} if callable(change) else change).items():
        content[name] = {**content[name], **value} if isinstance(value, dict) else value
    save_file(change(tensors) if callable(change) else tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message):
        weights.image_text(tmp_path)


@pytest.mark.on("tensorflow")
def test_text_towers_are_exported_by_keras_for_texts_of_any_length(tmp_path):
    tensorflow = pytest.importorskip("tensorflow")
    text = weights.image_text(GOLDEN / "words/hf_clip_eos").text
    text.export(tmp_path / "saved", format="tf_saved_model", verbose=False)
    loaded, ids = tensorflow.saved_model.load(str(tmp_path / "saved")), np.array([[1, 5, 59]] * 2)
    assert_close(loaded.serve(ids.astype("int32")), text(ids))
    with pytest.raises(ValueError, match=r"must take images .*Export a text tower or an OWL-ViT"):
        exporting.export(text, tmp_path / "files")
