"""Folders of Hugging Face against `transformers`, in both directions."""

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights

pytestmark = pytest.mark.on("torch")

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
