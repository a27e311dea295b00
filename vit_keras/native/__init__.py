"""Models as objects of one framework, without Keras: a torch module, JAX functions, a `tf.Module`.

The modules behind these names are imported when a name is first used, since each needs its own
framework. The framework may be another one than Keras' backend.
"""

import importlib
from typing import TYPE_CHECKING

from vit_keras import extras

if TYPE_CHECKING:
    from vit_keras.native.jax_functions import from_jax, to_jax
    from vit_keras.native.tensorflow_module import from_tensorflow, to_tensorflow
    from vit_keras.native.torch_module import from_torch, to_torch

_HOMES = {  # the framework and the module of each name
    "from_jax": ("jax", "jax_functions"),
    "from_tensorflow": ("tensorflow", "tensorflow_module"),
    "from_torch": ("torch", "torch_module"),
    "to_jax": ("jax", "jax_functions"),
    "to_tensorflow": ("tensorflow", "tensorflow_module"),
    "to_torch": ("torch", "torch_module"),
}


def __getattr__(name):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    framework, home = _HOMES[name]
    extras.check(framework, extra=framework, purpose=f"`{name}`")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


__all__ = ["from_jax", "from_tensorflow", "from_torch", "to_jax", "to_tensorflow", "to_torch"]
