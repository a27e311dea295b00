"""What the published training code does with gradients on every update, whatever the optimiser."""

import keras
from keras import ops

from vit_keras.layers import kernels
from vit_keras.training import distribution, list_ops
from vit_keras.training.layer_rules import rate_multiplier

update_groups = kernels.lookup("update_groups")  # None: the backend updates one variable at a time


class UpdateRule(keras.optimizers.Optimizer):
    """Base: w ← w - η_t · s · (u + λ · w), u the direction that a subclass makes of the gradients.

    η_t is the schedule's rate, s the layer's multiplier (`layer_decay`), λ `weight_decay`, of
    variables called `kernel` alone. A subclass gives `_direction(gradient, index)`, u for the
    variable of that number, and for speed `update_group(weights, gradients, indices, rate,
    weight_decay)`, the whole update of some variables as torch tensors.

    What differs from the optimisers of Keras:

    - With `gradient_accumulation_steps` everything happens once an update, on the mean of the
      gradients: the schedule, the clip, the average of the weights. In between nothing is computed.
    - λ is decided by the variable's path, so a saved optimiser loaded again spares biases, norms
      and embeddings as before. Published values of big_vision are not multiplied by the base rate:
      `weight_decay` here is theirs divided by `learning_rate`, 0.1 for their 1e-4 at 1e-3.
    - `use_ema`: Polyak's average starts as the weights after the first update, then
      avg ← d · avg + (1 - d) · w with d `ema_momentum`. It stays beside the weights, which `fit`
      leaves as they are; `keras.callbacks.SwapEMAWeights()` evaluates it.
    - `gradient_norm` is a variable, the global norm before the clip at the last update.

    In a `LossScaleOptimizer`, which Keras puts around it under mixed_float16, a step with gradients
    that are not finite is left out: it counts neither as an update nor as a part of one. Raises
    ValueError for `ema_overwrite_frequency`, and for one of `layer_decay` and `num_layers` alone.
    """

    def __init__(self, learning_rate, *, layer_decay=None, num_layers=None, **kwargs):
        super().__init__(learning_rate, **kwargs)
        if self.ema_overwrite_frequency:
            raise ValueError(
                "The average of the weights stays beside them: `ema_overwrite_frequency` must be "
                f"None. Received: {self.ema_overwrite_frequency}"
            )
        if (layer_decay is None) != (num_layers is None):
            raise ValueError(
                "Give `layer_decay` together with `num_layers`, the model's blocks. "
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

    def _reduce_gradients(self, gradients):
        """Gradients as computed -> of the whole batch, before they are added up and clipped."""
        return distribution.reduce_gradients(gradients)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        """Nothing: TensorFlow's own sum over replicas, which would follow the clip."""
        return grads_and_vars

    def _get_current_learning_rate(self):
        if isinstance(self._learning_rate, keras.optimizers.schedules.LearningRateSchedule):
            return self._learning_rate(self.iterations)  # updates; Keras gives it parts of them
        return super()._get_current_learning_rate()

    def _use_weight_decay(self, variable):
        path = self._trainable_variables[self._get_variable_index(variable)].path
        return path.endswith("/kernel") and super()._use_weight_decay(variable)

    def _apply_weight_decay(self, variables):
        """Nothing: `update_step` decays with the variable's own rate."""

    def update_step(self, gradient, variable, learning_rate):
        index, rate, decay = self._terms(variable, learning_rate)
        step = self._direction(ops.cast(gradient, variable.dtype), index)
        if decay:
            step = step + decay * variable
        self.assign_sub(variable, rate * step)

    def _terms(self, variable, learning_rate):
        """The variable's number, its own rate η_t · s and its λ."""
        index = self._get_variable_index(variable)
        rate = ops.cast(learning_rate, variable.dtype) * self._multipliers[index]
        return index, rate, self._decay(variable)

    def _decay(self, variable) -> float:
        return self.weight_decay or 0.0 if self._use_weight_decay(variable) else 0.0

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        if update_groups is None:
            return super()._backend_update_step(grads, trainable_variables, learning_rate)
        groups = {}
        for gradient, variable in zip(grads, trainable_variables):
            index = self._get_variable_index(variable)
            terms = float(learning_rate) * self._multipliers[index], self._decay(variable)
            groups.setdefault(terms, []).append((variable, gradient, index))
        update_groups(groups, self.update_group)

    def _backend_apply_gradients(self, grads, trainable_variables):
        grads = self._reduce_gradients(grads)
        parts = self.gradient_accumulation_steps
        if not parts:
            return self._update(grads, trainable_variables)
        indices = map(self._get_variable_index, trainable_variables)
        sums = [self._accumulated_gradients[index] for index in indices]

        def update():
            means = [(gradient + total) / parts for gradient, total in zip(grads, sums)]
            self._update(means, trainable_variables)
            self._backend_reset_gradient_accumulators()

        def add():
            self._backend_increment_gradient_accumulators(grads, sums)

        changed = [*self._trainable_variables, *self.variables]
        list_ops.update_if(ops.equal((self._iterations + 1) % parts, 0), update, add, changed)

    def _update(self, grads, variables):
        with list_ops.no_grad():
            grads = self._clip_gradients(grads)
            self._backend_update_step(grads, variables, self.learning_rate)
            self._update_model_variables_moving_average(self._trainable_variables)

    def _clip_gradients(self, grads):
        norm = list_ops.global_norm(grads)
        self.gradient_norm.assign(norm)
        if not self.global_clipnorm:
            return super()._clip_gradients(grads)
        scale = ops.where(norm < self.global_clipnorm, 1.0, self.global_clipnorm / norm)
        return list_ops.scale_tensors(grads, scale)

    def _update_model_variables_moving_average(self, trainable_variables):
        if not self.use_ema:
            return
        rate = ops.where(ops.equal(self.iterations, 0), 1.0, 1 - self.ema_momentum)
        list_ops.move_towards(self._model_variables_moving_average, trainable_variables, rate)

    def finalize_variable_values(self, var_list):
        """Nothing: Keras would put the average in the place of the weights after each `fit`."""
