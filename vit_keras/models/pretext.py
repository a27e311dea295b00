"""Models that train an encoder without labels: Appendix B.1.2, MAE, and DINO."""

import math
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
from keras import ops

from vit_keras import layers
from vit_keras.layers.base import LayerArguments, SeededLayer
from vit_keras.layers.common import LayerNormalization
from vit_keras.layers.positions import ADDED_LAYERS
from vit_keras.models import surgery
from vit_keras.models.common import dense, variable_dtype
from vit_keras.support.keras_internals import first_input_of, operation_of, sublayers
from vit_keras.support.preprocessing import with_tuples

if TYPE_CHECKING:
    from vit_keras.config import DinoConfig

MLP_RATIO = 4  # mlp_dim / hidden_size in the blocks of MAE's decoder
GLOBAL_VIEWS = 2


def pretext_model(
    encoder: keras.Model,
    config,
    seed: int | None = None,
    total_steps: int = 10_000,
    accumulation_steps: int = 1,
) -> keras.Model:
    """Builds the model that trains a `VisionTransformer` on a pretext task, without labels.

    The model takes two inputs: images `(B, H, W, C)`, and `source` `(B, N)` int32. For each of the
    N patch positions, `source` holds the index of the patch whose embedding goes there, or N for
    the learned mask. The model predicts every patch: the logits of K colors for each of its P
    regions, `(B, N·P, K)`, or the pixels, `(B, N, p²·C)`.

    The model shares the encoder's layers up to `encoder_norm`, so training it trains the encoder.
    With "masked_patch", all positions pass through the encoder. With "mae", only the visible ones
    do, and a small decoder restores the others.

    With "dino", the inputs are global views `(B, 2, H, W, C)` and local views `(B, n, h, w, C)`,
    and `SelfDistillation` computes the output. The encoder is the teacher, which follows a student.

    Args:
        encoder: A `VisionTransformer`.
        config: A `vit_keras.config.PretextConfig`.
        seed: The seed of the new layers; None draws one.
        total_steps: The number of updates of the run, for the schedules of "dino".
        accumulation_steps: The number of batches that an update accumulates, for "dino".

    Returns:
        A `keras.Model`.

    Raises:
        ValueError: If `encoder` is a hybrid or a ResNet, which do not cut images into patches.

    Example:
        >>> model = pretext_model(encoder, PretextConfig("mae"))
        >>> model.compile("adam", "mse")
        >>> model.fit([images, source], pixels, sample_weight=is_masked)
    """
    surgery.check_cuts_images(encoder)
    embedding, grid = encoder.layers[1], surgery.patch_grid(encoder)
    layer = LayerArguments(seed, embedding.dtype_policy)
    if config.is_dino:
        seed = layer("self_distillation")["seed"]
        return _self_distillation(encoder, config.dino, seed, total_steps, accumulation_steps)
    patches = grid[0] * grid[1]
    source = keras.Input((patches,), dtype="int32", name="source")
    predictions, width = config.outputs(embedding.patch_size, encoder.input_shape[-1])
    predict = _masked_patch
    if config.objective == "mae":
        predict = _autoencoder
        surgery.refuse_fixed_grids(encoder, "Masked autoencoders", ADDED_LAYERS)
    encoder_layers = _layers(encoder, embedding)
    x = predict(embedding.output, source, encoder_layers, grid, config, layer)
    if before := x.shape[1] - patches:
        x = layers.DropClassToken(before, **layer.unseeded("patches"))(x)
    dtype = variable_dtype(layer.dtype)  # it computes in the type of its variables, like a head
    x = dense(x, predictions * width, layer("prediction"), dtype=dtype)
    if config.predicts_colors:
        x = keras.layers.Reshape((patches * predictions, width), name="colors")(x)
    return keras.Model([encoder.input, source], x, name=f"{encoder.name}_{config.objective}")


def _self_distillation(encoder, config, seed, total_steps, accumulation_steps):
    head = next((layer for layer in encoder.layers if layer.name == "head"), None)
    features = keras.Model(encoder.input, head.input if head else encoder.output, name="encoder")
    *size, channels = encoder.input_shape[1:]
    local = (config.local_crops, config.local_size, config.local_size, channels)
    inputs = [
        keras.Input((GLOBAL_VIEWS, *size, channels), name="views"),
        keras.Input(local, name="local_views"),
    ]
    steps = {"total_steps": total_steps, "accumulation_steps": accumulation_steps}
    layer = SelfDistillation(features, config, **steps, seed=seed, name="self_distillation")
    outputs = layer(*inputs)
    for teacher, student in layer.variable_pairs:
        student.assign(keras.ops.convert_to_numpy(teacher))
    return keras.Model(inputs, outputs, name=f"{encoder.name}_dino")


def _layers(encoder, embedding):
    """Returns the layers after `embedding` up to `encoder_norm`, in the order of their calls."""
    x = encoder.get_layer("encoder_norm").output
    layers: list[keras.layers.Layer] = []
    while (layer := operation_of(x)) is not embedding:
        layers.insert(0, layer)
        x = first_input_of(x)
    return layers


def _masked_patch(x, source, encoder_layers, grid, config, layer):
    """Corrupts embeddings before positions are added, as BERT corrupts words."""
    x = layers.CorruptTokens(**layer("corruption"))(x, source)
    for encoder_layer in encoder_layers:
        x = encoder_layer(x)
    return x


def _autoencoder(x, source, encoder_layers, grid, config, layer):
    """Encodes the visible patches, puts masks in all other positions, and decodes them all."""
    patches = source.shape[1]
    visible = patches - config.corrupted(patches)
    blocks = [x for x in encoder_layers if isinstance(x, layers.EncoderBlock)]
    for encoder_layer in encoder_layers:
        if encoder_layer is blocks[0]:
            x = layers.TakeVisible(visible, **layer.unseeded("visible"))(x, source)
        x = encoder_layer(x)
    x = dense(x, config.decoder_hidden_size, layer("decoder_embedding"))
    x = layers.RestoreTokens(visible, **layer("restored"))(x, source)
    x = layers.AddSinCosPositions(grid, **layer.unseeded("decoder_posembed"))(x)
    names = ("gelu", "layer_norm_epsilon", "rematerialize")
    options: dict[str, Any] = {name: getattr(blocks[0], name) for name in names}
    num_heads, mlp_dim = config.decoder_num_heads, MLP_RATIO * config.decoder_hidden_size
    for i in range(config.decoder_num_layers):
        x = layers.EncoderBlock(num_heads, mlp_dim, **options, **layer(f"decoderblock_{i}"))(x)
    epsilon = blocks[0].layer_norm_epsilon
    return LayerNormalization(epsilon=epsilon, **layer.unseeded("decoder_norm"))(x)


def copy_encoder(trained: keras.Model, encoder: keras.Model) -> keras.Model:
    """Copies the encoder's weights from a trained pretext model; for DINO, the teacher's weights.

    Args:
        trained: A model from `pretext_model`, or one loaded from a file.
        encoder: A `VisionTransformer` with the same architecture, changed in place. Weights that
            `trained` does not have, such as the head's, stay unchanged.

    Returns:
        `encoder`.

    Example:
        ```python
        trained = keras.saving.load_model("runs/mae/model.keras")
        encoder = VisionTransformer(32, 4, 192, 6, 3, 768, 10, classifier="gap")
        model = copy_encoder(trained, encoder)  # with an untrained head
        ```
    """
    kinds = (layer for layer in trained.layers if isinstance(layer, SelfDistillation))
    source = next((layer.teacher for layer in kinds), trained)
    values = {variable.path: variable for variable in source.weights}
    for variable in encoder.weights:
        if variable.path in values:
            variable.assign(values[variable.path])
    return encoder


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
            from vit_keras.config import DinoConfig  # which only this layer needs

            config = DinoConfig(**with_tuples(config))
        self.config = config
        self.total_steps, self.accumulation_steps = total_steps, accumulation_steps
        self.teacher, self.student = encoder, keras.models.clone_model(encoder)
        self.local_student = with_shared_layers(self.student, (config.local_size,) * 2)
        policy = encoder.layers[1].dtype_policy
        sizes = config.prototypes, config.head_hidden_size, config.bottleneck_size
        self.teacher_head, self.student_head = (
            layers.PrototypeHead(*sizes, seed=self.fold_in("head"), dtype=policy, name=name)
            for name in ("teacher_head", "student_head")
        )
        views = GLOBAL_VIEWS + config.local_crops
        pairs = 1 - np.eye(GLOBAL_VIEWS, views, dtype="float32")
        self.pairs = pairs / pairs.sum()  # (2, V): no view is compared with itself

    def build(self, views_shape, local_views_shape):
        for head in (self.teacher_head, self.student_head):
            head.build(self.student.output_shape)
        # On TensorFlow, setting `trainable` to a model's current value does not reach its layers.
        networks = (self.teacher, False), (self.teacher_head, False), (self.student, True)
        for network, trains in networks:
            for layer in sublayers(network):
                layer.trainable = trains
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


def with_shared_layers(model: keras.Model, image_size: tuple[int, int]) -> keras.Model:
    """Makes a model with the same layers for images of another size.

    Positions that are added to the tokens are interpolated inside the new model, so training either
    model trains the other.

    Raises:
        ValueError: If the model has positions in its attention, or the patch does not divide the
            size.
    """
    surgery.refuse_fixed_grids(model, "Views of another size", ADDED_LAYERS)
    images = keras.Input((*image_size, model.input_shape[-1]), dtype=model.input.dtype)
    return surgery.with_dynamic_positions(model, images, "bicubic", ADDED_LAYERS)


def _merge(views):
    """`(B, n, H, W, C)` -> `(B·n, H, W, C)`."""
    return ops.reshape(views, (-1, *views.shape[2:]))


def _split(outputs, views):
    """`(B·n, K)` -> `(B, n, K)` in float32, with n from `views`."""
    return ops.cast(ops.reshape(outputs, (-1, views.shape[1], outputs.shape[-1])), "float32")
