"""The numerics of the code that weights come from, and models that adopt them."""

import dataclasses

import keras

from vit_keras.layers import EncoderBlock, MAPHead, MlpBlock, ResNetStage, StdConv
from vit_keras.layers.base import check_choice
from vit_keras.layers.dense import GELUS
from vit_keras.layers.std_conv import STANDARDIZATIONS
from vit_keras.models import ImageModel, Preprocessing
from vit_keras.models.description import count_classes
from vit_keras.support.annotated import check_types
from vit_keras.support.keras_internals import sublayers
from vit_keras.support.preprocessing import PUBLISHED_PREPROCESSING, with_tuples
from vit_keras.support.resizing import Resizing
from vit_keras.support.tasks import CLASSES, Task

PUBLISHED_RESIZING = Resizing()
# Names in messages of the fields that may differ between a model and a format's code.
FIELD_LABELS = {
    "gelu": "GELU",
    "layer_norm_epsilon": "layer norm epsilon",
    "standardization": "the standardization",
    "group_norm_epsilon": "group norm epsilon",
}
NORMALIZATIONS = (keras.layers.LayerNormalization, keras.layers.RMSNormalization)
_UNIT_LAYERS = [f"{kind}{part}" for kind in ("conv", "gn") for part in ("1", "2", "3", "_proj")]


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
        check_choice(self.gelu, GELUS, "gelu")
        check_choice(self.standardization, STANDARDIZATIONS, "standardization")
        for name in ("layer_norm_epsilon", "group_norm_epsilon"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {value!r}")

    def to_json(self) -> dict:
        """Returns the fields as JSON values for a file's metadata, without a task for classes."""
        fields = dataclasses.asdict(self)
        if self.task == CLASSES:
            del fields["task"]
        return fields

    @classmethod
    def from_json(cls, fields: dict) -> "Numerics":
        """The reverse of `to_json`."""
        fields = with_tuples(fields)
        fields["task"] = Task(**with_tuples(fields.get("task", {})))
        fields["preprocessing"] = Preprocessing(**with_tuples(fields["preprocessing"]))
        fields["resizing"] = Resizing(**fields["resizing"])
        return cls(**fields)


def adopt_numerics(model: keras.Model, numerics: Numerics) -> None:
    """Makes `model` compute, prepare images and resize like the source of its weights."""
    set_computation(model, numerics)
    if isinstance(model, ImageModel):
        model.preprocessing, model.resizing = numerics.preprocessing, numerics.resizing
        names = numerics.class_names
        if names is not None and len(names) == count_classes(model):
            model.class_names = tuple(names)
        if numerics.task != CLASSES:
            model.task = numerics.task


def set_computation(model: keras.Model, numerics: Numerics) -> None:
    """Sets GELU and the epsilons in the stem, blocks, pooling and norms of `model`."""
    gelu, epsilon = numerics.gelu, numerics.layer_norm_epsilon
    if epsilon is None:
        epsilon = next(b.layer_norm_epsilon for b in model.layers if isinstance(b, EncoderBlock))
    _set_stem_computation(model, numerics)
    for layer in model.layers:
        if isinstance(layer, (EncoderBlock, MAPHead)):
            _set_block_computation(layer, gelu, epsilon)
        elif layer.name in ("pre_norm", "encoder_norm", "head_norm"):
            layer.epsilon = epsilon
    # Compiled steps still hold the old values.
    model.train_function = model.test_function = model.predict_function = None


def _set_block_computation(block, gelu, epsilon):
    block.gelu = gelu
    if isinstance(block.mlp, MlpBlock):
        block.mlp.gelu = gelu
    for layer in (block, *sublayers(block)):
        if hasattr(layer, "layer_norm_epsilon"):
            layer.layer_norm_epsilon = epsilon
        elif isinstance(layer, NORMALIZATIONS):
            layer.epsilon = epsilon


def _set_stem_computation(model, numerics):
    convention, epsilon = numerics.standardization, numerics.group_norm_epsilon
    if not any(isinstance(layer, StdConv) for layer in model.layers):
        return
    stages = [layer for layer in model.layers if isinstance(layer, ResNetStage)]
    units = [unit for stage in stages for unit in stage.units]
    for layer in stages + units:
        layer.standardization, layer.group_norm_epsilon = convention, epsilon
    inner = [getattr(unit, name, None) for unit in units for name in _UNIT_LAYERS]
    for layer in [*model.layers, *inner]:
        if isinstance(layer, StdConv):
            layer.standardization = convention
        elif isinstance(layer, keras.layers.GroupNormalization):
            layer.epsilon = epsilon
