"""Exports models to files for servers and phones, and checks what the files answer.

`export` writes the files, `for_inference` returns the Keras model that they are made from, and
`TARGETS` holds a row for each format. `vit_keras.runtimes` opens the files.

Example:
    >>> list(vit_keras.exporting.TARGETS["onnx"].precisions)
    ['fp32', 'int8', 'fp16']
"""

from vit_keras.exporting.exporter import export
from vit_keras.exporting.inference_model import for_inference
from vit_keras.exporting.patch_sizes import export_patch_sizes
from vit_keras.exporting.targets import TARGETS

__all__ = ["TARGETS", "export", "export_patch_sizes", "for_inference"]
