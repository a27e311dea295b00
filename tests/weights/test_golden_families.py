"""Golden files of many families: what their publishers' code computes, and how they are named."""

import dataclasses
import json
from typing import Any

import keras
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close
from tests.weights.builds import arrays_of
from vit_keras import models, variants, weights
from vit_keras.variants.families import FAMILIES
from vit_keras.weights.description import family_name, variant_name

pytestmark = pytest.mark.filterwarnings("ignore:.*computes with")
FOLDER = GOLDEN / "families"


@dataclasses.dataclass(frozen=True)
class Golden:
    """What a folder of `tests/golden/families` holds, and how it is read."""

    family: str | None
    head: str | None = None
    left_out: tuple[str, ...] = ()
    file: str = ""  # of weights, if not the folder
    known: dict[str, Any] = dataclasses.field(default_factory=dict)  # what no file says
    tokens: str = "encoder_norm"  # the layer whose output they are
    rule: str | None = None  # by which the publisher resized, if not by that of the file


CLASSES, TEXT = "classifier", ("text tower",)
LAST = {"tokens": "encoderblock_1"}
ROWS = {
    "big_vision_flexivit": Golden(None, CLASSES, file="flexivit.npz"),
    "big_vision_siglip2_naflex": Golden("SigLIP2", None, TEXT, "siglip2_naflex.npz"),
    "hf_beit": Golden("BEiT", CLASSES, **LAST),
    "hf_clip_projection": Golden("CLIP", "projection", **LAST),
    "hf_clip_sparse_config": Golden("CLIP", "projection", **LAST),
    "hf_deit_distilled": Golden("DeiT-distilled", CLASSES),
    "hf_dinov2_classify": Golden("DINOv2", CLASSES),
    "hf_dinov2_registers": Golden("DINOv2-reg"),
    "hf_dinov2_swiglu": Golden("DINOv2"),
    "hf_dinov3": Golden("DINOv3"),
    "hf_dinov3_gated_no_bias": Golden("DINOv3"),
    "hf_ijepa_classify": Golden("IJEPA", CLASSES),
    "hf_mae_pretraining": Golden("MAE", None, ("decoder",)),
    "hf_siglip2_naflex": Golden("SigLIP2"),
    "hf_siglip_two_towers_cropped": Golden("SigLIP", None, TEXT),
    "meta_dinov2": Golden("DINOv2", file="dinov2_vits14_pretrain.pth", known={"num_heads": 2}),
    "meta_dinov2_reg4": Golden(
        "DINOv2-reg", file="dinov2_vits14_reg4_pretrain.pth", known={"num_heads": 4}
    ),
    "meta_pe_core": Golden("PE-Core", "projection", file="PE-Core-B16-224.pt"),
    "open_clip_quickgelu": Golden("OpenCLIP", "projection", TEXT, **LAST),
    "timm_beit": Golden("BEiT", CLASSES, **LAST),
    "timm_clip_quickgelu": Golden("CLIP", CLASSES),
    "timm_deit3": Golden("DeiTIII", CLASSES),
    "timm_deit_distilled": Golden("DeiT-distilled", CLASSES),
    "timm_dino": Golden("DINO"),
    "timm_dinov2": Golden("DINOv2"),
    "timm_dinov2_giant_reg4": Golden("DINOv2-reg"),
    "timm_dinov3_plus": Golden("DINOv3"),
    "timm_dinov3_qkvb": Golden("DINOv3"),
    "timm_eva02_base": Golden("EVA02", CLASSES, tokens="encoderblock_0"),
    "timm_eva02_small": Golden("EVA02", CLASSES, **LAST),
    "timm_flexivit": Golden("FlexiViT", CLASSES, rule="bicubic_antialias"),  # `set_input_size`
    "timm_mae_fine_tuned": Golden("MAE", CLASSES, **LAST),
    "timm_naflexvit_siglip": Golden("SigLIP"),
    "timm_parallel_xp": Golden(None, CLASSES),
    "timm_pe_core": Golden("PE-Core", CLASSES),
    "timm_qk_norm": Golden(None, CLASSES),
    "timm_reg4_gap": Golden("ViT-reg4", CLASSES, **LAST),
    "timm_rope_reg1_gap": Golden(None, CLASSES, **LAST),
    "timm_siglip": Golden("SigLIP"),
    "timm_so150m_reg4_map": Golden("ViT-reg4", CLASSES),
}


# Those of the other backends, whose layers and designs have tests of their own.
EVERYWHERE = (
    *("big_vision_siglip2_naflex", "hf_beit", "hf_deit_distilled", "hf_dinov3_gated_no_bias"),
    *("meta_dinov2_reg4", "meta_pe_core", "open_clip_quickgelu", "timm_eva02_base"),
    *("timm_parallel_xp", "timm_so150m_reg4_map"),
)
TORCH = pytest.mark.on("torch")
MARKED = [name if name in EVERYWHERE else pytest.param(name, marks=TORCH) for name in ROWS]


def opened(name, **options):
    return vit_keras.open(FOLDER / name / ROWS[name].file, **ROWS[name].known, **options)


def computed(model, images):
    """Compiled on JAX, where an operation at a time takes longer; TensorFlow is the other way."""
    compiled = keras.backend.backend() == "jax"
    return model.predict_on_batch(images) if compiled else model(images)


@pytest.mark.parametrize("name", MARKED)
def test_outputs_equal_the_publishers_code(name):
    model = opened(name)
    io = arrays_of(FOLDER / name / "io.npz")
    ends = [key.removeprefix("images") for key in io if key.startswith("images")]
    if keras.backend.backend() != "torch":
        del ends[1:]  # positions are resized in NumPy
    for end in ends:
        images = io[f"images{end}"]
        sized = model
        if (size := images.shape[1:3]) != model.input_shape[1:3]:
            sized = models.with_image_size(model, size, ROWS[name].rule)
        tokens = sized.get_layer(ROWS[name].tokens).output
        outputs = computed(keras.Model(sized.input, [tokens, sized.output]), images)
        vector = next((k for k in ("logits", "pooled") if f"{k}{end}" in io), None)
        for output, key in zip(outputs, ("tokens", vector)):
            if key:
                assert_close(output, io[f"{key}{end}"], 1e-5, f"{key}{end}")


@TORCH
@pytest.mark.parametrize("name", ROWS)
def test_files_of_every_project_are_recognized(name):
    row = ROWS[name]
    described = weights.describe(FOLDER / name / row.file)
    found = (described["family"], described["head"], tuple(described["left_out"]))
    assert found == (row.family, row.head, row.left_out)
    if row.family is not None and name != "timm_mae_fine_tuned":  # which says another
        said = described["license"].replace("-", " ").lower()  # timm writes "dinov3-license"
        assert said == FAMILIES[row.family].license.replace("-", " ").lower()
    assert json.loads(json.dumps(described)) == described


@TORCH
@pytest.mark.parametrize("name", FAMILIES)
def test_every_variant_with_options_is_recognized_by_its_arguments(name):
    family = FAMILIES[name]
    for size in family.sizes:
        variant = family.variant(size)
        arguments = variants.architecture(variant)
        assert variant_name(arguments, called=variant) == variant
        assert family_name(arguments, called=variant) == name
    plain = {"DeiT", "DINO", "MAE", "IJEPA"}  # nothing but the name tells them from the paper's
    twins = {"SigLIP2": "SigLIP", "BEiTv2": "BEiT"}
    unnamed = family_name(variants.architecture(family.variant(next(iter(family.sizes)))))
    assert unnamed == (None if name in plain else twins.get(name, name)) or name in twins


@TORCH
def test_a_variant_of_the_paper_stays_one():
    for name, row in variants.VISION_TRANSFORMERS.items():
        if name == "b/32":  # which has the sizes of S/32
            continue
        arguments = {**variants.architecture(name), "classifier": "token", "num_classes": 10}
        arguments["patch_size"] = (row.patch_size,) * 2
        assert variant_name(arguments) == name and family_name(arguments) is None
    assert variant_name({"hidden_size": 24, "patch_size": (16, 16), "classifier": "token"}) is None


@TORCH
def test_a_folded_class_position_is_unfolded_into_a_model_with_a_slot_for_it():
    """timm's DINOv2 with registers has no slot, and the variant `-reg` has one, as Meta's files."""
    name = "timm_dinov2_giant_reg4"
    slot = opened(name, position_cover="class")
    assert slot.count_params() == opened(name).count_params() + 18
    io = arrays_of(FOLDER / name / "io.npz")
    assert_close(slot(io["images"]), io["pooled"], rtol=1e-5)
