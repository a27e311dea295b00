"""Published files of the families: folders of timm and transformers on huggingface.co.

The names of weights are timm's tags, which say what a model learned from. The repositories,
resolutions, classes and licenses of timm's files come from its `default_cfgs`, and the accuracies
from results/results-imagenet.csv of its repository; transformers' files are those that the
publishers themselves uploaded. DINOv3 is not here: its license wants every user to accept it at the
publisher's, so `weights=` takes the file that a user has downloaded.
"""

from collections.abc import Iterator

from vit_keras import families
from vit_keras.weights.published.rows import HUGGING_FACE, TIMM, Accuracy, PublishedFile

# Variant, timm's name of the model, the resolution, the outputs of the head, and the top-1 accuracy
# on ImageNet in timm's results.
_TIMM: list[tuple[str, str, int, int | None, float | None]] = [
    ("DINO-S/16", "vit_small_patch16_224.dino", 224, None, None),
    ("DINO-S/8", "vit_small_patch8_224.dino", 224, None, None),
    ("DINO-B/16", "vit_base_patch16_224.dino", 224, None, None),
    ("DINO-B/8", "vit_base_patch8_224.dino", 224, None, None),
    ("DINOv2-S/14", "vit_small_patch14_dinov2.lvd142m", 518, None, None),
    ("DINOv2-B/14", "vit_base_patch14_dinov2.lvd142m", 518, None, None),
    ("DINOv2-L/14", "vit_large_patch14_dinov2.lvd142m", 518, None, None),
    ("DINOv2-g/14", "vit_giant_patch14_dinov2.lvd142m", 518, None, None),
    ("DINOv2-S/14-reg", "vit_small_patch14_reg4_dinov2.lvd142m", 518, None, None),
    ("DINOv2-B/14-reg", "vit_base_patch14_reg4_dinov2.lvd142m", 518, None, None),
    ("DINOv2-L/14-reg", "vit_large_patch14_reg4_dinov2.lvd142m", 518, None, None),
    ("DINOv2-g/14-reg", "vit_giant_patch14_reg4_dinov2.lvd142m", 518, None, None),
    ("MAE-B/16", "vit_base_patch16_224.mae", 224, None, None),
    ("MAE-L/16", "vit_large_patch16_224.mae", 224, None, None),
    ("MAE-H/14", "vit_huge_patch14_224.mae", 224, None, None),
    ("BEiT-B/16", "beit_base_patch16_224.in22k_ft_in22k_in1k", 224, 1000, 85.238),
    ("BEiT-L/16", "beit_large_patch16_224.in22k_ft_in22k_in1k", 224, 1000, 87.486),
    ("BEiTv2-B/16", "beitv2_base_patch16_224.in1k_ft_in22k_in1k", 224, 1000, 86.494),
    ("BEiTv2-L/16", "beitv2_large_patch16_224.in1k_ft_in22k_in1k", 224, 1000, 88.406),
    ("EVA02-Ti/14", "eva02_tiny_patch14_336.mim_in22k_ft_in1k", 336, 1000, 80.648),
    ("EVA02-S/14", "eva02_small_patch14_336.mim_in22k_ft_in1k", 336, 1000, 85.770),
    ("EVA02-B/14", "eva02_base_patch14_448.mim_in22k_ft_in22k_in1k", 448, 1000, 88.678),
    ("EVA02-L/14", "eva02_large_patch14_448.mim_m38m_ft_in22k_in1k", 448, 1000, 90.056),
    ("DeiT-Ti/16", "deit_tiny_patch16_224.fb_in1k", 224, 1000, 72.190),
    ("DeiT-S/16", "deit_small_patch16_224.fb_in1k", 224, 1000, 79.856),
    ("DeiT-B/16", "deit_base_patch16_224.fb_in1k", 224, 1000, 81.980),
    ("DeiT-Ti/16-distilled", "deit_tiny_distilled_patch16_224.fb_in1k", 224, 1000, 74.538),
    ("DeiT-S/16-distilled", "deit_small_distilled_patch16_224.fb_in1k", 224, 1000, 81.204),
    ("DeiT-B/16-distilled", "deit_base_distilled_patch16_224.fb_in1k", 224, 1000, 83.384),
    ("DeiTIII-S/16", "deit3_small_patch16_224.fb_in22k_ft_in1k", 224, 1000, 83.082),
    ("DeiTIII-M/16", "deit3_medium_patch16_224.fb_in22k_ft_in1k", 224, 1000, 84.550),
    ("DeiTIII-B/16", "deit3_base_patch16_224.fb_in22k_ft_in1k", 224, 1000, 85.728),
    ("DeiTIII-L/16", "deit3_large_patch16_224.fb_in22k_ft_in1k", 224, 1000, 86.990),
    ("DeiTIII-H/14", "deit3_huge_patch14_224.fb_in22k_ft_in1k", 224, 1000, 87.180),
    ("ViT-reg4-M/16", "vit_medium_patch16_reg4_gap_256.sbb_in12k_ft_in1k", 256, 1000, 84.956),
    (
        "ViT-reg4-betwixt/16",
        "vit_betwixt_patch16_reg4_gap_256.sbb_in12k_ft_in1k",
        256,
        1000,
        85.426,
    ),
    ("FlexiViT-S/16", "flexivit_small.1200ep_in1k", 240, 1000, 82.576),
    ("FlexiViT-B/16", "flexivit_base.1200ep_in1k", 240, 1000, 84.678),
    ("FlexiViT-L/16", "flexivit_large.1200ep_in1k", 240, 1000, 85.646),
    ("SigLIP-L/16", "vit_large_patch16_siglip_256.webli", 256, None, None),
    ("SigLIP-So400m/14", "vit_so400m_patch14_siglip_224.webli", 224, None, None),
    ("SigLIP2-B/32", "vit_base_patch32_siglip_256.v2_webli", 256, None, None),
    ("SigLIP2-L/16", "vit_large_patch16_siglip_256.v2_webli", 256, None, None),
    ("SigLIP2-So400m/14", "vit_so400m_patch14_siglip_224.v2_webli", 224, None, None),
    ("SigLIP2-So400m/16", "vit_so400m_patch16_siglip_256.v2_webli", 256, None, None),
    ("SigLIP2-g-opt/16", "vit_giantopt_patch16_siglip_256.v2_webli", 256, None, None),
    ("OpenCLIP-B/32", "vit_base_patch32_clip_224.laion2b", 224, 512, None),
    ("OpenCLIP-B/16", "vit_base_patch16_clip_224.laion2b", 224, 512, None),
    ("OpenCLIP-L/14", "vit_large_patch14_clip_224.laion2b", 224, 768, None),
    ("OpenCLIP-H/14", "vit_huge_patch14_clip_224.laion2b", 224, 1024, None),
    ("OpenCLIP-g/14", "vit_giant_patch14_clip_224.laion2b", 224, 1024, None),
    ("OpenCLIP-bigG/14", "vit_gigantic_patch14_clip_224.laion2b", 224, 1280, None),
    ("PE-Core-B/16", "vit_pe_core_base_patch16_224.fb", 224, 1024, None),
    ("PE-Core-L/14", "vit_pe_core_large_patch14_336.fb", 336, 1024, None),
    ("PE-Core-G/14", "vit_pe_core_gigantic_patch14_448.fb", 448, 1280, None),
]
# Variant, name of the weights, repository, file, resolution, width of the projection.
_TRANSFORMERS: list[tuple[str, str, str, str, int, int | None]] = [
    ("CLIP-B/32", "openai", "openai/clip-vit-base-patch32", "pytorch_model.bin", 224, 512),
    ("CLIP-B/16", "openai", "openai/clip-vit-base-patch16", "pytorch_model.bin", 224, 512),
    ("CLIP-L/14", "openai", "openai/clip-vit-large-patch14", "model.safetensors", 224, 768),
    ("CLIP-L/14-336", "openai", "openai/clip-vit-large-patch14-336", "pytorch_model.bin", 336, 768),
    ("SigLIP-B/16", "webli", "google/siglip-base-patch16-224", "model.safetensors", 224, None),
    (
        *("SigLIP-So400m/14", "webli-384", "google/siglip-so400m-patch14-384"),
        *("model.safetensors", 384, None),
    ),
    ("SigLIP2-B/16", "v2_webli", "google/siglip2-base-patch16-224", "model.safetensors", 224, None),
]
LICENSES = {"OpenCLIP": "Apache-2.0"}  # of timm's files, where not the publisher's
PROJECTIONS = ("CLIP", "OpenCLIP", "PE-Core")


def family_rows() -> Iterator[PublishedFile]:
    """Yields the rows of the families' files."""
    for variant, model, resolution, outputs, top1 in _TIMM:
        place = f"timm/{model}/resolve/main/model.safetensors"
        facts = {"accuracies": (Accuracy(top1, TIMM),)} if top1 else {}
        name = model.partition(".")[2]
        yield _row(variant, name, place, resolution, outputs, format="timm", **facts)
    for variant, weights, repository, file, resolution, outputs in _TRANSFORMERS:
        place = f"{repository}/resolve/main/{file}"
        also = ("config.json", "preprocessor_config.json")
        yield _row(variant, weights, place, resolution, outputs, format="huggingface", beside=also)


def _row(variant, weights, place, resolution, outputs, beside=("config.json",), **facts):
    family = families.family_of(families.VARIANTS[variant])
    return PublishedFile(
        variant,
        weights,
        place,
        resolution,
        outputs,
        license=LICENSES.get(family.key, family.license),
        host=HUGGING_FACE,
        beside=beside,
        is_projection=family.key in PROJECTIONS,
        **facts,
    )
