"""Models for images of other than three channels, in every format and in other projects."""

import dataclasses
import json

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS
from tests.helpers import assert_close, randomize
from tests.weights.builds import build
from vit_keras import weights
from vit_keras.models import Preprocessing, ResNet
from vit_keras.weights.formats import registry

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*pictures")]
MEAN, STD = (0.48, 0.45, 0.4, 0.3, 0.6), (0.27, 0.26, 0.25, 0.2, 0.3)
CHANNELS = 5
# The architecture that each format holds; the others hold the small ViT.
OTHERS = {
    "google": {"gelu": "tanh"},
    "big_vision": {"gelu": "tanh"},
    "dino": {"num_classes": None},
    "dinov3": {**DESIGNS["DINOv3"], "num_classes": None, "layer_norm_epsilon": 1e-5},
    "open_clip": {**DESIGNS["CLIP"], "gelu": "exact", "layer_norm_epsilon": 1e-5},
    "perception_encoder": {**DESIGNS["PE"], "head_use_bias": False, "layer_norm_epsilon": 1e-5},
}


def built(rng, name):
    """A model that the format holds."""
    if name == "bit":
        return randomize(ResNet(24, (1, 1), 0.5, 5, CHANNELS), rng)
    return build(rng, channels=CHANNELS, **OTHERS.get(name, {}))


@pytest.mark.parametrize("name", sorted(registry.FORMATS))
def test_every_format_holds_the_channels_or_refuses_them_by_name(rng, tmp_path, name):
    row, model = registry.FORMATS[name], built(rng, name)
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    folder = row.folder_name
    path = tmp_path / ("folder" if folder else "".join(["a", *row.suffixes[:1]]))
    if name in ("open_clip", "perception_encoder", "torchvision", "open_clip_timm"):
        with pytest.raises(ValueError, match="channels=5|Received: format='open_clip_timm'"):
            weights.save(model, path, format=name)
        return
    for values in (1, 3, CHANNELS) if folder else [CHANNELS]:
        model.preprocessing = Preprocessing(mean=MEAN[:values], std=STD[:values])
        weights.save(model, path, format=name)
        again = weights.load(built(rng, name), path)
        assert_close(again.predict_on_batch(images), model.predict_on_batch(images), rtol=1e-5)
        for field in ("mean", "std") if folder else ():
            read, ours = (getattr(x.preprocessing, field) for x in (again, model))
            assert_close(np.broadcast_to(read, CHANNELS), np.broadcast_to(ours, CHANNELS), 1e-5)


@pytest.mark.parametrize("channels", [1, CHANNELS])  # the mean of the colors, and colors by turns
@pytest.mark.parametrize("project", ["timm", "huggingface"])
def test_files_of_three_channels_are_read_for_others(rng, tmp_path, project, channels):
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
    name = "config.json" if project == "timm" else "preprocessor_config.json"
    config = json.loads((tmp_path / "ours" / name).read_text())
    pixels = config["pretrained_cfg"] if project == "timm" else config
    pair = ("mean", "std") if project == "timm" else ("image_mean", "image_std")
    assert [len(pixels[field]) for field in pair] == [channels, channels]
