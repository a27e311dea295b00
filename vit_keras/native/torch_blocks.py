"""The blocks and the pool of timm's Vision Transformers in torch, with timm's parameter names."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from vit_keras.layers.kernels.torch_settled import has_hook
from vit_keras.native.design import Design
from vit_keras.native.torch_attention import Attention, Heads, Tables, make_norm
from vit_keras.weights.formats.tensor_names import TensorNames

GELUS: dict[str, Callable[[Tensor], Tensor]] = {
    "exact": functional.gelu,
    "tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "quick": lambda x: x * torch.sigmoid(1.702 * x),
}
IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {  # the same, which change `x` itself
    "exact": torch.ops.aten.gelu_,
    "tanh": lambda x: torch.ops.aten.gelu_(x, approximate="tanh"),
    "quick": lambda x: x.mul_(torch.sigmoid(1.702 * x)),
}


def is_ours(layer: nn.Module) -> bool:
    """Whether what `layer` has just returned is held by nobody else, and may be changed in place.

    Gradients, hooks, and traces need it as it was, and other layers may return what they keep.
    """
    is_seen = has_hook(layer) or nn.modules.module._has_any_global_hook()
    is_recorded = torch.is_grad_enabled() or torch.jit.is_tracing()
    return type(layer) is nn.Linear and not (is_seen or is_recorded)


def drop_path(x: Tensor, rate: float, training: bool) -> Tensor:
    """Sets `x` to 0 in some images, and scales it in the others (stochastic depth)."""
    if not training or rate == 0:
        return x
    stays = torch.empty((x.shape[0], 1, 1), dtype=x.dtype, device=x.device).bernoulli_(1 - rate)
    return x * (stays / (1 - rate))


class LayerScale(nn.Module):
    """A learned factor `gamma` for each of `size` channels."""

    def __init__(self, size: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Mlp(nn.Module):
    """Two layers with GELU between them, and dropouts.

    Args:
        width: The number of channels of a token.
        hidden: The number of hidden units.
        gelu: A name in `GELUS`.
        rate: The rate of the dropouts.
    """

    def __init__(self, width: int, hidden: int, gelu: str, rate: float = 0.0):
        super().__init__()
        self.gelu, self.rate, self.norm = gelu, rate, None
        self.fc1, self.fc2 = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, N, D)` -> `(B, N, D)`."""
        x = self.hidden(x)
        x = functional.dropout(x if self.norm is None else self.norm(x), self.rate, self.training)
        return functional.dropout(self.fc2(x), self.rate, self.training)

    def hidden(self, x: Tensor) -> Tensor:
        """Returns the hidden units."""
        x = self.fc1(x)
        return (IN_PLACE if is_ours(self.fc1) else GELUS)[self.gelu](x)


class PackedSwiGLU(Mlp):
    """SwiGLU, whose `fc1` holds the gate and the values."""

    def __init__(self, width: int, hidden: int, gelu: str, rate: float = 0.0):
        super().__init__(width, hidden, gelu, rate)
        self.fc1 = nn.Linear(width, 2 * hidden)

    def hidden(self, x: Tensor) -> Tensor:
        gate, x = self.fc1(x).chunk(2, -1)
        return functional.silu(gate) * x


class SwiGLU(Mlp):
    """SwiGLU with a gate of its own."""

    def __init__(self, width: int, hidden: int, gelu: str, rate: float = 0.0):
        super().__init__(width, hidden, gelu, rate)
        del self.fc1
        self.fc1_g, self.fc1_x = nn.Linear(width, hidden), nn.Linear(width, hidden)

    def hidden(self, x: Tensor) -> Tensor:
        return functional.silu(self.fc1_g(x)) * self.fc1_x(x)


def _make_mlp(design, names):
    arch, kind = design.arch, Mlp
    if arch.options.mlp == "swiglu":
        kind = SwiGLU if names.gate else PackedSwiGLU
    mlp = kind(arch.hidden_size, arch.mlp_dim, arch.gelu, design.dropout_rate)
    mlp.norm = make_norm(design, arch.mlp_dim) if arch.options.mlp_norm else None
    return mlp


class Block(nn.Module):
    """An encoder block: attention, then the MLP, each after a normalization and with a residual.

    Args:
        design: What the model computes.
        names: The names of timm's class.
        depth_rate: The rate at which training drops a residual branch of an image.
    """

    def __init__(self, design: Design, names: TensorNames, depth_rate: float):
        super().__init__()
        width, has_scales = design.arch.hidden_size, design.arch.options.layer_scale is not None
        self.rate, self.depth_rate = design.dropout_rate, depth_rate
        self.norm1, self.norm2 = make_norm(design, width), make_norm(design, width)
        self.attn, self.mlp = Attention(design, names), _make_mlp(design, names)
        self.has_modules = has_scales and names.scale_0 == "ls1.gamma"
        self.has_gammas = has_scales and not self.has_modules
        if self.has_modules:
            self.ls1, self.ls2 = LayerScale(width), LayerScale(width)
        elif self.has_gammas:
            self.gamma_1 = nn.Parameter(torch.empty(width))
            self.gamma_2 = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor, tables: Tables = None) -> Tensor:
        """`(B, N, D)` -> `(B, N, D)`."""
        y = functional.dropout(self.attn(self.norm1(x), tables), self.rate, self.training)
        if self.has_modules:
            y = self.ls1(y)
        elif self.has_gammas:
            y = y * self.gamma_1
        x = x + drop_path(y, self.depth_rate, self.training)
        del y  # its memory serves the MLP
        y = self.mlp(self.norm2(x))
        if self.has_modules:
            y = self.ls2(y)
        elif self.has_gammas:
            y = y * self.gamma_2
        return x + drop_path(y, self.depth_rate, self.training)


class ParallelBlock(Heads):
    """The block of ViT-22B, with attention and the MLP side by side.

    Args:
        design: What the model computes.
        names: The names of timm's class.
        depth_rate: The rate at which training drops the residual branch of an image.
    """

    def __init__(self, design: Design, names: TensorNames, depth_rate: float):
        super().__init__(design, names)
        arch, options = design.arch, design.arch.options
        width, hidden = arch.hidden_size, arch.mlp_dim
        self.rate, self.depth_rate, self.gelu = design.dropout_rate, depth_rate, arch.gelu
        self.in_norm, has_bias = make_norm(design, width), options.qkv_bias == "all"
        self.sizes = [hidden, width, width, width]
        self.in_proj = nn.Linear(width, sum(self.sizes), bias=has_bias)
        self.mlp_bias = None if has_bias else nn.Parameter(torch.empty(hidden))
        self.attn_out_proj, self.mlp_out_proj = nn.Linear(width, width), nn.Linear(hidden, width)
        self.ls = None if options.layer_scale is None else LayerScale(width)

    def forward(self, x: Tensor, tables: Tables = None) -> Tensor:
        """`(B, N, D)` -> `(B, N, D)`."""
        drop = lambda x: functional.dropout(x, self.rate, self.training)
        mlp, *projections = self.in_proj(self.in_norm(x)).split(self.sizes, -1)
        mlp = GELUS[self.gelu](mlp if self.mlp_bias is None else mlp + self.mlp_bias)
        y = drop(self.attn_out_proj(self.attend(projections, tables)))
        y = y + drop(self.mlp_out_proj(drop(mlp)))
        return x + drop_path(y if self.ls is None else self.ls(y), self.depth_rate, self.training)


class AttentionPool(nn.Module):
    """A learned probe that attends to all tokens, and an MLP: `(B, N, D)` -> `(B, D)`.

    Args:
        design: What the model computes.
    """

    def __init__(self, design: Design):
        super().__init__()
        arch, options = design.arch, design.arch.options
        width = arch.hidden_size
        self.num_heads = options.map_heads or arch.num_heads
        self.latent = nn.Parameter(torch.empty(1, 1, width))
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=arch.layer_norm_epsilon)
        self.mlp = Mlp(width, options.map_mlp_dim or arch.mlp_dim, arch.gelu)

    def forward(self, x: Tensor) -> Tensor:
        projections = self.q(self.latent).expand(x.shape[0], -1, -1), *self.kv(x).chunk(2, -1)
        heads = (self.num_heads, -1)
        query, key, value = (y.unflatten(-1, heads).transpose(1, 2) for y in projections)
        y = functional.scaled_dot_product_attention(query, key, value)
        y = self.proj(y.transpose(1, 2).flatten(2))  # (B, 1, D)
        return (y + self.mlp(self.norm(y)))[:, 0]
