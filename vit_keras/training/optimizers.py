"""AdamW and SGD as in the published code, their schedules, and rules for individual layers."""

import contextlib
import math
import re

import keras
import ml_dtypes
import numpy as np
from keras import ops

from vit_keras.layers import backends
from vit_keras.layers.base import Configured
from vit_keras.models.common import matching_layers
from vit_keras.support import keras_internals
from vit_keras.support.checks import check_choice
from vit_keras.support.keras_internals import averages_of, layout_of
from vit_keras.training import topologies
from vit_keras.training.topologies import read_variable

STAIRS = (30, 60, 90)  # percent of the updates at which "staircase" divides the rate by 10


@keras.saving.register_keras_serializable(package="vit_keras")
class WarmupDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Warms the rate up linearly from 0, then decays it to 0 or in steps.

    At update t, the rate is learning_rate · f(p) · min(1, t / warmup_steps), as in the published
    code. p goes from 0 to 1 over the updates after the warmup.

    Args:
        learning_rate: The highest rate, per update.
        total_steps: The number of updates of the run.
        warmup_steps: The number of updates over which the rate rises.
        decay_type: "cosine", where f(p) = (1 + cos πp) / 2; "linear", where f(p) = 1 - p; or
            "staircase", where f is divided by 10 at 30, 60 and 90% of all updates (BiT's
            HyperRule, arXiv 1912.11370, Section 3.3).

    Example:
        >>> schedule = vit_keras.training.WarmupDecay(0.5, total_steps=100, warmup_steps=20)
        >>> [round(float(schedule(step)), 6) for step in (0, 10, 20, 60, 100)]
        [0.0, 0.25, 0.5, 0.25, 0.0]
    """

    def __init__(
        self, learning_rate: float, total_steps: int, warmup_steps: int = 0, decay_type="cosine"
    ):
        self.learning_rate, self.total_steps = learning_rate, total_steps
        self.warmup_steps, self.decay_type = warmup_steps, decay_type

    def __call__(self, step):
        step = ops.cast(step, "float32")
        progress = (step - self.warmup_steps) / max(self.total_steps - self.warmup_steps, 1)
        progress = ops.clip(progress, 0.0, 1.0)
        if self.decay_type == "staircase":
            first = (math.ceil(share * self.total_steps / 100) for share in STAIRS)
            factor = 10.0 ** -sum(ops.cast(step >= update, "float32") for update in first)
        elif self.decay_type == "cosine":
            factor = 0.5 * (1 + ops.cos(math.pi * progress))
        else:
            factor = 1 - progress
        rate = self.learning_rate * factor
        return rate * ops.minimum(1.0, step / self.warmup_steps) if self.warmup_steps else rate

    def get_config(self):
        return dict(vars(self))


@backends.dispatch("no_grad")
def no_grad():
    """Returns the context in which variables are updated in place."""
    return contextlib.nullcontext()


@backends.dispatch("global_norm")
def global_norm(tensors):
    """Returns the norm of all `tensors` together, a float32 scalar."""
    return ops.sqrt(sum(ops.sum(ops.square(ops.cast(x, "float32"))) for x in tensors))


@backends.dispatch("scale_tensors")
def scale_tensors(tensors, scale):
    """Returns `tensors` times `scale`; torch scales them in place, like `clip_grad_norm_`."""
    return [x * ops.cast(scale, x.dtype) for x in tensors]


@backends.dispatch("move_towards")
def move_towards(variables, targets, fraction):
    """Moves `variables` by `fraction` of the way to `targets`; 1 is all the way."""
    for variable, target in zip(variables, targets):
        step = ops.cast(fraction, variable.dtype) * (target - variable)
        variable.assign(variable + step)


@backends.dispatch("update_if")
def update_if(condition, update, otherwise, variables):
    """Calls `update()` if `condition` holds, else `otherwise()`; both assign to `variables`."""
    ops.cond(condition, update, otherwise)


DECAYED = ("/kernel", "/lora_kernel_a", "/lora_kernel_b")
update_groups = backends.lookup("update_groups")  # None: the backend updates one variable at a time


class UpdateRule(Configured, keras_internals.Optimizer):
    """Base class of optimizers that update w ← w - η_t · s · (u + λ · w).

    u is the direction that a subclass computes from the gradients, η_t the schedule's rate, s the
    layer's multiplier and λ the weight decay, which applies only to kernels and LoRA's factors.

    A subclass implements `add_slots(variables)`, which makes its own variables for the weights, and
    `update_group(weights, gradients, indices, rate, weight_decay)`, which updates the weights with
    these indices: on torch, all that share a rate and a decay; on the other backends, one at a
    time. `rate` is η_t · s.

    The differences from Keras' optimizers:

    - With `gradient_accumulation_steps`, the schedule, clipping and averaging of the weights happen
      once per update, on the mean of the gradients. The steps in between only add up gradients.
    - A variable's path determines its decay, so a saved optimizer that is loaded again still
      excludes biases, norms and embeddings. big_vision does not multiply its published values by
      the base rate: `weight_decay` is the published value divided by `learning_rate`, such as 0.1
      for 1e-4 at 1e-3.
    - With `use_ema`, Polyak's average starts as the weights after the first update. Then avg ← d ·
      avg + (1 - d) · w, where d is `ema_momentum`. `fit` does not replace the weights with it;
      `keras.callbacks.SwapEMAWeights()` evaluates the average.
    - The variable `gradient_norm` holds the global norm before clipping at the last update.

    Under mixed_float16, Keras wraps the optimizer in a `LossScaleOptimizer`. It skips a step whose
    gradients are not finite: the step counts neither as an update nor toward one.

    Args:
        learning_rate: A float or a schedule, which counts updates.
        layer_decay: The factor of the rate from each block to the previous one. None gives all
            layers the same rate.
        num_layers: The number of blocks of the model; only with `layer_decay`.
        **kwargs: Arguments of `keras.optimizers.Optimizer`, except `ema_overwrite_frequency`.

    Raises:
        ValueError: If `ema_overwrite_frequency` is given.
    """

    def __init__(self, learning_rate, *, layer_decay=None, num_layers=None, **kwargs):
        super().__init__(learning_rate, **kwargs)
        if self.ema_overwrite_frequency:
            raise ValueError(
                "`ema_overwrite_frequency` must be None, since the average never replaces the "
                f"weights. Received: ema_overwrite_frequency={self.ema_overwrite_frequency}"
            )
        self.layer_decay, self.num_layers = layer_decay, num_layers

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="only_first_replica", name="gradient_norm"
        )
        self._decays, self._multipliers = self.decayed(DECAYED), (1.0,) * len(variables)
        if self.layer_decay is not None:
            decay = (self.layer_decay, self.num_layers)
            self._multipliers = tuple(rate_multiplier(v.path, *decay) for v in variables)
        self.add_slots(variables)

    def update_step(self, gradient, variable, learning_rate):
        index = self.index_of(variable)
        gradient, rate = (ops.cast(x, variable.dtype) for x in (gradient, learning_rate))
        self.update_group([variable], [gradient], [index], *self._terms(index, rate))

    def _terms(self, index, learning_rate):
        """The rate and the weight decay of a variable."""
        decay = (self.weight_decay or 0.0) * self._decays[index]
        return learning_rate * self._multipliers[index], decay

    def apply_step(self, gradients, variables):
        gradients = topologies.reduce_gradients(gradients)  # before they are added up and clipped
        if self.gradient_accumulation_steps:
            self.accumulate(gradients, variables, self._update, update_if)
        else:
            self._update(gradients, variables)

    def _update(self, gradients, variables):
        with no_grad():
            norm = global_norm(gradients)
            self.gradient_norm.assign(norm)
            if self.global_clipnorm:
                scale = ops.where(norm < self.global_clipnorm, 1.0, self.global_clipnorm / norm)
                gradients = scale_tensors(gradients, scale)
            else:
                gradients = self.clip_each(gradients)
            self._update_variables(gradients, variables, self.learning_rate)
            if self.use_ema:
                rate = ops.where(ops.equal(self.iterations, 0), 1.0, 1 - self.ema_momentum)
                move_towards(averages_of(self), self.model_variables, rate)

    def _update_variables(self, gradients, variables, learning_rate):
        if update_groups is None:
            return self.update_each(gradients, variables, learning_rate)
        groups: dict[tuple[float, float], list[tuple]] = {}
        learning_rate = float(learning_rate)
        for gradient, variable in zip(gradients, variables):
            index = self.index_of(variable)
            terms = self._terms(index, learning_rate)
            groups.setdefault(terms, []).append((variable, gradient, index))
        update_groups(groups, self.update_group)

    def finalize_variable_values(self, var_list):
        """Keeps the weights; Keras would replace them with their average after each `fit`."""


@backends.dispatch("adamw_update")
def adamw_update(weights, gradients, means, squares, update, *, rate, weight_decay, betas, epsilon):
    """Applies update number `update` of AdamW to weights and to both moments."""
    for weight, gradient, m, v in zip(weights, gradients, means, squares):
        m.assign(betas[0] * m + (1 - betas[0]) * gradient)
        v.assign(betas[1] * v + (1 - betas[1]) * ops.square(gradient))
        number = ops.cast(update, gradient.dtype)
        corrected = ops.sqrt(v / (1 - ops.power(betas[1], number)))
        step = m / (1 - ops.power(betas[0], number)) / (corrected + epsilon)
        _move(weight, step, rate, weight_decay)


@backends.dispatch("sgd_update")
def sgd_update(weights, gradients, traces, momentum, *, rate, weight_decay):
    """Applies an update of SGD to weights and to the traces of the gradients."""
    for weight, gradient, trace in zip(weights, gradients, traces):
        step = momentum * ops.cast(trace, gradient.dtype) + gradient
        trace.assign(ops.cast(step, trace.dtype))
        _move(weight, step, rate, weight_decay)


def _move(weight, step, rate, weight_decay):
    """w ← w - rate · (step + weight_decay · w)."""
    if weight_decay:
        step = step + weight_decay * weight
    weight.assign(weight - rate * step)


@keras.saving.register_keras_serializable(package="vit_keras")
class AdamW(UpdateRule):
    """Adam with decoupled weight decay: u = m̂ / (√v̂ + ε), as in optax and Adam's Algorithm 1.

    Keras adds `epsilon` to √v before it corrects the bias. In the first updates, this is equivalent
    to an ε up to 32 times as large.

    Args:
        learning_rate: A rate or a schedule of rates.
        weight_decay: λ. It is multiplied by the learning rate and applies only to kernels.
        beta_1: The decay of the mean of the gradients, m.
        beta_2: The decay of the mean of their squares, v.
        epsilon: ε, the number added to √v̂.
        **kwargs: The arguments of `UpdateRule` and `keras.optimizers.Optimizer`.

    Example:
        ```python
        schedule = WarmupDecay(1e-3, total_steps=1000, warmup_steps=100)
        model.compile(AdamW(schedule, weight_decay=0.1), loss)
        ```
    """

    def __init__(
        self,
        learning_rate=0.001,
        weight_decay=0.0,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-8,
        **kwargs,
    ):
        super().__init__(learning_rate, weight_decay=weight_decay, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon

    def add_slots(self, variables):
        names = ["momentum", "velocity"]
        self._momentums, self._velocities = self.add_optimizer_variables(variables, names)

    def update_group(self, weights, gradients, indices, rate, weight_decay):
        moments = ([slot[i] for i in indices] for slot in (self._momentums, self._velocities))
        options = {"rate": rate, "weight_decay": weight_decay, "epsilon": self.epsilon}
        options["betas"] = (self.beta_1, self.beta_2)
        adamw_update(weights, gradients, *moments, self.iterations + 1, **options)


@keras.saving.register_keras_serializable(package="vit_keras")
class SGD(UpdateRule):
    """Gradient descent with momentum μ: u ← μ · u + g, as in optax (Table 4).

    Keras stores η · u instead of u, which gives different updates while the rate η changes.

    Args:
        learning_rate: A rate or a schedule of rates.
        momentum: μ, the momentum.
        momentum_dtype: The type that stores u. "bfloat16" reproduces the published fine-tuning: it
            rounds μ as well (0.9 to 0.8984) and computes the update in float32. The only other type
            is "float32".
        **kwargs: The arguments of `UpdateRule` and `keras.optimizers.Optimizer`.

    Example:
        ```python
        schedule = WarmupDecay(0.03, total_steps=1000, warmup_steps=100)
        model.compile(SGD(schedule, momentum_dtype="bfloat16"), loss)
        ```
    """

    def __init__(self, learning_rate=0.01, momentum=0.9, momentum_dtype="float32", **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.momentum, self.momentum_dtype = momentum, momentum_dtype
        rounded = {"float32": float, "bfloat16": ml_dtypes.bfloat16}
        check_choice(momentum_dtype, rounded, "momentum_dtype")
        self._momentum = float(rounded[momentum_dtype](momentum))

    def add_slots(self, variables):
        self._traces = [
            self.add_variable(
                v.shape,
                dtype=self.momentum_dtype,
                layout=layout_of(v),
                name=f"{v.path.replace('/', '_')}_trace",
            )
            for v in variables
        ]

    def update_group(self, weights, gradients, indices, rate, weight_decay):
        traces = [self._traces[index] for index in indices]
        options = {"rate": rate, "weight_decay": weight_decay}
        sgd_update(weights, gradients, traces, self._momentum, **options)


def build_optimizer(config, total_steps: int, model: keras.Model | None) -> UpdateRule:
    """Builds the optimizer that an `OptimizerConfig` describes.

    Args:
        config: The `optimizer` field of a run's `Config`.
        total_steps: The number of updates of the run, for the schedule.
        model: The model to train. It may be None without `layer_decay`.

    Raises:
        ValueError: If `layer_decay` is set and `model` has no transformer blocks.

    Example:
        ```python
        config = OptimizerConfig(name="sgd", learning_rate=0.03)
        model.compile(build_optimizer(config, total_steps=1000, model=model), loss)
        ```
    """
    schedule = (config.learning_rate, total_steps, config.warmup(total_steps), config.decay_type)
    shared = {
        "learning_rate": WarmupDecay(*schedule),
        "weight_decay": config.weight_decay,
        "global_clipnorm": config.grad_norm_clip,
        "use_ema": config.ema_decay is not None,
        "ema_momentum": config.ema_decay or 0.0,
    }
    if config.accumulation_steps > 1:
        shared["gradient_accumulation_steps"] = config.accumulation_steps
    if config.layer_decay is not None:
        shared |= {"layer_decay": config.layer_decay, "num_layers": num_blocks(model)}
    if config.name == "sgd":
        return SGD(momentum=config.momentum, momentum_dtype=config.momentum_dtype, **shared)
    return AdamW(beta_1=config.beta_1, beta_2=config.beta_2, **shared)


def inner_optimizer(model: keras.Model) -> keras.optimizers.Optimizer:
    """Returns the optimizer itself, without the loss scaling that wraps it under mixed_float16."""
    return getattr(model.optimizer, "inner_optimizer", model.optimizer)


def use_average(model: keras.Model) -> list[np.ndarray]:
    """Replaces the trainable weights of `model` with their average.

    Returns:
        Copies of the weights, for `put_back`; [] if the optimizer keeps no average. In this case,
        the weights do not change.
    """
    optimizer = inner_optimizer(model)
    if not optimizer.use_ema:
        return []
    weights = [read_variable(v) for v in model.trainable_variables]
    put_back(model, [read_variable(v) for v in averages_of(optimizer)])
    return weights


def put_back(model: keras.Model, weights: list[np.ndarray]) -> None:
    """Restores the weights that `use_average` returned."""
    for variable, value in zip(model.trainable_variables, weights):
        variable.assign(value)


BLOCK = re.compile(r"encoderblock_(\d+)")
FIRST = re.compile(
    r"embedding|cls|dist|(detection_)?registers|posembed_input|pre_norm|conv_root|gn_root|block\d+"
)


def rate_multiplier(path: str, layer_decay: float, num_layers: int) -> float:
    """Returns the learning-rate factor of the variable at `path` (as in BEiT and MAE).

    The factor is `layer_decay` to the power of `num_layers` + 1 - depth. The embeddings, a
    normalization after them and a ResNet stem have depth 0, and `encoderblock_{i}` has depth i + 1.
    All later layers have depth `num_layers` + 1, so their factor is 1.
    """
    layer = path.split("/")[0]
    if block := BLOCK.fullmatch(layer):
        depth = int(block[1]) + 1
    else:
        depth = 0 if FIRST.fullmatch(layer) else num_layers + 1
    return layer_decay ** (num_layers + 1 - depth)


def num_blocks(model: keras.Model) -> int:
    """Counts the transformer blocks of `model`; raises ValueError if there are none."""
    count = sum(BLOCK.fullmatch(layer.name) is not None for layer in model.layers)
    if not count:
        raise ValueError(
            "`layer_decay` needs a model with layers encoderblock_{i}. "
            f"Received: model {model.name!r}, which has none"
        )
    return count


def freeze(model: keras.Model, patterns) -> None:
    """Freezes the layers whose names match a pattern. Call it before `compile`.

    Dropout stays active in frozen layers.

    Args:
        model: The model whose layers to freeze.
        patterns: Names of layers. `*`, `?` and `[!h]` work as in `fnmatch`.

    Raises:
        ValueError: If a pattern matches no layer with weights, or if no layer is left to train.

    Example:
        freeze(model, ["embedding", "encoderblock_*"])  # positions, the last norm and head train
        freeze(model, ["[!h]*"])  # all names that do not begin with h: a linear probe
    """
    for layer in matching_layers(model, patterns, "freeze"):
        layer.trainable = False
    if not model.trainable_variables:
        names = ", ".join(layer.name for layer in model.layers if layer.weights)
        raise ValueError(
            "`freeze` must leave at least one layer that trains, such as the head. "
            f"Received: {list(patterns)}, which match all of {names}"
        )
