"""Attention of timm's Vision Transformers in torch, with timm's parameter names."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from vit_keras.layers.block_options import QKV_BIASES, Rope
from vit_keras.layers.position_tables import rotary_angles_2d, rotary_places
from vit_keras.layers.relative_bias import relative_index
from vit_keras.native.design import Design
from vit_keras.weights.formats.rotary_layouts import LAYOUTS
from vit_keras.weights.formats.tensor_names import TensorNames

Tables = tuple[Tensor, Tensor] | None
NORMS: dict[str, Callable[..., nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


def make_norm(design: Design, size: int) -> nn.Module:
    """Returns the normalization of the design's kind over `size` numbers."""
    return NORMS[design.arch.options.norm](size, eps=design.arch.layer_norm_epsilon)


class RotaryTables(nn.Module):
    """The cosines and sines of rotary positions, laid out as timm's queries and keys are.

    Args:
        design: What the model computes.
        layout: A name in `rotary_layouts.LAYOUTS`.
    """

    def __init__(self, design: Design, layout: str):
        super().__init__()
        arch, rope = design.arch, design.arch.options.rope or Rope()
        size, before = arch.hidden_size // arch.num_heads, arch.prefix.count
        self.is_mixed = rope.mixed
        if self.is_mixed:
            shape = (2, arch.num_layers, arch.num_heads, size // 2)
            self.freqs = nn.Parameter(torch.empty(shape))  # columns first
            places = torch.from_numpy(rotary_places(*arch.grid, before, rope)).float()
            self.register_buffer("places", places[..., None], persistent=False)  # (2, N, 1)
            return
        angles = np.tile(rotary_angles_2d(*arch.grid, size, before, rope)[:, 0], 2)  # (N, d)
        angles = torch.from_numpy(angles[:, LAYOUTS[layout](size).argsort()])
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)

    def forward(self, block: int) -> tuple[Tensor, Tensor]:
        """Returns two tables `(N, d)` for a block, or `(H, N, d)` where each head has its own."""
        if not self.is_mixed:
            return self.cos, self.sin
        rows, columns = self.places
        by_column, by_row = self.freqs[:, block, :, None]  # (H, 1, d/2)
        angles = (rows * by_row + columns * by_column).repeat_interleave(2, -1)
        return angles.cos(), angles.sin()


def rotate(x: Tensor, tables: tuple[Tensor, Tensor], in_halves: bool) -> Tensor:
    """Rotates the pairs (i, i + d/2), or else (2i, 2i + 1), of `(B, H, N, d)`."""
    cos, sin = (table.to(x.dtype) for table in tables)
    if in_halves:
        first, second = x.chunk(2, -1)
        turned = torch.cat([-second, first], -1)
    else:
        turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + turned * sin


class Heads(nn.Module):
    """Base of the modules with self-attention, from projected tokens to the heads' results."""

    q_norm: nn.Module | None
    k_norm: nn.Module | None

    def __init__(self, design: Design, names: TensorNames):
        super().__init__()
        arch = design.arch
        self.num_heads, self.attention_rate = arch.num_heads, design.attention_dropout_rate
        self.in_halves = names.rotary == "halves"
        size = arch.hidden_size // arch.num_heads
        self.q_norm = make_norm(design, size) if arch.options.qk_norm else None
        self.k_norm = make_norm(design, size) if arch.options.qk_norm else None

    def attend(self, projections, tables: Tables = None, bias: Tensor | None = None) -> Tensor:
        """softmax(q kᵀ / √d + bias) v of three projections `(B, N, D)`: `(B, N, D)`."""
        heads = (self.num_heads, -1)
        query, key, value = (x.unflatten(-1, heads).transpose(1, 2) for x in projections)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        if tables is not None:
            query = rotate(query, tables, self.in_halves)
            key = rotate(key, tables, self.in_halves)
        rate = self.attention_rate if self.training else 0.0
        x = functional.scaled_dot_product_attention(query, key, value, bias, rate)
        return x.transpose(1, 2).flatten(2)


class Attention(Heads):
    """Self-attention with one projection of queries, keys and values, or with three.

    Args:
        design: What the model computes.
        names: The names of timm's class.
    """

    def __init__(self, design: Design, names: TensorNames):
        super().__init__(design, names)
        arch, options = design.arch, design.arch.options
        width, biased = arch.hidden_size, QKV_BIASES[options.qkv_bias]
        self.is_fused, self.has_biases = not names.query, bool(names.query_bias and biased)
        if self.is_fused:
            self.qkv = nn.Linear(width, 3 * width, bias=bool(biased) and not names.query_bias)
        else:
            self.q_proj = nn.Linear(width, width, bias="query" in biased)
            self.k_proj = nn.Linear(width, width, bias="key" in biased)
            self.v_proj = nn.Linear(width, width, bias="value" in biased)
        if self.has_biases:
            self.q_bias = nn.Parameter(torch.empty(width))
            self.v_bias = nn.Parameter(torch.empty(width))
        self.norm = make_norm(design, width) if options.attention_norm else None
        self.proj = nn.Linear(width, width)
        self.has_table = arch.position_embedding == "relative_2d"
        if self.has_table:
            self._add_table(arch)

    def _add_table(self, arch):
        (rows, columns), first = arch.grid, 1 - arch.prefix.count
        shape = ((2 * rows - 1) * (2 * columns - 1) + 3, arch.num_heads)
        self.relative_position_bias_table = nn.Parameter(torch.empty(shape))
        index = torch.from_numpy(relative_index(arch.grid)[first:, first:].astype("int64"))
        self.register_buffer("relative_position_index", index, persistent=False)

    def forward(self, x: Tensor, tables: Tables = None) -> Tensor:
        """`(B, N, D)` -> `(B, N, D)`."""
        bias = self._bias(x.dtype) if self.has_table else None
        x = self.attend(self._project(x), tables, bias)
        return self.proj(x if self.norm is None else self.norm(x))

    def _project(self, x):
        if not self.is_fused:
            return self.q_proj(x), self.k_proj(x), self.v_proj(x)
        if not self.has_biases:
            return self.qkv(x).chunk(3, -1)
        bias = torch.cat([self.q_bias, torch.zeros_like(self.q_bias), self.v_bias])
        return functional.linear(x, self.qkv.weight, bias).chunk(3, -1)

    def _bias(self, dtype):
        """The bias of attention for each offset, `(1, H, N, N)`."""
        bias = self.relative_position_bias_table[self.relative_position_index]
        return bias.permute(2, 0, 1)[None].to(dtype)
