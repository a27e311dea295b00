"""A row of the table of families."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from vit_keras.variants.rows import FamilyVariant, Variant

TI, S, M = (192, 12, 3, 768), (384, 12, 6, 1536), (512, 12, 8, 2048)
B, L, H = (768, 12, 12, 3072), (1024, 24, 16, 4096), (1280, 32, 16, 5120)
SO400M = (1152, 27, 16, 4304)
G = (1408, 40, 16, 6144)  # ViT-g


# The defaults for what a family's row leaves out.
PLAIN = {
    "num_classes": None,
    "classifier": "token",
    "position_embedding": "learned",
    "gelu": "exact",
    "layer_norm_epsilon": 1e-6,
}
PAPERS = "https://arxiv.org/abs/"
CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
BICUBIC = {"interpolation": "bicubic", "antialias": True}
BILINEAR = {"interpolation": "bilinear", "antialias": True}
CROP_7_8 = {"crop_fraction": 0.875}
CROP_ALL = {"crop_fraction": 1.0}  # the shorter side is resized to the model's size


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models: how they differ from the paper's Vision Transformer, and their sizes.

    Attributes:
        name: The beginning of the names of its variants, such as "DINOv2".
        title: The title of its paper.
        paper: The URL of the paper.
        license: The license of the published weights.
        function: The names of its constructors in `vit_keras.applications`, with `{}` for the size.
        sizes: `{name of a size: Variant}`.
        arguments: The arguments of `VisionTransformer` that the models share, besides the sizes:
            the fields of `ViTOptions`, `classifier`, `gelu`, `layer_norm_epsilon` and so on. The
            published models have `num_classes` outputs.
        differences: `{name of a size: arguments that it adds or replaces}`.
        pixels: The side of the images that the published models take, or their height and width.
        other_pixels: `{name of a size: its pixels}`, for sizes with other images.
        preprocessing: The fields of `vit_keras.models.Preprocessing`.
        resizing: The rules for positions and patches, a `vit_keras.support.resizing.Resizing`.
        suffix: The end of the names of its variants.

    Example:
        ```python
        vit_keras.variants.families.FAMILIES["DINOv2"].arguments["layer_scale"]  # 1e-05
        ```
    """

    name: str
    title: str
    paper: str
    license: str
    function: str
    sizes: Mapping[str, Variant]
    arguments: Mapping[str, Any]
    preprocessing: Mapping[str, Any]
    resizing: tuple[str, str] = ("bicubic", "bilinear_half_pixel")
    differences: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    pixels: int | tuple[int, int] = 224
    other_pixels: Mapping[str, int | tuple[int, int]] = dataclasses.field(default_factory=dict)
    suffix: str = ""

    @property
    def key(self) -> str:
        """The name in the table, such as "DINOv2" or "DINOv2-reg"."""
        return self.name + self.suffix

    def variants(self) -> Iterator[tuple[str, FamilyVariant]]:
        """Yields the name and the row of each variant."""
        for size, row in self.sizes.items():
            arguments = {**PLAIN, **self.arguments, **self.differences.get(size, {})}
            pixels = self.other_pixels.get(size, self.pixels)
            facts: dict[str, Any] = {
                "family": self.key,
                "size": size,
                "pixels": pixels,
                "arguments": arguments,
            }
            yield self.variant(size), FamilyVariant(**dataclasses.asdict(row), **facts)

    def variant(self, size: str) -> str:
        """Returns the name of a size's variant, such as "DINOv2-S/14" for "S/14"."""
        return f"{self.name}-{size}{self.suffix}"

    def function_of(self, size: str) -> str:
        """Returns the name of a size's constructor, such as "DINOv2S14" for "S/14"."""
        words = size.replace("/", "").replace("+", "Plus").replace("g-opt", "Gopt")
        words = words.replace("-", "_")
        return self.function.format(f"_{words}" if words[0].isdigit() else words)
