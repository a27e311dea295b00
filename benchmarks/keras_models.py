"""Our models and KerasHub's, run as their users run them: through `fit` and `predict`."""

import os

import numpy as np

from benchmarks.cases import CLASSES, PATCH, SIZES, Case, dimensions, random_batch

GELU = {"torch": "exact", "tensorflow": "exact", "jax": "tanh"}  # as each backend's peer computes


def ours(case: Case, lora_rank: int | None = None, jit_compile: bool | str = "auto"):
    """Our model as the `train` command runs it; with `lora_rank`, its adapters and head train.

    With `KEEP_MEMORY=0` in the environment, malloc keeps its defaults.
    """

    from vit_keras.layers import backends
    from vit_keras.models import add_lora
    from vit_keras.support import machine

    if os.environ.get("KEEP_MEMORY") != "0":
        machine.keep_memory()
    backends.use(backends.measure())
    model = _our_model(case, dtype=_dtype(case))
    if case.mode == "infer":
        return _keras_steps(model, case, jit_compile=jit_compile)
    if lora_rank:
        add_lora(model, lora_rank, seed=0)
    from vit_keras.config import OptimizerConfig
    from vit_keras.training import build_optimizer

    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.1), 1000, model)
    return _keras_steps(model, case, optimizer, jit_compile)


def compiled(case: Case):
    """`ours` with `jit_compile=True`."""
    return ours(case, jit_compile=True)


def _our_model(case, **arguments):
    import keras

    from vit_keras.models import VisionTransformer

    patch, sizes, others = dimensions(case)
    arguments |= {"gelu": GELU[keras.backend.backend()], **others}
    return VisionTransformer(case.image_size, patch, *sizes, CLASSES, **arguments, seed=0)


def called_torch(case: Case):
    """Our model called as torch's modules are, without `predict`."""
    import keras
    import torch

    model = _our_model(case, dtype=_dtype(case))
    images = keras.ops.convert_to_tensor(random_batch(case.batch, case.image_size)[0])

    def step(count):
        with torch.inference_mode():
            for _ in range(count):
                outputs = model(images, training=False)
        outputs.cpu()  # waits for a GPU

    return step, model.count_params()


def lora(case: Case):
    """`ours` with adapters of rank 8 on query and value."""
    return ours(case, lora_rank=8)


def keras_hub(case: Case, jit_compile: bool | str = "auto"):
    """KerasHub's model with Keras' own AdamW."""
    return _keras_steps(keras_hub_model(case), case, jit_compile=jit_compile)


def keras_hub_compiled(case: Case):
    """`keras_hub` with `jit_compile=True`."""
    return keras_hub(case, jit_compile=True)


def keras_hub_model(case: Case):
    """KerasHub's classifier: images to logits, without its preprocessing."""
    import keras
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    width, layers, heads, mlp = SIZES[case.size]
    shape = (case.image_size, case.image_size, 3)
    backbone = ViTBackbone(shape, PATCH, layers, heads, width, mlp, dtype=_dtype(case))
    model = ViTImageClassifier(backbone, CLASSES, preprocessor=None)
    return keras.Model(model.input, model.output)


def _dtype(case):
    return "mixed_bfloat16" if case.precision == "bf16" else "float32"


def _keras_steps(model, case, optimizer=None, jit_compile="auto"):
    import keras

    images, labels = random_batch(case.batch, case.image_size)
    if case.mode == "infer":
        model.compile(jit_compile=jit_compile)
        return _predict_steps(model, images), model.count_params()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    if optimizer is None:
        optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.1, global_clipnorm=1.0)
    model.compile(optimizer, loss, jit_compile=jit_compile)
    return _fit_steps(model, images, labels), model.count_params()


def _fit_steps(model, images, labels):
    def step(count):
        batches = _repeated((images, labels), count)
        model.fit(batches, steps_per_epoch=count, verbose=0)

    return step


def _predict_steps(model, images):
    arrays = {}

    def step(count):
        if count not in arrays:
            arrays[count] = np.concatenate([images] * count)
        model.predict(arrays[count], batch_size=len(images), verbose=0)

    return step


def _repeated(batch, count):
    """The same batch `count` times: a tf.data dataset on TensorFlow, else a `PyDataset`."""
    from vit_keras.data.batches import Batches

    return Batches(lambda number, each: batch, count).as_dataset()
