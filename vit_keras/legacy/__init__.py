"""The calls of vit-keras 0.x, rebuilt from current functions, and the files that it saved.

`from vit_keras import vit, utils, visualize, layers` imports the modules under their old names.
`load_model` opens the files, and `upgrade` converts such a model to a current one.
"""

from vit_keras.legacy.saved_files import load_model, upgrade

__all__ = ["load_model", "upgrade"]
