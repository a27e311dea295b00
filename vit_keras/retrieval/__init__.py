"""Tables of picture embeddings, and searches for the most similar pictures."""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.retrieval.embedder import Embedder, EmbeddingJob, embedding_model, open_embedder
    from vit_keras.retrieval.search import (
        Answer,
        Match,
        NeighborIndex,
        Neighbors,
        exact_neighbors,
        open_index,
        open_query_embedder,
        search_pictures,
        search_rows,
        search_texts,
        write_answers,
    )
    from vit_keras.retrieval.tables import EmbeddingTable, Picture, PictureList, list_pictures

__getattr__, __all__ = typed_names(__name__)
