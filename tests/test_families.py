"""The table of families against published counts, other projects' names, and its pages."""

import functools
import re

import pytest

from tests.helpers import ROOT, shapes_only
from tools.family_tables import PAGES, TABLE, WEIGHTS, filled
from vit_keras import applications, list_weights, variants, weights
from vit_keras.inspection import abstract_model
from vit_keras.models import from_variant
from vit_keras.variants import families
from vit_keras.variants.families import FAMILIES

pytestmark = pytest.mark.once


def counts(text):
    """Reads lines of a family and its sizes with their numbers: `{variant: number}`."""
    rows = [line.split() for line in text.strip().splitlines()]
    pairs = [(row[0], *pair) for row in rows for pair in zip(row[1::2], row[2::2])]
    return {f"{family}-{size}": int(number.replace(",", "")) for family, size, number in pairs}


# Parameters that transformers, timm, OpenCLIP and the papers' code count: with the projection of
# CLIP and OpenCLIP, with the classifier of DeiT and BEiT, and without any head elsewhere.
PUBLISHED = counts(
    """
    CLIP  B/32 87,849,216  B/16 86,192,640  L/14 303,966,208  L/14-336 304,293,888
    OpenCLIP  H/14 632,076,800  bigG/14 1,844,907,264
    DINO  B/16 85,798,656
    DINOv2  S/14 22,056,192  B/14 86,579,712  L/14 304,367,616  g/14 1,136,479,232
    SigLIP  B/16 92,884,224  L/16 315,956,224  So400m/14 427,680,704
    SigLIP2  B/32 94,552,320  B/16 92,884,224  L/16 315,956,224  So400m/14 427,680,704
    SigLIP2  So400m/16 427,888,064  g-opt/16 1,163,168,256
    DeiT  Ti/16 5,717,416  S/16 22,050,664  B/16 86,567,656  Ti/16-distilled 5,910,800
    DeiT  S/16-distilled 22,436,432  B/16-distilled 87,338,192
    DeiTIII  S/16 22,059,496  M/16 38,849,512  B/16 86,585,320  L/16 304,374,760  H/14 632,126,440
    MAE  B/16 85,798,656  L/16 303,301,632  H/14 630,764,800
    BEiT  B/16 86,530,984  L/16 304,430,568
    BEiTv2  B/16 86,530,984
    EVA02  Ti/14 5,563,584  S/14 21,744,000  B/14 86,348,544  L/14 304,055,232
    IJEPA  H/14 630,762,240  H/16 631,668,480  g/16 1,011,368,576
    YOLOS  Ti/16 6,488,736  S/16 30,684,768  B/16 127,798,368
    OWLViT  B/32 89,441,798  L/14 309,498,630
    OWLv2  B/16 91,176,711
    """
)
# The same without the head that the variant has.
WITHOUT_HEAD = counts(
    """
    ViT-reg4  betwixt/16 59,757,440  B/16 85,846,272  So150m/16 140,584,064
    FlexiViT  S/16 21,676,416  B/16 85,820,160  L/16 303,330,304
    PE-Core  B/16 92,886,528  L/14 316,102,656  G/14 1,880,066,560
    """
)
# transformers' count, which includes a mask token of the width D that the model never reads.
WITH_MASK_TOKEN = counts(
    """
    DINOv2  S/14-reg 22,058,112  B/14-reg 86,583,552  L/14-reg 304,372,736
    DINOv3  S/16 21,596,544  S+/16 28,692,864  B/16 85,660,416  L/16 303,129,600  H+/16 840,592,640
    DINOv3  7B/16 6,716,035,072
    """
)
COUNTED = {*PUBLISHED, *WITHOUT_HEAD, *WITH_MASK_TOKEN}


@functools.cache
def count(name, **arguments):
    """Counts a model's parameters by those of models of one and two blocks."""
    one, two = (abstract_model(name, num_layers=n, **arguments).count_params() for n in (1, 2))
    return one + (variants.get(name).num_layers - 1) * (two - one)


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_parameters_are_the_published_ones(name):
    if name in WITHOUT_HEAD:
        assert count(name, num_classes=None) == WITHOUT_HEAD[name]
    else:
        mask = variants.get(name).hidden_size if name in WITH_MASK_TOKEN else 0
        assert count(name) + mask == {**PUBLISHED, **WITH_MASK_TOKEN}[name]


def test_parameters_at_other_sizes_are_the_published_ones():
    assert count("SigLIP-B/16", image_size=384) == 93_176_064
    # 27 x 27 patches; 6 pixels are left out.
    assert count("SigLIP-So400m/14", image_size=384) == 428_225_600


def test_every_family_has_a_published_count():
    assert {variants.get(name).family for name in COUNTED} == families.FAMILIES.keys()


def test_a_page_lists_every_constructor_with_its_parameters():
    text = (ROOT / "docs" / "which-vit.md").read_text()
    listed = dict(re.findall(r"`(\w+)` (\d[\d,]*\d)(?=,| \|)", text))
    assert listed.keys() == applications.OF_FAMILIES.keys()
    for name, variant in applications.OF_FAMILIES.items():
        assert int(listed[name].replace(",", "")) == count(variant), name


def test_heads_have_the_published_widths():
    widths = {"OpenCLIP-H/14": 80, "OpenCLIP-g/14": 88, "OpenCLIP-bigG/14": 104,
              "DINOv2-g/14": 64, "SigLIP-So400m/14": 72, "DINOv3-7B/16": 128}  # fmt: skip
    for name, width in widths.items():
        row = variants.get(name)
        assert row.hidden_size == width * row.num_heads


SPELLINGS = {  # one of each project's ways to name a family
    "dinov2_vitl14_reg": "DINOv2-L/14-reg",
    "facebook/dinov2-with-registers-base": "DINOv2-B/14-reg",
    "facebook/dinov3-vits16plus-pretrain-lvd1689m": "DINOv3-S+/16",
    "vit_small_patch8_224.dino": "DINO-S/8",
    "laion/CLIP-ViT-H-14-laion2B-s32B-b79K": "OpenCLIP-H/14",
    "google/siglip-so400m-patch14-384": "SigLIP-So400m/14",
    "deit3_medium_patch16_224.fb_in1k": "DeiTIII-M/16",
    "facebook/deit-tiny-distilled-patch16-224": "DeiT-Ti/16-distilled",
    "facebook/vit-mae-huge": "MAE-H/14",
    "microsoft/beit-base-patch16-224": "BEiT-B/16",
    "eva02_base_patch14_448": "EVA02-B/14",
    "facebook/ijepa_vith14_1k": "IJEPA-H/14",
    "flexivit_small": "FlexiViT-S/16",
    "vit_pe_core_gigantic_patch14_448": "PE-Core-G/14",
    "vit_betwixt_patch16_reg4_gap_256": "ViT-reg4-betwixt/16",
    "DINOv2-B/16": "DINOv2-B/14",
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_names_of_other_projects_are_answered_with_ours(name):
    with pytest.raises(ValueError, match=r"Received: variant=.* Did you mean ") as error:
        variants.get(name)
    assert variants.nearest(name)[0] == SPELLINGS[name]
    assert f"Did you mean '{SPELLINGS[name]}'" in str(error.value)


def test_every_family_has_a_page_with_the_table_of_its_row():
    shown, examples = [], []
    for page in [*PAGES.glob("*.md"), WEIGHTS]:
        text = page.read_text()
        assert filled(text) == text, f"{page.name}: run python -m tools.family_tables"
        shown += [match[2] for match in TABLE.finditer(text)]
        examples += re.findall(r"applications\.(\w+)\([^)]*weights=\"([^\"/]+)\"", text)
    assert sorted(shown) == sorted(FAMILIES)
    table = WEIGHTS.read_text().partition("<!-- published weights -->")[2]
    assert table.count("](https://") == len(list_weights())
    assert len(examples) > 10
    for constructor, name in examples:
        assert name in weights.names(applications.OF_FAMILIES[constructor]), constructor


def test_the_family_of_contributing_is_built(monkeypatch):
    section = (ROOT / "CONTRIBUTING.md").read_text().split("## A new family")[1]
    namespace: dict = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], namespace)
    family = namespace["EXAMPLE"]
    assert [family.function_of(size) for size in family.sizes] == ["ExampleS16", "ExampleB16"]
    monkeypatch.setitem(families.FAMILIES, family.key, family)
    for name, row in family.variants():
        monkeypatch.setitem(variants.VARIANTS, name, row)
    with shapes_only():
        model = from_variant("Example-B/16", num_classes=7)
        assert model.get_layer("encoderblock_0").options.mlp == "swiglu"
        assert model.get_layer("registers").num_registers == 2
        assert model.resizing.positions == "bicubic_antialias"
        plain = from_variant("Example-S/16")
        assert plain.get_layer("encoderblock_0").options.mlp == "gelu"
