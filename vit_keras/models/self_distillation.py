"""The layer that trains a student on the outputs of its own moving average (DINO)."""

import math
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from vit_keras.layers import PrototypeHead
from vit_keras.layers.base import SeededLayer
from vit_keras.layers.positions import ADDED_LAYERS
from vit_keras.models.surgery import refuse_fixed_grids, with_dynamic_positions
from vit_keras.support.keras_internals import sublayers
from vit_keras.support.preprocessing import with_tuples

if TYPE_CHECKING:
    from vit_keras.config import DinoConfig

GLOBAL_VIEWS = 2


@keras.saving.register_keras_serializable(package="vit_keras")
class SelfDistillation(SeededLayer):
    """Computes the loss of DINO on views of images (arXiv 2104.14294, Algorithm 1).

    The student sees all views, and the teacher only the global ones. The loss is the mean
    cross-entropy between the teacher's distribution over K prototypes for one view and the
    student's for another view of the same image. No gradient reaches the teacher.

    Each update begins by finishing the previous one: the teacher's weights move toward the
    student's, and the center moves toward the mean of the teacher's last outputs. So an update sees
    the same teacher and center as in the published order, where both move at the end of an update.
    All batches of an accumulated update also see the same teacher and center.

    Args:
        encoder: A functional model from images `(B, H, W, C)` to features `(B, D)`. It becomes the
            teacher and no longer trains; the student is a copy.
        config: A `DinoConfig`, or a dictionary of its fields.
        total_steps: The number of updates of the run.
        accumulation_steps: The number of training calls that make up an update.
        **kwargs: Arguments of `SeededLayer`.

    Input shape:
        Global views `(B, 2, H, W, C)` and local views `(B, n, h, w, C)`.

    Output shape:
        `(B, 2)`, float32: the loss of each image, and the entropy of the teacher's distributions.
        The entropy lies between 0 and log K; both ends mean that the features have collapsed.

    Raises:
        ValueError: If the encoder has positions in its attention, or the patch does not divide a
            view.

    Example:
        ```python
        features = keras.Model(encoder.input, encoder.get_layer("token").output)
        layer = SelfDistillation(features, DinoConfig(), total_steps=125_000)
        losses, entropies = ops.unstack(layer(views, local_views, training=True), axis=-1)
        ```
    """

    def __init__(
        self,
        encoder: keras.Model,
        config: "DinoConfig | dict[str, Any]",
        total_steps: int,
        accumulation_steps: int = 1,
        **kwargs,
    ):
        super().__init__(**{"dtype": "float32", **kwargs})
        if isinstance(config, dict):
            from vit_keras.config import DinoConfig  # no other model needs the room

            config = DinoConfig(**with_tuples(config))
        self.config = config
        self.total_steps, self.accumulation_steps = total_steps, accumulation_steps
        self.teacher, self.student = encoder, keras.models.clone_model(encoder)
        self.local_student = with_shared_layers(self.student, (config.local_size,) * 2)
        policy = encoder.layers[1].dtype_policy
        sizes = config.prototypes, config.head_hidden_size, config.bottleneck_size
        self.teacher_head, self.student_head = (
            PrototypeHead(*sizes, seed=self.fold_in("head"), dtype=policy, name=name)
            for name in ("teacher_head", "student_head")
        )
        # On TensorFlow, setting `trainable` to a model's current value does not reach its layers.
        for trains, networks in ((False, (encoder, self.teacher_head)), (True, (self.student,))):
            for layer in (layer for network in networks for layer in sublayers(network)):
                layer.trainable = trains
        views = GLOBAL_VIEWS + config.local_crops
        pairs = 1 - np.eye(GLOBAL_VIEWS, views, dtype="float32")
        self.pairs = pairs / pairs.sum()  # (2, V): no view is compared with itself

    def build(self, views_shape, local_views_shape):
        for head in (self.teacher_head, self.student_head):
            head.build(self.student.output_shape)
        state = {"initializer": "zeros", "trainable": False}
        self.calls = self.add_weight(name="calls", shape=(), dtype="int32", **state)
        shape = (self.config.prototypes,)
        self.center = self.add_weight(name="center", shape=shape, **state)
        self.next_center = self.add_weight(name="next_center", shape=shape, **state)

    def call(self, views, local_views, training=None):
        if training:
            self._begin_update()
        update = ops.cast(self.calls // self.accumulation_steps, "float32")
        outputs = self.teacher_head(self.teacher(_merge(views), training=False))
        outputs = ops.stop_gradient(_split(outputs, views))  # (B, 2, K)
        temperature = self.temperature(update)
        targets = ops.softmax((outputs - self.center) / temperature)
        surprise = -ops.log_softmax((outputs - self.center) / temperature)
        if training:
            part = ops.mean(outputs, axis=(0, 1)) / self.accumulation_steps
            self.next_center.assign(self.next_center + part)
            self.calls.assign(self.calls + 1)
        frozen = update < self.config.frozen_prototypes * self.total_steps
        x = [
            _split(self.student_head(student(_merge(x), training=training), frozen=frozen), x)
            for student, x in ((self.student, views), (self.local_student, local_views))
        ]  # (B, 2, K) and (B, n, K)
        x = ops.concatenate(x, axis=1) / self.config.student_temperature
        losses = -ops.einsum("btk,bvk->btv", targets, ops.log_softmax(x))
        loss = ops.sum(losses * ops.convert_to_tensor(self.pairs), axis=(1, 2))
        entropy = ops.mean(ops.sum(targets * surprise, axis=-1), axis=-1)
        return ops.stack([loss, entropy], axis=-1)

    def momentum(self, update):
        """The teacher's momentum after an update, which grows from `teacher_momentum` to 1."""
        share = 0.5 * (1 + ops.cos(math.pi * update / self.total_steps))
        return 1 - (1 - self.config.teacher_momentum) * share

    def temperature(self, update):
        """The temperature of the teacher's softmax in an update."""
        first, last = self.config.warmup_temperature, self.config.teacher_temperature
        warmup = self.config.temperature_warmup * self.total_steps
        share = ops.minimum(update / warmup, 1.0) if warmup else 1.0
        return first + (last - first) * share

    def _begin_update(self):
        """Moves the teacher and the center when an update other than the first begins."""
        update, part = self.calls // self.accumulation_steps, self.calls % self.accumulation_steps
        is_due = ops.logical_and(update > 0, ops.equal(part, 0))
        rate = 1 - self.momentum(ops.cast(update, "float32") - 1)
        rate = ops.where(is_due, rate, 0.0)
        for variable, target in self.variable_pairs:
            target = ops.stop_gradient(ops.convert_to_tensor(target))
            variable.assign(variable + ops.cast(rate, variable.dtype) * (target - variable))
        share = ops.where(is_due, 1 - self.config.center_momentum, 0.0)
        self.center.assign(self.center + share * (self.next_center - self.center))
        self.next_center.assign(ops.where(is_due, 0.0, 1.0) * self.next_center)

    @property
    def variable_pairs(self) -> list[tuple]:
        """Each variable of the teacher, paired with the student's variable that it follows."""
        teacher = [*self.teacher.weights, *self.teacher_head.weights]
        return list(zip(teacher, [*self.student.weights, *self.student_head.weights]))

    @property
    def encoder(self) -> keras.Model:
        return self.teacher

    def compute_output_shape(self, views_shape, local_views_shape):
        return (views_shape[0], 2)


def with_shared_layers(
    model: keras.Model, image_size: tuple[int, int], interpolation: str = "bicubic"
) -> keras.Model:
    """Makes a model with the same layers for images of another size.

    Positions that are added to the tokens are interpolated inside the new model, so training either
    model trains the other.

    Raises:
        ValueError: If the model has positions in its attention, or the patch does not divide the
            size.
    """
    refuse_fixed_grids(model, "Views of another size", ADDED_LAYERS)
    images = keras.Input((*image_size, model.input_shape[-1]), dtype=model.input.dtype)
    return with_dynamic_positions(model, images, interpolation, ADDED_LAYERS)


def _merge(views):
    """`(B, n, H, W, C)` -> `(B·n, H, W, C)`."""
    return ops.reshape(views, (-1, *views.shape[2:]))


def _split(outputs, views):
    """`(B·n, K)` -> `(B, n, K)` in float32, with n from `views`."""
    return ops.cast(ops.reshape(outputs, (-1, views.shape[1], outputs.shape[-1])), "float32")
