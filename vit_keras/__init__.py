"""The Vision Transformer (arXiv 2010.11929) for Keras 3 on TensorFlow, JAX and PyTorch.

`vit`, `utils` and `visualize` are the modules of vit-keras 0.x, made from today's functions in
`vit_keras.legacy`. They are imported when they are first used.
"""

from typing import TYPE_CHECKING

from vit_keras import _command_line  # first: see there
from vit_keras.lazy_names import lazy_names

if not _command_line.is_command():  # which imports them once it has work to do
    from vit_keras import applications, layers, models, training, variants, weights

if TYPE_CHECKING:
    from vit_keras import legacy
    from vit_keras.legacy import utils, visualize, vit

__version__ = "1.0.0"
MODULES = {
    "legacy": "vit_keras.legacy",
    "utils": "vit_keras.legacy.utils",
    "visualize": "vit_keras.legacy.visualize",
    "vit": "vit_keras.legacy.vit",
}
__getattr__ = lazy_names(__name__, MODULES)

__all__ = [
    "applications",
    "layers",
    "legacy",
    "models",
    "training",
    "utils",
    "variants",
    "visualize",
    "vit",
    "weights",
]
