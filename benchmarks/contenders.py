"""What is timed, one row each: a function that makes a training step or an inference.

Each takes (size, mode, precision, batch) and returns `step(count)`, which runs `count` of them on
the same images and waits until they are done, the model's parameters, and its framework.
"""

import functools
import os
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

IMAGE, PATCH, CLASSES = 224, 16, 1000
SIZES = {  # hidden_size, num_layers, num_heads, mlp_dim
    "Ti": (192, 12, 3, 768),
    "S": (384, 12, 6, 1536),
    "B": (768, 12, 12, 3072),
    "L": (1024, 24, 16, 4096),
}


class Case(NamedTuple):
    """One measurement: `mode` is "train" or "infer", `precision` "fp32" or "bf16"."""

    size: str
    mode: str
    precision: str
    batch: int


class Contender(NamedTuple):
    """`make(case)` gives a step; `backend` is the framework, for its GEMM peak and environment."""

    make: Callable
    backend: str


def pictures(batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    images = rng.uniform(-1, 1, (batch, IMAGE, IMAGE, 3)).astype("float32")
    return images, rng.integers(0, CLASSES, batch)


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


def fitting(model, images, labels):
    import tensorflow as tf

    def step(count):
        batches = tf.data.Dataset.from_tensors((images, labels)).repeat(count)
        model.fit(batches, steps_per_epoch=count, verbose=0)

    return step


def predicting(model, images):
    import tensorflow as tf

    def step(count):
        model.predict(tf.data.Dataset.from_tensors(images).repeat(count), verbose=0)

    return step


def ours(case: Case):
    from vit_keras.models import VisionTransformer

    dtype = "mixed_bfloat16" if case.precision == "bf16" else "float32"
    sizes = SIZES[case.size]
    model = VisionTransformer(IMAGE, PATCH, *sizes, CLASSES, gelu="tanh", dtype=dtype, seed=0)
    if case.mode == "infer":
        return keras_steps(model, case)
    import keras

    from vit_keras.config import OptimizerConfig
    from vit_keras.training import build_optimizer

    images, labels = pictures(case.batch)
    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.1), 1000, model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    return fitting(model, images, labels), model.count_params()


def keras_hub(case: Case):
    import keras
    from keras_hub.models import ViTBackbone, ViTImageClassifier

    dtype = "mixed_bfloat16" if case.precision == "bf16" else "float32"
    width, layers, heads, mlp = SIZES[case.size]
    backbone = ViTBackbone((IMAGE, IMAGE, 3), PATCH, layers, heads, width, mlp, dtype=dtype)
    model = ViTImageClassifier(backbone, CLASSES, preprocessor=None)
    return keras_steps(keras.Model(model.input, model.output), case)


def _torch_steps(model, case, layout="nchw", logits=lambda y: y):
    import torch

    images, labels = pictures(case.batch)
    images = torch.from_numpy(images)
    images = images.permute(0, 3, 1, 2).contiguous() if layout == "nchw" else images
    labels = torch.from_numpy(labels)
    half = torch.autocast("cpu", torch.bfloat16, enabled=case.precision == "bf16")
    parameters = sum(p.numel() for p in model.parameters())
    if case.mode == "infer":
        model.eval()

        def infer(count):
            with torch.inference_mode(), half:
                for _ in range(count):
                    model(images)

        return infer, parameters
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.1)

    def train(count):
        for _ in range(count):
            optimizer.zero_grad()
            with half:
                loss = torch.nn.functional.cross_entropy(logits(model(images)).float(), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            loss.item()

    return train, parameters


def timm(case: Case):
    _torchvision_operators()
    from timm.models import VisionTransformer

    width, layers, heads, mlp = SIZES[case.size]
    model = VisionTransformer(
        IMAGE, PATCH, embed_dim=width, depth=layers, num_heads=heads, mlp_ratio=mlp / width
    )
    return _torch_steps(model, case)


def transformers(case: Case):
    from transformers import ViTConfig, ViTForImageClassification

    width, layers, heads, mlp = SIZES[case.size]
    config = ViTConfig(
        width, layers, heads, mlp, image_size=IMAGE, patch_size=PATCH, num_labels=CLASSES
    )
    return _torch_steps(ViTForImageClassification(config), case, logits=lambda y: y.logits)


def torchvision(case: Case):
    _torchvision_operators()
    from torchvision.models import VisionTransformer

    width, layers, heads, mlp = SIZES[case.size]
    return _torch_steps(VisionTransformer(IMAGE, PATCH, layers, heads, width, mlp), case)


@functools.cache
def _torchvision_operators():
    """Declares two operators that a torchvision built for CUDA lacks beside a CPU torch.

    Its import asks for them; no model here does. The library is kept, or it would be undone.
    """
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def flax(case: Case):
    """The model written after the published code, with its optimiser's optax equivalent."""
    import jax
    import jax.numpy as jnp
    import optax

    from tests.weights.flax_vit import FlaxVisionTransformer

    dtype = jnp.bfloat16 if case.precision == "bf16" else jnp.float32
    model = FlaxVisionTransformer(PATCH, *SIZES[case.size], CLASSES)
    images, labels = pictures(case.batch)
    cast = lambda tree: jax.tree.map(lambda x: x.astype(dtype), tree)
    parameters = jax.jit(model.init)(jax.random.PRNGKey(0), images[:1])
    count_of = sum(x.size for x in jax.tree.leaves(parameters))
    apply = lambda p, x: model.apply(cast(p), x.astype(dtype)).astype(jnp.float32)
    if case.mode == "infer":
        forward = jax.jit(apply)
        return lambda count: [
            forward(parameters, images).block_until_ready() for _ in range(count)
        ], (count_of)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-4, weight_decay=0.1))
    state = [parameters, jax.jit(optimizer.init)(parameters)]

    def loss(p, x, y):
        return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), y).mean()

    @jax.jit
    def update(p, s, x, y):
        value, gradients = jax.value_and_grad(loss)(p, x, y)
        updates, s = optimizer.update(gradients, s, p)
        return optax.apply_updates(p, updates), s, value

    update = jax.jit(update, donate_argnums=(0, 1))

    def train(count):
        for _ in range(count):
            *state[:], value = update(*state, images, labels)
        value.block_until_ready()

    return train, count_of


CONTENDERS = {
    "ours-tensorflow": Contender(ours, "tensorflow"),
    "ours-jax": Contender(ours, "jax"),
    "ours-torch": Contender(ours, "torch"),
    "timm": Contender(timm, "torch"),
    "transformers": Contender(transformers, "torch"),
    "torchvision": Contender(torchvision, "torch"),
    "flax": Contender(flax, "jax"),
    "keras_hub-tensorflow": Contender(keras_hub, "tensorflow"),
    "keras_hub-jax": Contender(keras_hub, "jax"),
    "keras_hub-torch": Contender(keras_hub, "torch"),
}


def environment(name: str) -> dict[str, str]:
    """The variables that a contender's process starts with."""
    backend = CONTENDERS[name].backend
    return {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
