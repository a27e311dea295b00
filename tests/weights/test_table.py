"""Published files: their tables against published facts and timm's, and models by their names."""

import pathlib
import re
import urllib.parse

import pytest

from tests import reference
from tests.applications.test_constructors import VITS
from tests.helpers import GOLDEN, assert_close, randomize, weights_by_path
from tests.peers import peer
from vit_keras import applications, variants
from vit_keras.variants import families
from vit_keras.weights import published, resolve, save

pytestmark = pytest.mark.once

ALL_ROWS = list(published.PUBLISHED_FILES.values())
ROWS = [row for row in ALL_ROWS if row.format in ("google", "bit")]
FAMILY_ROWS = [row for row in ALL_ROWS if row not in ROWS]
HYBRIDS = {"R+Ti/16", "R26+S/32", "R50+B/16", "R50+L/32"}
RESNETS = {"R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4"}


def test_rows_are_well_formed():
    for row in ROWS:
        url = urllib.parse.urlsplit(row.url)
        assert (url.scheme, url.netloc) == ("https", "storage.googleapis.com")
        assert re.fullmatch(r"/(vit|bit)_models(/[\w.%-]+)+\.npz", url.path)
        assert urllib.parse.unquote(url.path) == f"/{row.path}"
        assert row.variant in variants.VARIANTS.keys() | HYBRIDS | RESNETS
        assert row.format == ("bit" if row.variant in RESNETS else "google")
        assert row.num_classes == (21843 if row.weights.endswith("imagenet21k") else 1000)
        assert row.license == "Apache-2.0"
        suffix = re.search(r"-(\d+)$", row.weights)
        default = 480 if row.format == "bit" and row.weights == "imagenet" else 224
        assert row.resolution == (int(suffix[1]) if suffix else default), row


def test_published_sizes_match_the_parameters():
    sized = [row for row in ROWS if row.size_mib is not None]
    counts = dict(VITS.values())
    assert len({row.variant for row in sized}) == 9
    for row in sized:
        width = variants.get(row.variant).feature_size
        count = counts[row.variant] + (row.num_classes - 1000) * (width + 1)
        assert row.size_mib == pytest.approx(count * 4 / 2**20, rel=0.02), row


def test_files_have_their_published_names_and_only_the_original_ones_pre_logits():
    recipe = "i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1--imagenet2012-steps_20k-lr_0.01"
    paths = [
        published.lookup(*of).path
        for of in (("R50+B/16", "imagenet21k"), ("B/16", "augreg-imagenet1k"))
    ]
    names = ("imagenet21k/R50+ViT-B_16", f"augreg/B_16-{recipe}-res_224")
    assert paths == [f"vit_models/{name}.npz" for name in names]
    widths = {row.variant: row.representation_size for row in ROWS if row.representation_size}
    original = {"B/16": 768, "B/32": 768, "L/16": 1024, "L/32": 1024, "H/14": 1280}
    assert widths == {**original, "R50+B/16": 768}
    assert all(row.weights == "imagenet21k" for row in ROWS if row.representation_size)


def test_named_weights_come_from_the_server_into_the_model(serve, tmp_path, rng):
    """A file in the published format is downloaded, and its names and its GELU are right."""
    source = randomize(applications.ViTTi16(classes=1000), rng, scale=0.05)
    save(source, tmp_path / "published.npz", format="google")
    row = published.lookup("Ti/16", "augreg-imagenet")
    server = serve(files={f"/{row.path}": (tmp_path / "published.npz").read_bytes()})
    model = applications.ViTTi16(weights="augreg-imagenet", classifier_activation=None)
    images = rng.uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    weights = weights_by_path(source)
    expected = reference.forward(images, weights, num_layers=12, gelu="tanh")
    assert_close(model(images), expected["logits"])
    bare = applications.ViTTi16(include_top=False, weights="augreg-imagenet")
    tokens = expected["encoder_norm"]
    assert_close(bare(images), tokens)
    assert len(server.requests) == 1  # the second model reads the cache


def test_rows_of_families_are_well_formed():
    for row in FAMILY_ROWS:
        assert re.fullmatch(r"https://huggingface\.co/[\w.-]+/[\w.-]+/resolve/main/[\w.]+", row.url)
        assert row.license
    assert len({row.path for row in FAMILY_ROWS}) == len(FAMILY_ROWS)


def test_weights_that_their_license_keeps_at_the_publishers_are_not_published():
    assert not [row for row in published.PUBLISHED_FILES.values() if "DINOv3" in row.variant]
    with pytest.raises(ValueError, match="of variant 'DINOv3-S/16': none is published"):
        applications.DINOv3S16(weights="lvd1689m", include_top=False)


@pytest.mark.parametrize("row", [row for row in FAMILY_ROWS if row.format == "timm"],
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


def test_files_of_the_hub_come_with_their_configuration(serve_hub):
    row = published.lookup("FlexiViT-S/16", "1200ep_in1k")
    body = (GOLDEN / "families" / "timm_flexivit" / "model.safetensors").read_bytes()
    files = {"model.safetensors": body, "config.json": b"{}", "README.md": b"x"}
    server = serve_hub(files, "timm/flexivit_small.1200ep_in1k")
    path = pathlib.Path(resolve(row.variant, row.weights))
    assert path.read_bytes() == body and (path.parent / "config.json").read_bytes() == b"{}"
    asked = [place.rpartition("/")[2] for _, place in server.requests if "/resolve/" in place]
    assert asked == ["config.json", "model.safetensors"]
    server.status = {"/": 503}
    assert resolve(row.variant, row.weights) == str(path)  # offline
