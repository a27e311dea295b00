"""Exports models to files for servers and phones, and checks the files' outputs.

`export` writes the files, `for_inference` returns the Keras model that they are made from, and
`TARGETS` holds a row for each format. `vit_keras.runtimes` opens the files.

Example:
    >>> list(vit_keras.exporting.TARGETS["onnx"].precisions)
    ['fp32', 'int8', 'fp16']
"""

from typing import TYPE_CHECKING

from vit_keras.support.lazy_names import lazy_names

if TYPE_CHECKING:
    from vit_keras.exporting.exporter import export
    from vit_keras.exporting.inference_model import for_inference
    from vit_keras.exporting.patch_sizes import export_patch_sizes
    from vit_keras.exporting.targets import TARGETS

_HOMES = {
    "TARGETS": "targets",
    "export": "exporter",
    "export_patch_sizes": "patch_sizes",
    "for_inference": "inference_model",
}
__getattr__ = lazy_names(__name__, {k: f"{__name__}.{home}:{k}" for k, home in _HOMES.items()})

__all__ = ["TARGETS", "export", "export_patch_sizes", "for_inference"]
