"""The architecture of BiT's ResNets (arXiv 1912.11370)."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import keras

from vit_keras.layers import ResNetStage, RootBlock
from vit_keras.models import ResNet
from vit_keras.models.image_model import ImageModel
from vit_keras.variants import ROOT_WIDTH
from vit_keras.weights.architectures.paths import dense_paths, resnet_paths


@dataclasses.dataclass(frozen=True)
class ResNetArchitecture:
    """The arguments of `ResNet` that decide names and shapes.

    `VisionTransformerArchitecture` documents the class attributes.
    """

    constructor: ClassVar[Callable[..., ImageModel]] = staticmethod(ResNet)
    numerics_fields: ClassVar[tuple[str, ...]] = ()
    required: ClassVar[tuple[str, ...]] = ()
    defaults: ClassVar[dict[str, Any]] = {"image_size": None, "num_classes": None}

    image_size: tuple[int | None, int | None]
    channels: int
    resnet_layers: tuple[int, ...]
    resnet_width: float
    num_classes: int | None

    @staticmethod
    def from_model(model: keras.Model) -> "ResNetArchitecture":
        """Reads the architecture off a built `ResNet`.

        Raises:
            ValueError: If the model is no `ResNet`.
        """
        roots = [layer for layer in model.layers if isinstance(layer, RootBlock)]
        if len(roots) != 1:
            raise ValueError(
                f"BiT's files hold models of `ResNet`. Received: model {model.name!r}, which has "
                "no RootBlock"
            )
        stages = [layer for layer in model.layers if isinstance(layer, ResNetStage)]
        head = next((layer for layer in model.layers if layer.name == "head"), None)
        return ResNetArchitecture(
            image_size=tuple(model.input_shape[1:3]),
            channels=model.input_shape[-1],
            resnet_layers=tuple(stage.num_units for stage in stages),
            resnet_width=roots[0].filters / ROOT_WIDTH,
            num_classes=None if head is None else head.units,
        )

    @classmethod
    def argument_names(cls) -> set[str]:
        """The names of the constructor's arguments."""
        return set(inspect.signature(ResNet).parameters)

    @property
    def arguments(self) -> dict:
        """The arguments of the constructor."""
        return dataclasses.asdict(self)

    def paths(self) -> list[str]:
        """The paths of the model's variables, in the order of its layers."""
        head = dense_paths("head") if self.num_classes is not None else []
        return resnet_paths(self.resnet_layers) + head
