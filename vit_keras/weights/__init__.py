"""Reads and writes weights in every project's format; finds published weights by name.

The modules behind these names are imported when a name is first used, because importing the readers
of all formats takes longer than importing the models.
"""

from typing import TYPE_CHECKING

from vit_keras.support.lazy_names import lazy_names
from vit_keras.weights.published import list_weights, lookup, names

if TYPE_CHECKING:
    from vit_keras.weights.adapters import (
        describe_adapters,
        load_adapters,
        save_adapters,
    )
    from vit_keras.weights.description import describe
    from vit_keras.weights.download import fetch, resolve
    from vit_keras.weights.hub import local_path, pinned_address
    from vit_keras.weights.loading import load, open
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

_HOMES = {
    "adapters": "describe_adapters load_adapters save_adapters",
    "description": "describe",
    "download": "fetch resolve",
    "hub": "local_path pinned_address",
    "loading": "load open",
    "saving": "save to_timm save_model",
    "texts": "TextEmbeddings TextTokenizer embed_labels image_text read_text_embeddings "
    "with_text_head write_text_embeddings",
}
__getattr__ = lazy_names(
    __name__,
    {name: f"{__name__}.{home}:{name}" for home in _HOMES for name in _HOMES[home].split()},
)

__all__ = [
    "TextEmbeddings",
    "TextTokenizer",
    "describe",
    "describe_adapters",
    "embed_labels",
    "fetch",
    "image_text",
    "list_weights",
    "load",
    "load_adapters",
    "local_path",
    "lookup",
    "names",
    "open",
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
