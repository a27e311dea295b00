"""Export for servers and phones, from any backend, with proof."""

from vit_keras.exporting.export import Parity, export

__all__ = ["Parity", "export"]
