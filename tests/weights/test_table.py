"""The table of published files against the published names, counts and accuracies."""

import re
import urllib.parse

import pytest

from vit_keras import variants
from vit_keras.weights import published

pytestmark = pytest.mark.once

ALL_ROWS = list(published.PUBLISHED_FILES.values())
ROWS = [row for row in ALL_ROWS if row.format in ("google", "bit")]
HYBRIDS = {"R+Ti/16", "R26+S/32", "R50+B/16", "R50+L/32"}
RESNETS = {"R50x1", "R50x3", "R101x1", "R101x3", "R152x2", "R152x4"}

# Parameters at 224 pixels with 1000 classes and the width of the head's input, from the tests of
# the published code (vit_jax/models_test.py).
COUNTS = {
    "Ti/16": (5_717_416, 192),
    "S/16": (22_050_664, 384),
    "S/32": (22_878_952, 384),
    "B/16": (86_567_656, 768),
    "B/32": (88_224_232, 768),
    "L/16": (304_326_632, 1024),
    "R+Ti/16": (6_337_704, 192),
    "R26+S/32": (36_431_912, 384),
    "R50+L/32": (328_994_856, 1024),
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.variant} {row.weights}")
def test_rows_are_well_formed(row):
    url = urllib.parse.urlsplit(row.url)
    assert (url.scheme, url.netloc) == ("https", "storage.googleapis.com")
    assert re.fullmatch(r"/(vit|bit)_models(/[\w.%-]+)+\.npz", url.path)
    assert urllib.parse.unquote(url.path) == f"/{row.path}"
    assert row.variant in variants.VARIANTS.keys() | HYBRIDS | RESNETS
    assert row.format == ("bit" if row.variant in RESNETS else "google")
    assert row.num_classes == (21843 if row.weights.endswith("imagenet21k") else 1000)
    assert row.sha256 is None or re.fullmatch("[0-9a-f]{64}", row.sha256)
    assert row.license == "Apache-2.0"
    suffix = re.search(r"-(\d+)$", row.weights)
    default = 480 if row.format == "bit" and row.weights == "imagenet" else 224
    assert row.resolution == (int(suffix[1]) if suffix else default)


@pytest.mark.parametrize(
    ("variant", "weights", "path"),
    [
        ("B/16", "imagenet21k", "imagenet21k/ViT-B_16"),
        ("R50+B/16", "imagenet21k", "imagenet21k/R50+ViT-B_16"),
        (
            "B/16",
            "augreg-imagenet1k",
            "augreg/B_16-i1k-300ep-lr_0.001-aug_strong2-wd_0.1-do_0.1-sd_0.1"
            "--imagenet2012-steps_20k-lr_0.01-res_224",
        ),
    ],
)
def test_files_have_their_published_names(variant, weights, path):
    assert published.lookup(variant, weights).path == f"vit_models/{path}.npz"


def test_published_sizes_match_the_parameters():
    sized = [row for row in ROWS if row.size_mib is not None]
    assert {row.variant for row in sized} == COUNTS.keys()
    for row in sized:
        count, width = COUNTS[row.variant]
        count += (row.num_classes - 1000) * (width + 1)
        assert row.size_mib == pytest.approx(count * 4 / 2**20, rel=0.02), row


def test_only_the_original_pre_trained_files_have_pre_logits():
    widths = {row.variant: row.representation_size for row in ROWS if row.representation_size}
    assert widths == {
        "B/16": 768,
        "B/32": 768,
        "L/16": 1024,
        "L/32": 1024,
        "H/14": 1280,
        "R50+B/16": 768,
    }
    assert all(row.weights == "imagenet21k" for row in ROWS if row.representation_size)


def test_unknown_weights_name_the_nearest():
    known = ", ".join(map(repr, published.names("B/32")))
    message = (
        f"variant 'B/32': {known}. Received: weights='imagnet-384'. Did you mean 'imagenet-384'"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        published.lookup("B/32", "imagnet-384")
    with pytest.raises(ValueError, match="no checkpoint of variant 'b/32' is published"):
        published.lookup("b/32", "imagenet")
