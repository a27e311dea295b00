"""transformers' image processors: `preprocessor_config.json` in and out."""

from typing import Any

from vit_keras.layers.base import check_choice
from vit_keras.models import Preprocessing

PIL_RESAMPLE = {"bilinear": 2, "bicubic": 3}
HALF, IMAGENET = ((0.5,) * 3,) * 2, ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
OPENAI = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
SQUARE, EDGE = {"height": 224, "width": 224}, {"shortest_edge": 224}


def _defaults(numbers, resample, size, crop=None):
    mean, std = numbers
    fields = {"image_mean": mean, "image_std": std, "resample": resample, "size": size}
    return {**fields, "do_center_crop": crop is not None, "crop_size": crop or SQUARE}


# The defaults of each class, for what a file does not say.
PROCESSORS: dict[str, dict[str, Any]] = {
    "ViTImageProcessor": _defaults(HALF, 2, SQUARE),
    "DeiTImageProcessor": _defaults(HALF, 3, {"height": 256, "width": 256}, SQUARE),
    "BeitImageProcessor": _defaults(HALF, 3, SQUARE),
    "BitImageProcessor": _defaults(OPENAI, 3, EDGE, SQUARE),
    "DINOv3ViTImageProcessor": _defaults(IMAGENET, 2, SQUARE),
    "CLIPImageProcessor": _defaults(OPENAI, 3, EDGE, SQUARE),
    "SiglipImageProcessor": _defaults(HALF, 3, SQUARE),
    "Siglip2ImageProcessor": _defaults(HALF, 2, SQUARE),
}
EXACT = ("DINOv3ViTImageProcessor",)  # which scales levels to floats before it resizes them
CROP = ("CLIPImageProcessor", "BitImageProcessor")


def read_processor(settings: dict, processor: str) -> Preprocessing:
    """Returns the preprocessing of a folder.

    Args:
        settings: The content of `preprocessor_config.json`; empty without such a file.
        processor: The class of the model type, for a file that does not name its own.
    """
    name = settings.get("image_processor_type") or settings.get("feature_extractor_type") or ""
    name = name.removesuffix("Fast").removesuffix("Pil")
    name = name.replace("FeatureExtractor", "ImageProcessor")
    name = name if name in PROCESSORS else processor
    fields = {**PROCESSORS[name], **settings}
    resamples = {number: method for method, number in PIL_RESAMPLE.items()}
    normalizes = fields.get("do_normalize", True)
    return Preprocessing(
        mean=tuple(fields["image_mean"]) if normalizes else (0.0,),
        std=tuple(fields["image_std"]) if normalizes else (1.0,),
        interpolation=resamples.get(fields["resample"], "bilinear"),
        antialias=True,
        crop_fraction=(crop := _crop_fraction(fields)),
        rounding="none" if name in EXACT and crop is None else "transformers",
    )


def _crop_fraction(fields):
    """The crop's side as a share of the resized picture's; None without a crop.

    DeiT resizes pictures to a square before it crops them. Its own code resizes the shorter side.
    """
    if not fields["do_center_crop"]:
        return None
    size, crop = (_shorter_side(fields[name]) for name in ("size", "crop_size"))
    return None if not size or not crop else min(crop / size, 1.0)


def _shorter_side(size):
    if isinstance(size, int):
        return size
    return size.get("shortest_edge") or min(size.get("height", 0), size.get("width", 0))


def write_processor(arch, pixels: Preprocessing, processor: str) -> dict:
    """Returns the content of `preprocessor_config.json`.

    Args:
        arch: The architecture of the model.
        pixels: The preprocessing of the model.
        processor: The class of the model type. A crop that this class cannot take is written for
            CLIP's, as DeiT's, which first resizes pictures to a square.
    """
    check_choice(pixels.interpolation, PIL_RESAMPLE, "interpolation")
    height, width = arch.image_size
    crops = pixels.crop_fraction is not None
    config = {
        "image_processor_type": processor if not crops or processor in CROP else CROP[0],
        "do_resize": True,
        "size": {"height": height, "width": width},
        "resample": PIL_RESAMPLE[pixels.interpolation],
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(pixels.mean) * (arch.channels if len(pixels.mean) == 1 else 1),
        "image_std": list(pixels.std) * (arch.channels if len(pixels.std) == 1 else 1),
        "do_center_crop": crops,
    }
    if processor == "Siglip2ImageProcessor":
        config |= {"patch_size": arch.patch_size[0], "max_num_patches": arch.num_positions}
    if pixels.crop_fraction is not None:
        config["size"] = {"shortest_edge": pixels.side_before_crop(min(height, width))}
        config["crop_size"] = {"height": height, "width": width}
    return config
