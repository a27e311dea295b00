"""What projects that write PyTorch tensors call the parts of a plain Vision Transformer.

A `TensorNames` is one row of such a table. `tensor_links` turns a row into links, and
`tensor_shapes` reads the sizes and options of a model off the shapes of a file.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class PoolNames:
    """The names of an attention pool's tensors.

    Attributes:
        probe: The whole name of the probe.
        query: The prefix of the query's projection; empty if `in_proj` holds all three.
        kv: The prefix of the fused projection of keys and values.
        in_proj: The prefix of the fused projection of query, key and value, as `nn` has it.
        out: The prefix of the output projection.
        norm: The prefix of the normalization.
        dense_0: The prefix of the MLP's first layer.
        dense_1: The prefix of the MLP's second layer.
    """

    probe: str
    out: str
    norm: str
    dense_0: str
    dense_1: str
    query: str = ""
    kv: str = ""
    in_proj: str = ""


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """The names of a project's tensors: whole names of parameters, prefixes of layers.

    Names in a block stand without the block's prefix. An empty name stands for what a project has
    not.

    Attributes:
        patches: The projection of patches.
        block: The prefix of a block, with `{}` for its number.
        norm_0: The normalization before attention.
        out: The output projection of attention.
        norm_2: The normalization before the MLP; empty for a parallel block.
        dense_0: The first layer of the MLP, or its values.
        dense_1: The last layer of the MLP.
        norm: The normalization after the blocks.
        pooled_norm: The normalization after a mean; empty for `norm`.
        qkv: The prefix of the fused projection of query, key and value, with ".weight".
        in_proj: The same, with "_weight" and "_bias" behind it, as in `nn.MultiheadAttention`.
        query: The prefix of the query's own projection; `key` and `value` likewise.
        query_bias: The whole name of the query's bias beside a fused kernel; `value_bias` likewise.
        query_norm: The normalization of queries in each head; `key_norm` likewise.
        attention_norm: The normalization before `out`.
        scale_0: The whole name of the first LayerScale; `scale_1` of the second.
        gate: The gate of SwiGLU.
        packed: The fused gate and values of SwiGLU, in this order.
        mlp_norm: The normalization before `dense_1`.
        parallel_in: The fused MLP, query, key and value of a parallel block.
        parallel_bias: The whole name of the MLP's bias where `parallel_in` has no bias.
        relative: The whole name of a block's table of relative biases.
        shared_relative: The whole name of a table that all blocks share.
        frequencies: The whole name of the learned frequencies of all blocks.
        cls: The whole names of the class token, the distillation token, the registers and the
            position embeddings: `dist`, `registers`, `positions`.
        pre_norm: The normalization before the blocks.
        pre_logits: The hidden layer before the classifier.
        head: The classifier, and the distillation token's: `head_dist`.
        projection: The whole name of a classifier without bias, `(D, K)` if `projection_is_ours`.
        pool: The names of the attention pool.
        rotary: How q and k are laid out in heads, a name in `rotary_layouts.LAYOUTS`.
        token_axes: The number of axes of `cls` and `dist`: 3 for `(1, 1, D)`, 1 for `(D,)`.
        position_axes: The number of axes of `positions`: 3 for `(1, N, D)`, 2 for `(N, D)`, 4 for
            `(1, h, w, D)`.
        linear_patches: Whether the projection of patches is a matrix of flat patches.
    """

    patches: str
    block: str
    norm_0: str
    out: str
    dense_0: str
    dense_1: str
    norm: str
    norm_2: str = ""
    pooled_norm: str = ""
    qkv: str = ""
    in_proj: str = ""
    query: str = ""
    key: str = ""
    value: str = ""
    query_bias: str = ""
    value_bias: str = ""
    query_norm: str = ""
    key_norm: str = ""
    attention_norm: str = ""
    scale_0: str = ""
    scale_1: str = ""
    gate: str = ""
    packed: str = ""
    mlp_norm: str = ""
    parallel_in: str = ""
    parallel_bias: str = ""
    relative: str = ""
    shared_relative: str = ""
    frequencies: str = ""
    cls: str = ""
    dist: str = ""
    registers: str = ""
    positions: str = ""
    pre_norm: str = ""
    pre_logits: str = ""
    head: str = ""
    head_dist: str = ""
    projection: str = ""
    projection_is_ours: bool = False
    pool: PoolNames | None = None
    rotary: str = "halves"
    token_axes: int = 3
    position_axes: int = 3
    linear_patches: bool = False

    def of_block(self, number: int, name: str) -> str:
        """Returns the whole name of a block's tensor or layer."""
        return f"{self.block.format(number)}{name}"
