"""The links of attention pools and classifiers to a project's tensors."""

from vit_keras.weights.formats import torch_layouts as torch
from vit_keras.weights.formats.base import Link, same, transposed
from vit_keras.weights.formats.tensor_names import PoolNames, TensorNames

POOL, ATTENTION = "MAPHead_0", "MAPHead_0/MultiHeadDotProductAttention_0"


def pool_links(names: PoolNames, num_heads: int) -> list[Link]:
    """Links an attention pool of `num_heads` heads."""
    links = [same(names.probe, f"{POOL}/probe")]
    if names.in_proj:
        fused = (f"{names.in_proj}_weight", f"{names.in_proj}_bias", ATTENTION)
        links += torch.fused(*fused, ("query", "key", "value"), num_heads)
    else:
        links += torch.heads_in(names.query, f"{ATTENTION}/query", num_heads)
        fused = (f"{names.kv}.weight", f"{names.kv}.bias", ATTENTION)
        links += torch.fused(*fused, ("key", "value"), num_heads)
    return [
        *links,
        *torch.heads_out(names.out, f"{ATTENTION}/out", num_heads),
        *torch.norm(names.norm, f"{POOL}/LayerNorm_0"),
        *torch.dense(names.dense_0, f"{POOL}/MlpBlock_0/Dense_0"),
        *torch.dense(names.dense_1, f"{POOL}/MlpBlock_0/Dense_1"),
    ]


def head_links(arch, names: TensorNames) -> list[Link]:
    """Links the classifier, or both for the distillation token, or a projection without bias."""
    links = []
    if arch.representation_size is not None:
        links += torch.dense(names.pre_logits, "pre_logits")
    if arch.num_classes is None:
        return links
    if not arch.options.head_use_bias:
        return [*links, _projection(names)]
    links += torch.dense(names.head, "head")
    if arch.classifier == "distilled":
        links += torch.dense(names.head_dist, "head_dist")
    return links


def _projection(names):
    if names.projection_is_ours:  # (D, K)
        return same(names.projection, "head/kernel")
    return transposed(names.projection, "head/kernel", (1, 0))
