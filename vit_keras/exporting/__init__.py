"""Exports models to files for servers and phones, and checks the files' outputs.

`export` writes the files, `for_inference` returns the Keras model that they are made from, and
`TARGETS` holds a row for each format. `vit_keras.runtimes` opens the files.

Example:
    >>> list(vit_keras.exporting.TARGETS["openvino"].precisions)
    ['fp32', 'fp16']
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.exporting.exporter import export, export_patch_sizes
    from vit_keras.exporting.serving import for_inference
    from vit_keras.exporting.targets import TARGETS

__getattr__, __all__ = typed_names(__name__)
