"""AdamW and SGD with the update rules of the published training code."""

import keras
import ml_dtypes
from keras import ops

from vit_keras.keras_internals import layout_of
from vit_keras.layers import backends
from vit_keras.training.layer_rules import num_blocks
from vit_keras.training.schedules import WarmupDecay
from vit_keras.training.update_rule import UpdateRule

adam_update = backends.lookup("adam_update")


@keras.saving.register_keras_serializable(package="vit_keras")
class AdamW(UpdateRule):
    """Adam with decoupled weight decay: u = m̂ / (√v̂ + ε), as in optax and Adam's Algorithm 1.

    Keras adds `epsilon` to √v before it corrects the bias. In the first updates, this is equivalent
    to an ε that is up to 32 times as large.

    Args:
        learning_rate: a rate or a schedule of rates.
        weight_decay: λ, which is multiplied by the learning rate and applies to kernels only.
        beta_1: The decay of the mean of the gradients, m.
        beta_2: The decay of the mean of their squares, v.
        epsilon: ε.
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

    def get_config(self):
        constants = {"beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        return {**super().get_config(), **constants}

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def _direction(self, gradient, index):
        m, v = self._momentums[index], self._velocities[index]
        self.assign(m, self.beta_1 * m + (1 - self.beta_1) * gradient)
        self.assign(v, self.beta_2 * v + (1 - self.beta_2) * ops.square(gradient))
        update = ops.cast(self.iterations + 1, gradient.dtype)
        corrected = ops.sqrt(v / (1 - ops.power(self.beta_2, update)))
        return m / (1 - ops.power(self.beta_1, update)) / (corrected + self.epsilon)

    def update_step(self, gradient, variable, learning_rate):
        """Updates a variable; TensorFlow has an operator that does it in one pass."""
        if adam_update is None:
            return super().update_step(gradient, variable, learning_rate)
        index, rate, decay = self._terms(variable, learning_rate)
        if decay:
            self.assign(variable, (1 - rate * decay) * variable)
        adam_update(
            variable,
            ops.cast(gradient, variable.dtype),
            self._momentums[index],
            self._velocities[index],
            ops.cast(self.iterations + 1, variable.dtype),
            rate=rate,
            **self._constants(),
        )

    def update_group(self, weights, gradients, indices, rate, weight_decay):
        moments = ([slot[i] for i in indices] for slot in (self._momentums, self._velocities))
        update = backends.lookup("adamw_update")
        assert update is not None  # it comes with "update_groups", which calls this method
        update(
            *(weights, gradients, *moments, self.iterations + 1),
            rate=rate,
            weight_decay=weight_decay,
            **self._constants(),
        )

    def _constants(self):
        return {"betas": (self.beta_1, self.beta_2), "epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="vit_keras")
class SGD(UpdateRule):
    """Gradient descent with momentum μ: u ← μ · u + g, as in optax (Table 4).

    Keras stores η · u instead of u, which gives other updates while the learning rate η changes.

    Args:
        learning_rate: a rate or a schedule of rates.
        momentum: μ.
        momentum_dtype: The type that stores u. "bfloat16" repeats the published fine-tuning: it
            rounds μ as well (0.9 to 0.8984) and computes the update in float32.
        **kwargs: The arguments of `UpdateRule` and `keras.optimizers.Optimizer`.

    Raises:
        ValueError: `momentum_dtype` is neither "float32" nor "bfloat16".

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
        if momentum_dtype not in rounded:
            raise ValueError(
                f"`momentum_dtype` must be one of {', '.join(rounded)}. Received: {momentum_dtype}"
            )
        self._momentum = float(rounded[momentum_dtype](momentum))

    def get_config(self):
        arguments = {"momentum": self.momentum, "momentum_dtype": self.momentum_dtype}
        return {**super().get_config(), **arguments}

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._traces = [
            self.add_variable(
                v.shape,
                dtype=self.momentum_dtype,
                layout=layout_of(v),
                name=f"{v.path.replace('/', '_')}_trace",
            )
            for v in variables
        ]

    def _direction(self, gradient, index):
        trace = self._traces[index]
        new = self._momentum * ops.cast(trace, gradient.dtype) + gradient
        self.assign(trace, ops.cast(new, trace.dtype))
        return new

    def update_group(self, weights, gradients, indices, rate, weight_decay):
        traces = [self._traces[index] for index in indices]
        update = backends.lookup("sgd_update")
        assert update is not None  # it comes with "update_groups", which calls this method
        update(weights, gradients, traces, self._momentum, rate=rate, weight_decay=weight_decay)


def build_optimizer(config, total_steps: int, model: keras.Model | None) -> UpdateRule:
    """Builds the optimizer that an `OptimizerConfig` describes.

    Args:
        config: The `optimizer` field of a run's `Config`.
        total_steps: The number of updates of the run, for the schedule.
        model: The model to train; only `layer_decay` needs it, otherwise it may be None.

    Raises:
        ValueError: `layer_decay` is set and `model` has no transformer blocks.

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
