"""The names of OpenAI's CLIP, which OpenCLIP and Meta's Perception Encoder have taken over."""

import dataclasses

from vit_keras.weights.formats.tensor_names import PoolNames, TensorNames

CLIP = TensorNames(
    patches="conv1",
    block="transformer.resblocks.{}.",
    norm_0="ln_1",
    in_proj="attn.in_proj",
    out="attn.out_proj",
    norm_2="ln_2",
    dense_0="mlp.c_fc",
    dense_1="mlp.c_proj",
    norm="ln_post",
    query_norm="attn.ln_q",
    key_norm="attn.ln_k",
    attention_norm="attn.ln_inner",
    mlp_norm="mlp.ln",
    scale_0="ls_1.gamma",
    scale_1="ls_2.gamma",
    cls="class_embedding",
    positions="positional_embedding",
    pre_norm="ln_pre",
    projection="proj",
    projection_is_ours=True,
    pool=PoolNames(
        probe="attn_pool.probe",
        in_proj="attn_pool.attn.in_proj",
        out="attn_pool.attn.out_proj",
        norm="attn_pool.layernorm",
        dense_0="attn_pool.mlp.c_fc",
        dense_1="attn_pool.mlp.c_proj",
    ),
    rotary="interleaved_columns_first",
    token_axes=1,
    position_axes=2,
)
TOWER = "visual."  # the prefix of the image tower's tensors in a file with both towers
# The names in `TensorNames` that are not inside blocks.
_WHOLE = (
    *("patches", "block", "norm", "pooled_norm", "shared_relative", "frequencies", "cls", "dist"),
    *("registers", "positions", "pre_norm", "pre_logits", "head", "head_dist", "projection"),
)


def below(names: TensorNames, prefix: str) -> TensorNames:
    """Returns a row of names whose tensors all have a prefix."""
    held: dict = {name: getattr(names, name) for name in _WHOLE}
    changes: dict = {name: prefix + value for name, value in held.items() if value}
    if names.pool is not None:
        pool = {k: prefix + v for k, v in dataclasses.asdict(names.pool).items() if v}
        changes["pool"] = PoolNames(**pool)
    return dataclasses.replace(names, **changes)


def has_tower(names) -> bool:
    """Whether a file holds an image tower beside others."""
    return f"{TOWER}conv1.weight" in names
