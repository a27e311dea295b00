"""The published files of the families: against timm's table, and through a server."""

import pathlib
import re

import pytest

from tests.helpers import GOLDEN
from tests.peers import peer
from tests.weights.server import Server
from vit_keras import applications, variants, weights
from vit_keras.variants import families
from vit_keras.weights import download, published

pytestmark = pytest.mark.once

ROWS = list(published.family_rows())
BODY = (GOLDEN / "families" / "timm_flexivit" / "model.safetensors").read_bytes()


def test_rows_are_in_the_table_and_well_formed():
    for row in ROWS:
        assert published.PUBLISHED_FILES[row.variant, row.weights] == row
        assert re.fullmatch(r"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/main/[\w.]+", row.url)
        assert "config.json" in row.beside and row.license
    assert len({row.path for row in ROWS}) == len(ROWS)


def test_weights_that_their_license_keeps_at_the_publishers_are_not_published():
    assert not [row for row in published.PUBLISHED_FILES.values() if "DINOv3" in row.variant]
    with pytest.raises(ValueError, match="of variant 'DINOv3-S/16': none is published"):
        applications.DINOv3S16(weights="lvd1689m", include_top=False)


@pytest.mark.parametrize("row", [row for row in ROWS if row.format == "timm"],
                         ids=lambda row: row.variant)  # fmt: skip
def test_rows_are_those_of_timms_table(row):
    timm = peer("timm")
    model = row.path.split("/")[1]
    theirs = timm.get_pretrained_cfg(model)
    assert theirs.hf_hub_id == f"timm/{model}" and theirs.hf_hub_filename is None
    assert theirs.input_size == (3, row.resolution, row.resolution)
    assert (theirs.num_classes or None) == row.num_classes
    assert theirs.license == row.license.lower()
    mean = families.family_of(variants.get(row.variant)).preprocessing["mean"]
    half = row.variant == "OpenCLIP-L/14"  # the only one of LAION's that was trained otherwise
    assert theirs.mean == ((0.5, 0.5, 0.5) if half else mean)


@pytest.fixture
def serve(tmp_path, monkeypatch):
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    row = weights.lookup("FlexiViT-S/16", "1200ep_in1k")
    folder = "/timm/flexivit_small.1200ep_in1k/resolve/main/"
    files = {folder + "model.safetensors": BODY, folder + "config.json": b"{}"}
    with Server(files).running() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield row, server, folder


def test_the_configuration_is_downloaded_with_the_weights(serve):
    row, server, folder = serve
    path = weights.resolve(row.variant, row.weights)
    assert path == download.cached_path(row)
    asked = [place.removeprefix(folder) for place, _ in server.requests]
    assert asked == ["config.json", "model.safetensors"]
    for name in asked:
        assert (pathlib.Path(path).parent / name).read_bytes() == server.files.pop(folder + name)
    assert weights.resolve(row.variant, row.weights) == path  # offline


@pytest.mark.parametrize(
    ("name", "body", "fault"),
    [
        ("model.safetensors", BODY[:-4], "is not a safetensors file"),
        ("config.json", b"<html>log in</html>", "is not JSON"),
    ],
)
def test_a_page_or_a_part_in_the_place_of_a_file_is_refused(serve, name, body, fault):
    row, server, folder = serve
    server.files[folder + name] = body
    with pytest.raises(ValueError, match=fault):
        weights.resolve(row.variant, row.weights)
