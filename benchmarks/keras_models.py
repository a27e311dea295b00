"""Ours and KerasHub's models, run as their users run them: by `fit` and `predict`."""

import os

from benchmarks.cases import CLASSES, IMAGE, PATCH, SIZES, Case, pictures


def keras_steps(model, case: Case):
    """Steps of a Keras model through its own `fit` or `predict` functions, as its users run it."""
    import keras

    images, labels = pictures(case.batch)
    if case.mode == "infer":
        return predicting(model, images), model.count_params()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(adamw(), loss)
    return fitting(model, images, labels), model.count_params()


def adamw():
    import keras

    return keras.optimizers.AdamW(1e-4, weight_decay=0.1, global_clipnorm=1.0)


def repeated(arrays, count):
    """`arrays` as a batch, `count` times; by tf.data on TensorFlow alone, which is large."""
    import keras

    if keras.backend.backend() != "tensorflow":
        return (arrays for _ in range(count))
    import tensorflow as tf

    from vit_keras.data.parallel import prefetch_untuned

    return prefetch_untuned(tf.data.Dataset.from_tensors(arrays).repeat(count))


def fitting(model, images, labels):
    def step(count):
        batches = repeated((images, labels), count)
        model.fit(batches, steps_per_epoch=count, verbose=0)

    return step


def predicting(model, images):
    def step(count):
        model.predict(repeated((images,), count), steps=count, verbose=0)

    return step


GELU = {"torch": "exact", "tensorflow": "exact", "jax": "tanh"}  # the peers'


def ours(case: Case):
    """As train.py runs it; KEEP_MEMORY=0 in the environment leaves malloc as it is."""
    import keras

    from vit_keras import machine
    from vit_keras.layers import kernels
    from vit_keras.models import VisionTransformer

    if os.environ.get("KEEP_MEMORY") != "0":
        machine.keep_memory()
    kernels.use(kernels.measure())
    dtype = "mixed_bfloat16" if case.precision == "bf16" else "float32"
    sizes, gelu = SIZES[case.size], GELU[keras.backend.backend()]
    model = VisionTransformer(IMAGE, PATCH, *sizes, CLASSES, gelu=gelu, dtype=dtype, seed=0)
    if case.mode == "infer":
        return keras_steps(model, case)
    from vit_keras.config import OptimizerConfig
    from vit_keras.training import build_optimizer

    images, labels = pictures(case.batch)
    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.1), 1000, model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return fitting(model, images, labels), model.count_params()


def keras_hub_model(case: Case):
    """KerasHub's classifier of logits, without its preprocessing."""
    import keras
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    dtype = "mixed_bfloat16" if case.precision == "bf16" else "float32"
    width, layers, heads, mlp = SIZES[case.size]
    backbone = ViTBackbone((IMAGE, IMAGE, 3), PATCH, layers, heads, width, mlp, dtype=dtype)
    model = ViTImageClassifier(backbone, CLASSES, preprocessor=None)
    return keras.Model(model.input, model.output)


def keras_hub(case: Case):
    return keras_steps(keras_hub_model(case), case)
