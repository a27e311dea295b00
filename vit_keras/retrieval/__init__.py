"""Embeddings of pictures in tables, and searches for the pictures that are most alike."""

from vit_keras.retrieval.embedder import Embedder, open_embedder
from vit_keras.retrieval.embedding_model import embedding_model
from vit_keras.retrieval.jobs import EmbeddingJob
from vit_keras.retrieval.neighbors import NeighborIndex, Neighbors, exact_neighbors, open_index
from vit_keras.retrieval.pictures import Picture, PictureList, list_pictures
from vit_keras.retrieval.search import (
    Answer,
    Match,
    open_query_embedder,
    search_pictures,
    search_rows,
    write_answers,
)
from vit_keras.retrieval.tables import EmbeddingTable

__all__ = [
    "Answer",
    "Embedder",
    "EmbeddingJob",
    "EmbeddingTable",
    "Match",
    "NeighborIndex",
    "Neighbors",
    "Picture",
    "PictureList",
    "embedding_model",
    "exact_neighbors",
    "list_pictures",
    "open_embedder",
    "open_index",
    "open_query_embedder",
    "search_pictures",
    "search_rows",
    "write_answers",
]
