"""The calls of vit-keras 0.x, made from today's functions, and the files that it saved.

`from vit_keras import vit, utils, visualize, layers` gives the modules under their old names.
`load_model` opens the files, and `upgrade` turns such a model into one of today's.
"""

from vit_keras.legacy.saved_files import load_model, upgrade

__all__ = ["load_model", "upgrade"]
