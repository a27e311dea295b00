"""The calls of vit-keras 0.x, as docs/migration.md and the web write them."""

import io
import re
import runpy
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.helpers import ROOT, assert_close
from tests.legacy.conftest import FOLDER, SMALL, place
from vit_keras import utils, vit
from vit_keras.legacy import upgrade

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def outputs_of_0_2():
    return np.load(FOLDER / "0.2.0_outputs.npz")


def place_files(old_files, folder):
    """Puts the files that the page names into a folder."""
    Image.fromarray(outputs_of_0_2()["picture"]).save(folder / "granny_smith.png")
    shutil.copy(FOLDER / "published.npz", folder)
    shutil.copy(old_files / "0.1.2_top.h5", folder / "old.h5")


@pytest.mark.nightly_on("tensorflow", "jax")  # which compile each of its models
def test_every_block_of_the_page_runs_unchanged(tiny, old_files, tmp_path, monkeypatch, rng):
    """In one namespace, from top to bottom."""
    place_files(old_files, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    images = rng.uniform(0, 255, (2, 224, 224, 3)).astype("float32")
    names = {"images": images, "labels": np.eye(200, dtype="float32")[:2]}
    shapes = []
    for block in BLOCKS:
        (tmp_path / "block.py").write_text(block)
        names = runpy.run_path("block.py", names)
        if "model" in names:
            shapes.append(names["model"].output_shape[1:])
    published = [(1000,), (200,), (1000,)]
    own = [(5,), (3,), (3,), (751,), (16,), (10,), (5,), (5,)]
    assert shapes == published + own
    assert names["classes"][948] == "Granny Smith"
    assert names["y"].shape == (1, 1000) and 0 < names["y"].min() < names["y"].max() < 1
    assert names["attention_map"].shape == (384, 384, 3)
    assert names["features"].shape == (2, 16)
    assert place("B/16", "imagenet-384") in [path for path, _ in tiny.requests]


@pytest.mark.on("torch")
def test_google_s_file_gives_the_outputs_and_the_attention_map_of_0_2():
    from vit_keras import visualize

    expected = outputs_of_0_2()
    for name, size in (("resized", (32, 48)), ("square", 32)):
        arguments = {"classes": 5, "name": name, "representation_size": 12, **SMALL}
        model = vit.build_model(image_size=size, **arguments)
        utils.load_weights_numpy(model, FOLDER / "published.npz", pretrained_top=True)
        outputs = model.predict_on_batch(expected[f"{name}_images"])
        assert_close(outputs, expected[name])
    for made in (model, upgrade(model)):
        seen = visualize.attention_map(model=made, image=expected["picture"]).astype(int)
        assert np.abs(seen - expected["attention_map"]).max() <= 2  # of 255


@pytest.mark.once
def test_pictures_are_read_as_0_2_did_from_wherever_they_are(tiny, tmp_path):
    expected = outputs_of_0_2()
    path = tmp_path / "picture.png"
    Image.fromarray(expected["picture"]).save(path)
    tiny.files["/picture.png"] = path.read_bytes()
    url = f"{tiny.url}/picture.png"
    for source in (str(path), url, io.BytesIO(path.read_bytes()), Image.open(path)):
        pixels = utils.read(source, 16, timeout=10)
        assert pixels.dtype == "uint8" and pixels.shape == (16, 16, 3)
        assert np.abs(pixels.astype(int) - expected["read_16"]).max() <= 1
    larger = utils.read(str(path), 60).astype(int)
    assert np.abs(larger - expected["read_60"]).max() <= 1
    with pytest.raises(FileNotFoundError, match="no image at"):
        utils.read(str(tmp_path / "missing.png"), 16)
