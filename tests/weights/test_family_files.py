"""The published files of the families: against timm's table, and through a server."""

import pathlib
import re

import pytest

from tests.helpers import GOLDEN
from tests.peers import peer
from vit_keras import applications, variants, weights
from vit_keras.variants import families
from vit_keras.weights import published

pytestmark = pytest.mark.once

ROWS = list(published.family_rows())
BODY = (GOLDEN / "families" / "timm_flexivit" / "model.safetensors").read_bytes()


def test_rows_are_in_the_table_and_well_formed():
    for row in ROWS:
        assert published.PUBLISHED_FILES[row.variant, row.weights] == row
        assert re.fullmatch(r"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/main/[\w.]+", row.url)
        assert row.license
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


def test_files_of_the_hub_come_with_their_configuration_and_are_found_by_their_place(serve_hub):
    row = weights.lookup("FlexiViT-S/16", "1200ep_in1k")
    files = {"model.safetensors": BODY, "config.json": b"{}", "README.md": b"x"}
    server = serve_hub(files, "timm/flexivit_small.1200ep_in1k")
    path = pathlib.Path(weights.resolve(row.variant, row.weights))
    assert path.read_bytes() == BODY and (path.parent / "config.json").read_bytes() == b"{}"
    asked = [place.rpartition("/")[2] for _, place in server.requests if "/resolve/" in place]
    assert asked == ["config.json", "model.safetensors"]
    assert published.identify(path, None) == ("path", [row])
    server.status = {"/": 503}
    assert weights.resolve(row.variant, row.weights) == str(path)  # offline
