"""What a model has learned: its filters, position embeddings, attention and features.

Each function returns arrays; `draw_views` draws them as figures as well.
"""

from vit_keras.inspection.attention import (
    AttentionViews,
    attention_distance,
    attention_entropy,
    attention_rollout,
    attention_views,
    read_out,
    rollout_function,
)
from vit_keras.inspection.features import feature_components
from vit_keras.inspection.views import VIEWS, Subject, draw_views, views_of
from vit_keras.inspection.weights import filter_components, position_similarity

__all__ = [
    "VIEWS",
    "AttentionViews",
    "Subject",
    "attention_distance",
    "attention_entropy",
    "attention_rollout",
    "attention_views",
    "draw_views",
    "feature_components",
    "filter_components",
    "position_similarity",
    "read_out",
    "rollout_function",
    "views_of",
]
