"""What a run must leave alone to compute the features of its frozen layers once."""

import json
import operator
from typing import Any

# Fields that would change features from one epoch to the next, or need the frozen layers again.
NEUTRAL: dict[str, Any] = {
    "distribution": "none",
    "fewshot_every": 0,
    "watch_every": 0,
    "patch_keep_rates": (),
    "pretext.objective": "none",
    "lora.rank": None,
    "distill.teacher": None,
    "model.dropout_rate": 0.0,
    "model.attention_dropout_rate": 0.0,
    "model.stochastic_depth_rate": 0.0,
    "model.patch_keep_rate": 1.0,
    "augment.rotation_degrees": 0.0,
    "augment.scale": 0.0,
    "augment.shift": 0.0,
    "augment.flip": False,
    "augment.crop": "resize",
    "augment.randaugment_layers": 0,
    "augment.policy": "none",
    "augment.color_jitter": 0.0,
    "augment.erasing": 0.0,
    "augment.mixup_alpha": 0.0,
    "augment.cutmix_alpha": 0.0,
    "optimizer.layer_decay": None,
}


def check_cached_features(run: Any) -> None:
    """Raises ValueError, with all fields of a run's `Config` that `cache_features` forbids."""
    if not run.cache_features:
        return
    values = {name: operator.attrgetter(name)(run) for name in NEUTRAL}
    wrong = [name for name, value in NEUTRAL.items() if values[name] not in (value, None)]
    if wrong:
        needed = ", ".join(f"`{name}` {json.dumps(NEUTRAL[name])}" for name in wrong)
        received = ", ".join(f"{name}={json.dumps(values[name])}" for name in wrong)
        raise ValueError(
            "`cache_features` computes the features of a picture once, so nothing may change them "
            f"or ask for the frozen layers again: it needs {needed}. Received: {received}. Set "
            "cache_features to false, or these fields to what it needs"
        )
    if run.balance == "sampling":
        raise ValueError(
            "`cache_features` goes through all features in each epoch, so `balance` must be none "
            "or weights. Received: balance=sampling"
        )
    if not run.optimizer.freeze:
        raise ValueError(
            "`cache_features` needs frozen layers. Received: optimizer.freeze=[]. Give "
            'optimizer.freeze, such as ["[!h]*"] for all layers but the head'
        )
