"""Shows what a model has learned and what it costs.

Filters, position embeddings, attention and features are arrays, which `draw_views` also draws as
figures. The costs are parameters, multiply-adds, activations, and exaFLOPs of training.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.inspection.costs import (
        RULES,
        Convention,
        Costs,
        Row,
        abstract_model,
        count,
        device_days,
        flops,
        table,
        training_exaflops,
    )
    from vit_keras.inspection.measures import (
        AttentionViews,
        attention_distance,
        attention_entropy,
        attention_rollout,
        attention_views,
        feature_components,
        filter_components,
        position_similarity,
        rollout_function,
    )
    from vit_keras.inspection.views import VIEWS, Subject, draw_views, views_of
    from vit_keras.models.surgery import read_out

__getattr__, __all__ = typed_names(__name__)
