"""How a format's original code computes, beside the architectures of models."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from vit_keras.layers.base import GELUS
from vit_keras.layers.residual import STANDARDIZATIONS
from vit_keras.models import HybridViT, Preprocessing, ResNet, VisionTransformer
from vit_keras.models.architectures import HybridArchitecture as HybridArchitecture
from vit_keras.models.architectures import ResNetArchitecture as ResNetArchitecture
from vit_keras.models.architectures import (
    VisionTransformerArchitecture as VisionTransformerArchitecture,
)
from vit_keras.models.architectures import class_for as class_for
from vit_keras.models.architectures import grid_of as grid_of
from vit_keras.models.image_model import ImageModel
from vit_keras.support.checks import check_choices, check_types
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, Resizing, with_tuples
from vit_keras.support.tasks import CLASSES, Task

CONSTRUCTORS: dict[type, Callable[..., ImageModel]] = {
    VisionTransformerArchitecture: VisionTransformer,
    HybridArchitecture: HybridViT,
    ResNetArchitecture: ResNet,
}


def constructor_for(sizes: Mapping[str, Any]) -> Callable[..., ImageModel]:
    """Returns the constructor of a model with these `sizes`, which may be incomplete."""
    return CONSTRUCTORS[class_for(sizes)]


PUBLISHED_RESIZING = Resizing()


@dataclasses.dataclass(frozen=True)
class Numerics:
    """How a format's original code computes, prepares images and resizes a grid.

    Attributes:
        gelu: "exact", "tanh" or "quick".
        layer_norm_epsilon: The epsilon of all layer normalizations; None if the file does not give
            it, so a model keeps its own.
        preprocessing: How pixels become the model's input.
        resizing: The rules for position embeddings and patch kernels of other sizes.
        standardization: How the convolutions of a hybrid's stem standardize their kernels.
        group_norm_epsilon: The epsilon of all group normalizations in a hybrid's stem.
        class_names: Names of the classes in the order of the logits, or None.
        task: What the outputs mean.
    """

    gelu: str = "exact"
    layer_norm_epsilon: float | None = 1e-6
    preprocessing: Preprocessing = PUBLISHED_PREPROCESSING
    resizing: Resizing = PUBLISHED_RESIZING
    standardization: str = "vit"
    group_norm_epsilon: float = 1e-6
    class_names: tuple[str, ...] | None = None
    task: Task = CLASSES

    def __post_init__(self):
        check_types(self)
        check_choices(self, {"gelu": GELUS, "standardization": STANDARDIZATIONS})
        for name in ("layer_norm_epsilon", "group_norm_epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {value!r}")

    def to_json(self) -> dict:
        """Returns the fields as JSON values for a file's metadata; a task of classes is omitted."""
        fields = dataclasses.asdict(self)
        if self.task == CLASSES:
            del fields["task"]
        return fields

    @classmethod
    def from_json(cls, fields: dict) -> "Numerics":
        """The reverse of `to_json`."""
        fields = with_tuples(fields)
        fields["task"] = Task(**with_tuples(fields["task"])) if "task" in fields else CLASSES
        fields["preprocessing"] = Preprocessing(**with_tuples(fields["preprocessing"]))
        fields["resizing"] = Resizing(**fields["resizing"])
        return cls(**fields)
