"""What is timed, one row each: a function that makes a training step or an inference.

Each takes a `Case` and returns `step(count)`, which runs `count` of them on the same images and
waits until they are done, and the model's number of parameters. Its `modules` are imported before
its memory is looked at: some of those libraries take as much as a model.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import gemm, keras_models, peers


class Contender(NamedTuple):
    """`make(case)` gives a step; `backend` is the framework, for its GEMM peak and environment."""

    make: Callable
    backend: str
    modules: tuple[str, ...] = ()


OURS = ("vit_keras.models", "vit_keras.training", "vit_keras.data")
HUB = ("keras_hub.models", "vit_keras.data")  # whose pipelines both are fed by on TensorFlow
TIMM = ("benchmarks.torchvision_operators", "timm.models")
TORCHVISION = ("benchmarks.torchvision_operators", "torchvision.models")
CONTENDERS = {
    "ours-tensorflow": Contender(keras_models.ours, "tensorflow", OURS),
    "ours-jax": Contender(keras_models.ours, "jax", OURS),
    "ours-torch": Contender(keras_models.ours, "torch", OURS),
    "timm": Contender(peers.timm, "torch", TIMM),
    "transformers": Contender(
        peers.transformers, "torch", ("transformers.models.vit.modeling_vit",)
    ),
    "torchvision": Contender(peers.torchvision, "torch", TORCHVISION),
    "flax": Contender(peers.flax, "jax", ("optax", "tests.weights.flax_vit")),
    "keras_hub-tensorflow": Contender(keras_models.keras_hub, "tensorflow", HUB),
    "keras_hub-jax": Contender(keras_models.keras_hub, "jax", HUB),
    "keras_hub-torch": Contender(keras_models.keras_hub, "torch", HUB),
    **{f"gemm-{backend}": Contender(gemm.of(backend), backend) for backend in gemm.PRODUCTS},
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
