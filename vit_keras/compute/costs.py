"""The costs of a forward pass, layer by layer."""

import concurrent.futures
import dataclasses
from collections.abc import Callable

import keras

from vit_keras.compute.rules import Convention, count
from vit_keras.layers.base import pair
from vit_keras.models import from_variant


@dataclasses.dataclass(frozen=True)
class Row:
    """One layer: parameters, multiply-adds and activations of one image.

    `activations` are the elements that its convolutions and matrix products put out, attention
    included, as fvcore counts them.
    """

    name: str
    kind: str
    params: int
    macs: int
    activations: int


@dataclasses.dataclass(frozen=True)
class Costs:
    """The layers of a model and, over all of them, the sums."""

    model: str
    image_size: tuple[int, int]
    rows: tuple[Row, ...]

    @property
    def params(self) -> int:
        return sum(row.params for row in self.rows)

    @property
    def macs(self) -> int:
        return sum(row.macs for row in self.rows)

    @property
    def activations(self) -> int:
        return sum(row.activations for row in self.rows)

    @property
    def flops(self) -> int:
        """2 × multiply-adds, the paper's convention."""
        return 2 * self.macs

    @property
    def gmacs(self) -> float:
        return self.macs / 1e9


def abstract_model(build: str | Callable[[], keras.Model], **arguments) -> keras.Model:
    """`build()`, or the model of a variant's name, with shapes of weights but no values.

    It takes no memory, counts and describes itself, and computes nothing:
    `abstract_model("H/14", image_size=224, num_classes=1000)`. `arguments` are `from_variant`'s.
    """
    if isinstance(build, str):
        variant, build = build, lambda: from_variant(variant, **arguments)

    def without_values():
        with keras.StatelessScope(initialize_variables=False):
            return build()

    # Keras lists variables without values by thread, and fills those of the thread's list at the
    # end of its next stateless scope: this thread has none.
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        return thread.submit(without_values).result()


def flops(
    model: keras.Model | str,
    image_size: int | tuple[int, int] | None = None,
    *,
    padding: bool = True,
    norms: bool = False,
    num_classes: int | None = 1000,
) -> Costs:
    """The costs of a forward pass of one image, counted layer by layer.

    `model` is a functional model, or a variant's name, which is built without memory at 224² pixels
    for `num_classes`. `image_size` is pixels, an int or (height, width), by default the model's
    own. Multiply-adds are those of all weights and of attention; `padding` and `norms` are
    `Convention`'s. Raises ValueError for a layer whose multiply-adds are not known, naming it, and
    where the size of the images is not.
    """
    name = model if isinstance(model, str) else model.name
    if isinstance(model, str):
        size = 224 if image_size is None else image_size
        model = abstract_model(model, image_size=size, num_classes=num_classes)
    elif image_size is not None:
        model = _abstract_copy(model, pair(image_size, "image_size"))
    size = tuple(model.input_shape[1:3])
    if None in size:
        raise ValueError(f"Model {name!r} takes images of any size: give an `image_size`")
    _check_called_once(model)
    convention = Convention(padding, norms)
    layers = [x for x in model.operations if not isinstance(x, keras.layers.InputLayer)]
    return Costs(name, size, tuple(_row(layer, convention) for layer in layers))


def _check_called_once(model):
    for layer in model.get_config()["layers"]:
        if (calls := len(layer["inbound_nodes"])) > 1:
            raise ValueError(
                f"Each layer must be called once to be counted. {layer['name']!r} is called "
                f"{calls} times"
            )


def _abstract_copy(model, image_size):
    shape = (*image_size, model.input_shape[-1])

    def copy():
        images = keras.Input(shape, dtype=model.input.dtype, name=model.input.name)
        return keras.models.clone_model(model, input_tensors=images)

    return abstract_model(copy)


def _row(layer, convention):
    products = list(count(layer, layer.input.shape, convention))
    macs, activations = (sum(column) for column in zip(*products)) if products else (0, 0)
    return Row(layer.name, type(layer).__name__, layer.count_params(), macs, activations)


def table(model: Costs | keras.Model | str, **arguments) -> str:
    """`flops` as text: one line a layer that costs or holds anything, the sums last."""
    costs = model if isinstance(model, Costs) else flops(model, **arguments)
    rows = [row for row in costs.rows if row.params or row.macs]
    total = Row("total", "", costs.params, costs.macs, costs.activations)
    names = [max(len(getattr(row, name)) for row in (*rows, total)) for name in ("name", "kind")]
    lines = [f"{'layer':<{names[0]}}  {'kind':<{names[1]}}  {'params':>13}  {'MMACs':>11}  M acts"]
    for row in (*rows, total):
        numbers = f"{row.params:>13,}  {row.macs / 1e6:>11,.2f}  {row.activations / 1e6:>6.2f}"
        lines.append(f"{row.name:<{names[0]}}  {row.kind:<{names[1]}}  {numbers}")
    size = "x".join(map(str, costs.image_size))
    lines.append(
        f"{costs.model} at {size}: {costs.params / 1e6:.2f} M parameters, {costs.gmacs:.2f} GMACs, "
        f"{costs.flops / 1e9:.2f} GFLOPs, {costs.activations / 1e6:.2f} M activations"
    )
    return "\n".join(lines)
