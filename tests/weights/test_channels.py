"""Models for images of other than three channels, in every format and in other projects."""

import dataclasses
import json

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS
from tests.helpers import randomize
from tests.peers import peer
from tests.weights.builds import build
from vit_keras import weights
from vit_keras.models import Preprocessing, ResNet, from_variant
from vit_keras.weights.formats import registry

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*pictures")]
MEAN, STD = (0.48, 0.45, 0.4, 0.3, 0.6), (0.27, 0.26, 0.25, 0.2, 0.3)
CHANNELS = [1, 5]  # the sum of three colors, and colors by turns
# The architecture that each format holds; the others hold the small ViT.
OTHERS = {
    "google": {"gelu": "tanh"},
    "big_vision": {"gelu": "tanh"},
    "dino": {"num_classes": None},
    "dinov3": {**DESIGNS["DINOv3"], "num_classes": None, "layer_norm_epsilon": 1e-5},
    "open_clip": {**DESIGNS["CLIP"], "gelu": "exact", "layer_norm_epsilon": 1e-5},
    "perception_encoder": {**DESIGNS["PE"], "head_use_bias": False, "layer_norm_epsilon": 1e-5},
}


def built(rng, name, channels, values):
    """A model that the format holds, whose mean and std have a number of values."""
    if name == "bit":
        model = randomize(ResNet(24, (1, 1), 0.5, 5, channels), rng)
    else:
        model = build(rng, channels=channels, **OTHERS.get(name, {}))
    model.preprocessing = Preprocessing(mean=MEAN[:values], std=STD[:values])
    return model


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("name", sorted(registry.FORMATS))
def test_every_format_holds_the_channels_or_refuses_them_by_name(rng, tmp_path, name, channels):
    row = registry.FORMATS[name]
    folders = ["folder"] if row.config_files and name != "vit_keras" else []
    for values in {1, 3, channels}:
        model = built(rng, name, channels, values)
        images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
        for path in (f"a{row.suffixes[0]}", *folders):
            if name in ("open_clip", "perception_encoder", "torchvision", "open_clip_timm"):
                with pytest.raises(ValueError, match=f"channels={channels}|can only be read"):
                    weights.save(model, tmp_path / path, format=name)
                continue
            weights.save(model, tmp_path / path, format=name)
            again = weights.load(built(rng, name, channels, 1), tmp_path / path)
            expected = model.predict_on_batch(images)
            bound = 1e-5 * np.abs(expected).max()
            np.testing.assert_allclose(again.predict_on_batch(images), expected, atol=bound)
            if path == "folder":
                ours, read = model.preprocessing, again.preprocessing
                for field in ("mean", "std"):
                    pair = (np.broadcast_to(getattr(p, field), channels) for p in (read, ours))
                    np.testing.assert_allclose(*pair, rtol=1e-5)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("project", ["timm", "huggingface"])
def test_files_of_three_channels_are_read_for_others_and_written_for_their_project(
    rng, tmp_path, project, channels
):
    """The statistics of three colors become those of the channels, as the patch kernel does."""
    source = build(rng)
    source.preprocessing = dataclasses.replace(
        source.preprocessing, mean=MEAN[:3], std=STD[:3], rounding="torchvision"
    )
    weights.save(source, tmp_path / "rgb", format=project)
    model = vit_keras.open(tmp_path / "rgb", channels=channels)
    mean = [np.mean(MEAN[:3])] if channels == 1 else [MEAN[i % 3] for i in range(channels)]
    np.testing.assert_allclose(model.preprocessing.mean, mean)
    weights.save(model, tmp_path / "ours", format=project)
    images = rng.normal(size=(2, 16, 24, channels)).astype("float32")
    expected = model.predict_on_batch(images)
    theirs = _theirs(project, tmp_path / "ours", np.moveaxis(images, -1, 1), channels)
    np.testing.assert_allclose(theirs, expected, atol=1e-5 * np.abs(expected).max())


def _theirs(project, folder, images, channels):
    """The logits of the project's own model, whose mean must have a value for each channel."""
    import torch

    config = json.loads((folder / "config.json").read_text())
    images = torch.from_numpy(np.ascontiguousarray(images))
    with torch.no_grad():
        if project == "timm":
            assert config["model_args"]["in_chans"] == channels
            arguments = {**config["model_args"], "num_classes": config["num_classes"]}
            model = peer("timm").create_model(config["architecture"], **arguments).eval()
            peer("timm").models.load_checkpoint(model, str(folder / "model.safetensors"))
            data = peer("timm").data.resolve_data_config(config["pretrained_cfg"])
            assert len(data["mean"]) == len(data["std"]) == channels
            return model(images).numpy()
        model = peer("transformers").ViTForImageClassification.from_pretrained(folder).eval()
        assert model.config.num_channels == channels
        processor = json.loads((folder / "preprocessor_config.json").read_text())
        assert len(processor["image_mean"]) == len(processor["image_std"]) == channels
        return model(images).logits.numpy()


@pytest.mark.parametrize("channels", [1, 4])
def test_models_of_a_family_have_statistics_for_their_channels(tmp_path, channels):
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 24, "image_size": 28}
    model = from_variant("DINOv2-S/14", **sizes, channels=channels)
    pixels = np.full((1, 28, 28, channels), 127.5, "float32")
    assert model.preprocessing.normalize(pixels).shape == (1, *model.input_shape[1:])
    model.save(tmp_path / "a.keras")
    assert vit_keras.open(tmp_path / "a.keras").preprocessing == model.preprocessing
