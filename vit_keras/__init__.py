"""The Vision Transformer (arXiv 2010.11929) for Keras 3 on TensorFlow, JAX and PyTorch.

`vit`, `utils` and `visualize` are the modules of vit-keras 0.x, rebuilt from current functions in
`vit_keras.legacy`. They are imported on first use.
"""

# ruff: noqa: F401
import importlib
from typing import TYPE_CHECKING

from vit_keras.support import command_line as _command_line
from vit_keras.support import extras as _extras

if TYPE_CHECKING:
    from vit_keras import applications, layers, legacy, models, training, variants, weights
    from vit_keras.legacy import utils, visualize, vit
    from vit_keras.weights import image_text, list_weights, open

__version__ = "1.0.0"
# The modules whose import registers names in saved files, and the rooms that users name.
IMPORTED = (
    *("layers.heads", "layers.resnet", "layers.text", "layers.tokens"),
    *("models", "training", "variants", "weights"),
    *("models.image_model", "models.pretext", "models.text"),
    *("training.losses", "training.metrics", "training.optimizers"),
    *("legacy.layers", "exporting.serving"),
)
__getattr__, __all__ = _extras.typed_names(__name__)


def import_models() -> None:
    """Imports the packages of models and registers every class that a saved file may name.

    Keras finds such a class only by its name. A command calls this function once it has work to do;
    in any other process, `import vit_keras` has already called it.

    Example:
        >>> vit_keras.import_models()
        >>> keras.saving.get_registered_object("vit_keras>MeanIoU").__name__
        'MeanIoU'
    """
    _extras.choose_backend()  # raises in a command if no backend is installed
    for name in IMPORTED:
        importlib.import_module(f"{__name__}.{name}")


if not _command_line.is_command():
    import_models()
