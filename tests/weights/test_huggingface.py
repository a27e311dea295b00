"""Folders of Hugging Face against `transformers`, in both directions."""

import json

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights

torch = pytest.importorskip("torch")
transformers = peer("transformers")

CONFIG = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "image_size": 16,
    "patch_size": 8,
}


def build_reference(model_class, seed=0, **changes):
    """Builds a model of transformers with random weights."""
    torch.manual_seed(seed)
    config = transformers.ViTConfig(**{**CONFIG, **changes}, id2label={0: "a", 1: "b", 2: "c"})
    model = model_class(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            center = 1.0 if "layernorm" in name and name.endswith("weight") else 0.0
            parameter.copy_(center + 0.2 * torch.randn_like(parameter))
    return model


def run(model, images, output="logits"):
    with torch.no_grad():
        pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        return getattr(model(pixels), output).numpy()


@pytest.mark.parametrize("change", [{}, {"hidden_act": "gelu_pytorch_tanh"}, {"num_channels": 2}])
def test_folder_of_transformers_gives_its_logits(rng, tmp_path, change):
    theirs = build_reference(transformers.ViTForImageClassification, layer_norm_eps=1e-4, **change)
    theirs.save_pretrained(tmp_path)
    ours = vit_keras.open(tmp_path)
    images = rng.uniform(-1, 1, (3, *ours.input_shape[1:])).astype("float32")
    assert_close(ours(images), run(theirs, images))
    assert ours.get_layer("encoderblock_0").layer_norm_epsilon == 1e-4
    assert ours.class_names == ("a", "b", "c")


def test_images_need_not_be_square(rng, tmp_path):
    theirs = build_reference(transformers.ViTForImageClassification, image_size=[16, 24])
    theirs.save_pretrained(tmp_path)
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    ours = vit_keras.open(tmp_path)
    assert_close(ours(images), run(theirs, images))


def test_pooler_of_a_bare_model_is_pre_logits(rng, tmp_path):
    theirs = build_reference(transformers.ViTModel)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = vit_keras.open(tmp_path / "theirs")
    images = rng.uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    pooled = run(theirs, images, "pooler_output")
    assert_close(ours(images), pooled)
    weights.save(ours, tmp_path / "ours", format="huggingface")
    again = opened_strictly(transformers.ViTModel, tmp_path / "ours")
    assert_close(run(again, images, "pooler_output"), pooled, rtol=2e-6)


def test_mask_token_is_left_out(rng, tmp_path):
    theirs = build_reference(transformers.ViTForMaskedImageModeling)
    state = {f"vit.{k}": v for k, v in theirs.vit.state_dict().items()}
    assert "vit.embeddings.mask_token" in state
    torch.save(state, tmp_path / "pytorch_model.bin")
    ours = weights.load(build(image_size=16, num_classes=None), tmp_path)
    images = rng.uniform(-1, 1, (3, 16, 16, 3)).astype("float32")
    hidden = run(theirs.vit, images, "last_hidden_state")[:, 0]
    assert_close(ours(images), hidden)


def test_names_in_memory_and_names_on_disk_are_one_model(tmp_path):
    theirs = build_reference(transformers.ViTForImageClassification)
    theirs.save_pretrained(tmp_path / "disk")
    torch.save(theirs.state_dict(), tmp_path / "memory.pth")
    disk = vit_keras.open(tmp_path / "disk")
    memory = vit_keras.open(tmp_path / "memory.pth", num_heads=3)
    assert_equal_weights(disk, memory)
    assert "vit.layers.0.attention.q_proj.weight" in theirs.state_dict()


@pytest.mark.parametrize("gelu", ["exact", "tanh"])
def test_saved_folder_opens_in_transformers(rng, tmp_path, gelu):
    ours = build(rng, gelu=gelu, layer_norm_epsilon=1e-4)
    ours.class_names = ("a", "b", "c", "d", "e")
    weights.save(ours, tmp_path, format="huggingface")
    theirs = opened_strictly(transformers.ViTForImageClassification, tmp_path)
    images = rng.uniform(-1, 1, (3, 16, 24, 3)).astype("float32")
    assert_close(run(theirs, images), ours(images))
    assert theirs.config.id2label == dict(enumerate("abcde"))
    assert_equal_weights(ours, vit_keras.open(tmp_path))


def opened_strictly(model_class, folder):
    model, report = model_class.from_pretrained(folder, output_loading_info=True)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


def test_preprocessing_equals_the_processor(rng, tmp_path):
    ours = build(rng, image_size=16)
    weights.save(ours, tmp_path, format="huggingface")
    settings = json.loads((tmp_path / "preprocessor_config.json").read_text())
    assert settings["size"] == {"height": 16, "width": 16}
    settings |= {"image_mean": [0.1, 0.2, 0.3], "resample": 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    weights_without_note(tmp_path / "model.safetensors")
    pixels = vit_keras.open(tmp_path).preprocessing
    assert (pixels.mean, pixels.interpolation) == ((0.1, 0.2, 0.3), "bicubic")
    assert pixels.crop_fraction is None


def weights_without_note(path):
    from safetensors.numpy import load_file, save_file

    save_file({k: np.array(v) for k, v in load_file(path).items()}, path)


def test_unknown_activation_is_named(tmp_path):
    build_reference(transformers.ViTForImageClassification, hidden_act="relu").save_pretrained(
        tmp_path
    )
    with pytest.raises(ValueError, match=r"`hidden_act` must be one of 'gelu'.*Received: 'relu'"):
        vit_keras.open(tmp_path)
