"""Reads and writes weights in every project's format; finds published weights by name.

The modules behind these names are imported when a name is first used, because importing the readers
of all formats takes longer than importing the models.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.weights.adapters import describe_adapters, load_adapters, save_adapters
    from vit_keras.weights.description import describe
    from vit_keras.weights.download import fetch, resolve
    from vit_keras.weights.hub import local_path, pinned_address
    from vit_keras.weights.loading import load, open
    from vit_keras.weights.published import list_weights, lookup, names
    from vit_keras.weights.saving import save, save_model, to_timm
    from vit_keras.weights.texts import (
        TextEmbeddings,
        TextTokenizer,
        embed_labels,
        image_text,
        read_text_embeddings,
        with_text_head,
        write_text_embeddings,
    )

__getattr__, __all__ = typed_names(__name__)
