"""The parts of an update that all optimizers of the published training code share."""

from keras import ops

from vit_keras import keras_internals
from vit_keras.layers import backends
from vit_keras.training import distribution, list_ops
from vit_keras.training.layer_rules import rate_multiplier

DECAYED = ("/kernel", "/lora_kernel_a", "/lora_kernel_b")
update_groups = backends.lookup("update_groups")  # None: the backend updates one variable at a time


class UpdateRule(keras_internals.Optimizer):
    """Base of optimizers that update w ← w - η_t · s · (u + λ · w).

    u is the direction that a subclass makes of the gradients, η_t the rate of the schedule, s the
    multiplier of the layer and λ the weight decay, for kernels and LoRA's factors only.

    A subclass gives `_direction(gradient, index)`, which returns u for the variable of that index,
    and `update_group(weights, gradients, indices, rate, weight_decay)`, which on torch updates
    several tensors at once.

    The differences from the optimizers of Keras:

    - With `gradient_accumulation_steps` the schedule, the clip and the average of the weights
      follow once an update, on the mean of the gradients. The steps in between only add up.
    - The path of a variable decides on its decay, so a saved optimizer that is loaded again spares
      biases, norms and embeddings as before. big_vision does not multiply its published values by
      the base rate: `weight_decay` is the published value divided by `learning_rate`, such as 0.1
      for 1e-4 at 1e-3.
    - With `use_ema` Polyak's average starts as the weights after the first update. Then
      avg ← d · avg + (1 - d) · w, where d is `ema_momentum`. `fit` leaves the weights as they are;
      `keras.callbacks.SwapEMAWeights()` evaluates the average.
    - The variable `gradient_norm` holds the global norm before the clip at the last update.

    Under mixed_float16 Keras wraps it in a `LossScaleOptimizer`, which skips a step whose gradients
    are not finite: it counts neither as an update nor as a part of one.

    Args:
        learning_rate: A float or a schedule, which counts updates.
        layer_decay: The factor by which the rate falls from each block to the one before it. None
            gives all layers the same rate.
        num_layers: The number of blocks of the model; only with `layer_decay`.
        **kwargs: Arguments of `keras.optimizers.Optimizer`, except `ema_overwrite_frequency`.

    Raises:
        ValueError: For `ema_overwrite_frequency`, or if only one of `layer_decay` and `num_layers`
            is given.
    """

    def __init__(self, learning_rate, *, layer_decay=None, num_layers=None, **kwargs):
        super().__init__(learning_rate, **kwargs)
        if self.ema_overwrite_frequency:
            raise ValueError(
                "`ema_overwrite_frequency` must be None, since the average never replaces the "
                f"weights. Received: ema_overwrite_frequency={self.ema_overwrite_frequency}"
            )
        if (layer_decay is None) != (num_layers is None):
            raise ValueError(
                "Give `layer_decay` together with `num_layers`, the number of the model's blocks. "
                f"Received: layer_decay={layer_decay}, num_layers={num_layers}"
            )
        self.layer_decay, self.num_layers = layer_decay, num_layers

    def get_config(self):
        return {
            **super().get_config(),
            "layer_decay": self.layer_decay,
            "num_layers": self.num_layers,
        }

    def build(self, variables):
        super().build(variables)
        self.gradient_norm = self.add_variable(
            (), dtype="float32", aggregation="only_first_replica", name="gradient_norm"
        )
        decay = (self.layer_decay or 1.0, self.num_layers or 0)
        self._multipliers = tuple(rate_multiplier(v.path, *decay) for v in variables)

    def update_step(self, gradient, variable, learning_rate):
        index, rate, decay = self._terms(variable, learning_rate)
        step = self._direction(ops.cast(gradient, variable.dtype), index)
        if decay:
            step = step + decay * variable
        self.assign_sub(variable, rate * step)

    def update_group(self, weights, gradients, indices, rate, weight_decay):
        """Updates torch tensors that share `rate` and `weight_decay`, in place."""
        raise NotImplementedError

    def _terms(self, variable, learning_rate):
        """The variable's index, its rate η_t · s and its λ."""
        index = self.index_of(variable)
        rate = ops.cast(learning_rate, variable.dtype) * self._multipliers[index]
        return index, rate, self._decay(index, variable)

    def _decay(self, index, variable) -> float:
        decays = self.model_variables[index].path.endswith(DECAYED) and self.may_decay(variable)
        return self.weight_decay or 0.0 if decays else 0.0

    def apply_step(self, gradients, variables):
        gradients = distribution.reduce_gradients(gradients)  # before they are added up and clipped
        steps = self.gradient_accumulation_steps
        if not steps:
            return self._update(gradients, variables)
        sums = self.gradient_sums(variables)

        def update():
            means = [(gradient + total) / steps for gradient, total in zip(gradients, sums)]
            self._update(means, variables)
            self.reset_sums()

        def add():
            self.add_to_sums(gradients, sums)

        changed = [*self.model_variables, *self.variables]
        list_ops.update_if(self.completes_update(), update, add, changed)

    def _update(self, gradients, variables):
        with list_ops.no_grad():
            gradients = self._clip(gradients)
            self._update_variables(gradients, variables, self.learning_rate)
            self._update_averages()

    def _clip(self, gradients):
        norm = list_ops.global_norm(gradients)
        self.gradient_norm.assign(norm)
        if not self.global_clipnorm:
            return self.clip_each(gradients)
        scale = ops.where(norm < self.global_clipnorm, 1.0, self.global_clipnorm / norm)
        return list_ops.scale_tensors(gradients, scale)

    def _update_variables(self, gradients, variables, learning_rate):
        if update_groups is None:
            return self.update_each(gradients, variables, learning_rate)
        groups: dict[tuple[float, float], list[tuple]] = {}
        learning_rate = float(learning_rate)
        for gradient, variable in zip(gradients, variables):
            index = self.index_of(variable)
            terms = learning_rate * self._multipliers[index], self._decay(index, variable)
            groups.setdefault(terms, []).append((variable, gradient, index))
        update_groups(groups, self.update_group)

    def _update_averages(self):
        if not self.use_ema:
            return
        rate = ops.where(ops.equal(self.iterations, 0), 1.0, 1 - self.ema_momentum)
        list_ops.move_towards(self.averages, self.model_variables, rate)

    def finalize_variable_values(self, var_list):
        """Leaves the weights; Keras would replace them by their average after each `fit`."""
