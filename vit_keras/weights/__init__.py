"""Weights in and out of models, in every project's format; published weights by name.

The modules behind these names are imported when a name is first used, because the readers of all
formats would take longer to import than the models.
"""

from typing import TYPE_CHECKING

from vit_keras.support.lazy_names import lazy_names
from vit_keras.weights.published import list_weights, lookup, names

if TYPE_CHECKING:
    from vit_keras.weights.adapters import (
        describe_adapters,
        load_adapters,
        open_adapted,
        save_adapters,
    )
    from vit_keras.weights.description import describe
    from vit_keras.weights.hub import local_path, pinned_address
    from vit_keras.weights.loading import from_checkpoint, load, open_model
    from vit_keras.weights.published.download import fetch, resolve
    from vit_keras.weights.saving import save, save_model, to_timm
    from vit_keras.weights.text_embeddings import (
        TextEmbeddings,
        embed_labels,
        read_text_embeddings,
        with_text_head,
        write_text_embeddings,
    )

_HOMES = {
    "adapters": "describe_adapters load_adapters open_adapted save_adapters",
    "description": "describe",
    "hub": "local_path pinned_address",
    "loading": "from_checkpoint load open_model",
    "published.download": "fetch resolve",
    "saving": "save to_timm save_model",
    "text_embeddings": "TextEmbeddings embed_labels read_text_embeddings with_text_head "
    "write_text_embeddings",
}
__getattr__ = lazy_names(
    __name__,
    {name: f"{__name__}.{home}:{name}" for home in _HOMES for name in _HOMES[home].split()},
)

__all__ = [
    "TextEmbeddings",
    "describe",
    "describe_adapters",
    "embed_labels",
    "fetch",
    "from_checkpoint",
    "list_weights",
    "load",
    "load_adapters",
    "local_path",
    "lookup",
    "names",
    "open_adapted",
    "open_model",
    "pinned_address",
    "read_text_embeddings",
    "resolve",
    "save",
    "save_adapters",
    "save_model",
    "to_timm",
    "with_text_head",
    "write_text_embeddings",
]
