"""The contenders that `benchmarks.run` times, one row each.

A contender's `make(case)` returns `step(count)` and the model's number of parameters. `step(count)`
runs `count` training steps or inferences on the same images and returns when they are done.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from benchmarks import gemm, keras_models, peers


class Contender(NamedTuple):
    """One row of the comparison.

    Attributes:
        make: makes `(step, number of parameters)` from a `Case`.
        backend: the framework, which decides the environment and the matrix product to compare to.
        modules: modules to import before memory is measured, since some of these libraries take as
            much memory as a model.
    """

    make: Callable
    backend: str
    modules: tuple[str, ...] = ()


OURS = ("vit_keras.models", "vit_keras.training", "vit_keras.data")
NATIVE = ("vit_keras.models", "vit_keras.native")
HUB = ("keras_hub.models", "vit_keras.data")  # on TensorFlow, vit_keras.data feeds both
TIMM = ("benchmarks.torchvision_operators", "timm.models")
TORCHVISION = ("benchmarks.torchvision_operators", "torchvision.models")
CONTENDERS = {
    "ours-tensorflow": Contender(keras_models.ours, "tensorflow", OURS),
    "ours-jax": Contender(keras_models.ours, "jax", OURS),
    "ours-torch": Contender(keras_models.ours, "torch", OURS),
    "ours-native-torch": Contender(keras_models.native_torch, "torch", NATIVE),
    "ours-native-jax": Contender(keras_models.native_jax, "jax", (*NATIVE, "optax")),
    "lora-tensorflow": Contender(keras_models.lora, "tensorflow", OURS),
    "lora-jax": Contender(keras_models.lora, "jax", OURS),
    "lora-torch": Contender(keras_models.lora, "torch", OURS),
    "timm": Contender(peers.timm, "torch", TIMM),
    "transformers": Contender(
        peers.transformers, "torch", ("transformers.models.vit.modeling_vit",)
    ),
    "torchvision": Contender(peers.torchvision, "torch", TORCHVISION),
    "flax": Contender(peers.flax, "jax", ("optax", "tests.weights.flax_vit")),
    "keras_hub-tensorflow": Contender(keras_models.keras_hub, "tensorflow", HUB),
    "keras_hub-jax": Contender(keras_models.keras_hub, "jax", HUB),
    "keras_hub-torch": Contender(keras_models.keras_hub, "torch", HUB),
    **{f"gemm-{backend}": Contender(gemm.contender(backend), backend) for backend in gemm.PRODUCTS},
}


def environment(name: str) -> dict[str, str]:
    """The environment variables of a contender's process."""
    backend = CONTENDERS[name].backend
    return {
        **os.environ,
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_WAIT_POLICY": "PASSIVE",
    }
