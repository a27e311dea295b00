"""What is timed, one row each: a function that makes a training step or an inference.

Each takes a `Case` and returns `step(count)`, which runs `count` of them on the same images and
waits until they are done, and the model's number of parameters.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import gemm, keras_models, peers


class Contender(NamedTuple):
    """`make(case)` gives a step; `backend` is the framework, for its GEMM peak and environment."""

    make: Callable
    backend: str


CONTENDERS = {
    "ours-tensorflow": Contender(keras_models.ours, "tensorflow"),
    "ours-jax": Contender(keras_models.ours, "jax"),
    "ours-torch": Contender(keras_models.ours, "torch"),
    "timm": Contender(peers.timm, "torch"),
    "transformers": Contender(peers.transformers, "torch"),
    "torchvision": Contender(peers.torchvision, "torch"),
    "flax": Contender(peers.flax, "jax"),
    "keras_hub-tensorflow": Contender(keras_models.keras_hub, "tensorflow"),
    "keras_hub-jax": Contender(keras_models.keras_hub, "jax"),
    "keras_hub-torch": Contender(keras_models.keras_hub, "torch"),
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
