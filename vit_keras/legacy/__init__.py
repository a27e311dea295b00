"""The calls of vit-keras 0.x, rebuilt from current functions, and the files that it saved.

`from vit_keras import vit, utils, visualize, layers` imports the modules under their old names.
`load_model` opens the files, and `upgrade` converts such a model to a current one.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.legacy.saved_files import load_model, upgrade

__getattr__, __all__ = typed_names(__name__)
