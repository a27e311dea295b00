"""Models as torch modules with timm's parameter names."""

import dataclasses
import math
from collections.abc import Callable

import keras
import torch
from torch import Tensor, nn
from torch.nn import functional

from vit_keras.layers.position_tables import sincos_2d
from vit_keras.native.design import Design, check_images, design_of, with_plain_kernels
from vit_keras.native.tensors import assign_variables, read_variables
from vit_keras.native.torch_attention import RotaryTables, make_norm
from vit_keras.native.torch_blocks import AttentionPool, Block, ParallelBlock
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats import timm
from vit_keras.weights.formats.timm_names import names_for, rotary_layout

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "linear": lambda x: x,
    "softmax": lambda x: x.softmax(-1),
    "sigmoid": torch.sigmoid,
}
# What timm's parallel block has no tensors for.
PARALLEL = {"mlp": "gelu", "mlp_norm": False, "attention_norm": False}


class NativeVisionTransformer(nn.Module):
    """A Vision Transformer of torch alone, which `to_torch` makes; its parameters have no values.

    Args:
        design: What the model computes.
    """

    def __init__(self, design: Design):
        super().__init__()
        self.design, arch, options = design, design.arch, design.arch.options
        names, width, patch = _names(arch), arch.hidden_size, arch.patch_size
        self.patch_embed = nn.Module()
        use_bias = not options.pre_norm
        self.patch_embed.proj = nn.Conv2d(arch.channels, width, patch, patch, bias=use_bias)
        counts = {"cls_token": arch.prefix.names.count("cls")}
        counts |= {"dist_token": arch.prefix.names.count("dist")}
        for name, count in (counts | {"reg_token": options.num_registers}).items():
            token = nn.Parameter(torch.empty(1, count, width)) if count else None
            self.register_parameter(name, token)
        self._add_positions(arch)
        self.norm_pre = make_norm(design, width) if options.pre_norm else None
        self.rope = RotaryTables(design, names.rotary) if options.rope is not None else None
        block = ParallelBlock if options.parallel else Block
        self.blocks = nn.ModuleList(
            block(design, names, rate) for rate in design.stochastic_depth_rates
        )
        norm = "fc_norm" if arch.classifier == "gap_norm" else "norm"
        self.norm = self.fc_norm = None
        if options.final_norm:
            setattr(self, norm, make_norm(design, width))
        self._add_heads(arch)

    def _add_positions(self, arch):
        self.pos_embed = None
        self.covers_prefix = arch.options.position_cover != "patches" and not _is_folded(arch)
        if arch.position_embedding == "learned":
            count = arch.num_positions - _is_folded(arch)
            self.pos_embed = nn.Parameter(torch.empty(1, count, arch.hidden_size))
        elif arch.position_embedding == "sincos2d":
            rows, columns = arch.grid
            table = torch.from_numpy(sincos_2d(rows, columns, arch.hidden_size))
            del self.pos_embed
            self.register_buffer("pos_embed", table, persistent=False)

    def _add_heads(self, arch):
        options, width = arch.options, arch.hidden_size
        self.attn_pool = AttentionPool(self.design) if arch.classifier == "map" else nn.Identity()
        self.pre_logits = self.head = self.head_dist = None
        width = 2 * width if arch.classifier == "token_gap" else width
        if arch.representation_size is not None:
            self.pre_logits = nn.Linear(width, arch.representation_size)
        if arch.num_classes is None:
            return
        self.head = nn.Linear(arch.representation_size or width, arch.num_classes)
        if not options.head_use_bias:  # timm has one; it stays 0
            del self.head.bias
            self.head.register_buffer("bias", torch.empty(arch.num_classes))
        if arch.classifier == "distilled":
            self.head_dist = nn.Linear(width, arch.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Returns the model's output for images `(B, C, H, W)`, as timm takes them."""
        if not torch.jit.is_tracing():
            check_images(self.design.arch, images.shape, channels_first=True)
        x = self.patch_embed.proj(images).flatten(2).transpose(1, 2)
        x = functional.dropout(self._add_prefix(x), self.design.dropout_rate, self.training)
        x = self._drop_patches(x)
        x = x if self.norm_pre is None else self.norm_pre(x)
        for i, block in enumerate(self.blocks):
            x = block(x, None if self.rope is None else self.rope(i))
        x, *dist = self._read(x)
        if self.pre_logits is not None:
            x = self.pre_logits(x).tanh()
        if self.head is None:
            return x
        logits = ACTIVATIONS[self.design.activation](self.head(x))
        if self.head_dist is not None:
            logits = (logits + self.head_dist(dist[0])) / 2
        return logits

    def _add_prefix(self, x):
        """Adds the tokens before the patches, and positions."""
        tokens = (self.cls_token, self.dist_token, self.reg_token)
        before = [token.expand(x.shape[0], -1, -1) for token in tokens if token is not None]
        if self.pos_embed is not None and not self.covers_prefix:
            x = x + self.pos_embed
        x = torch.cat([*before, x], 1) if before else x
        return x + self.pos_embed if self.pos_embed is not None and self.covers_prefix else x

    def _drop_patches(self, x):
        first, count = self.design.arch.prefix.count, self.design.kept_patches
        patches = math.prod(self.design.arch.grid)
        if not self.training or count == patches:
            return x
        places = torch.rand(x.shape[0], patches, device=x.device).argsort(1)[:, :count]
        places = places.sort(1).values[..., None].expand(-1, -1, x.shape[2])
        return torch.cat([x[:, :first], x[:, first:].gather(1, places)], 1)

    def _read(self, x):
        """Normalizes the tokens and reads vectors for the heads."""
        kind, count = self.design.arch.classifier, self.design.arch.prefix.count
        x = x if self.norm is None else self.norm(x)
        if kind == "map":
            return [self.attn_pool(x if self.design.arch.options.pool_all_tokens else x[:, count:])]
        if kind in ("gap", "gap_norm"):
            x = x[:, count:].mean(1)
            return [x if self.fc_norm is None else self.fc_norm(x)]
        if kind == "token_gap":
            return [torch.cat([x[:, 0], x[:, count:].mean(1)], -1)]
        return [x[:, i] for i in range(2 if kind == "distilled" else 1)]


def to_torch(model: keras.Model) -> NativeVisionTransformer:
    """Makes a torch module with timm's parameter names from a Vision Transformer.

    Args:
        model: A model that `VisionTransformer` built, on any backend. Low-rank adapters are merged.

    Returns:
        A module on the CPU, in evaluation mode. It takes images `(B, C, H, W)`, as timm's models
        do, and returns the model's output. In training mode it drops as the model does. It can be
        trained, moved, traced by `torch.jit.trace`, and exported by `torch.export`.

    Raises:
        ValueError: The model has an option that the module does not compute, or that timm has no
            name for, which the message names.

    Example:
        ```python
        module = vit_keras.native.to_torch(model)
        logits = module(torch.from_numpy(images).permute(0, 3, 1, 2))
        timm.create_model("vit_tiny_patch16_224").load_state_dict(module.state_dict())
        ```
    """
    model = with_plain_kernels(model)
    design = design_of(model)
    arch = _with_names(design.arch)
    design = dataclasses.replace(design, arch=arch)
    with torch.device("meta"):
        module = NativeVisionTransformer(design)
    arrays = read_variables(model, timm.links(arch))
    # A clone lies in torch's aligned memory, which products read faster than NumPy's.
    tensors = {name: torch.from_numpy(array).clone() for name, array in arrays.items()}
    module.load_state_dict(tensors, assign=True)
    return module.eval()


def from_torch(module: nn.Module, model: keras.Model) -> keras.Model:
    """Puts the parameters of a torch module back into a model, after a training in torch.

    Args:
        module: A module of `to_torch`, or one of timm with the same parameters.
        model: The model, which is changed in place.

    Returns:
        `model`.

    Raises:
        ValueError: Parameters are missing, unknown or of another shape. The model is unchanged.

    Example:
        ```python
        module = vit_keras.native.to_torch(model).train()
        optimizer = torch.optim.AdamW(module.parameters(), 1e-4)
        loss = torch.nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        optimizer.step()
        vit_keras.native.from_torch(module, model)
        ```
    """
    arch = _with_names(VisionTransformerArchitecture.from_model(model))
    tensors = {
        name: x.detach().cpu().to(torch.promote_types(x.dtype, torch.float32)).numpy()
        for name, x in module.state_dict().items()
        if not timm.canonical(name).startswith(timm.BUFFERS)
    }
    assign_variables(model, timm.links(arch), tensors)
    return model


def _names(arch):
    """The names of timm's class for the model, with the layout of its heads."""
    names, rope = names_for(arch), arch.options.rope
    if rope is None:
        return names
    return dataclasses.replace(names, rotary=rotary_layout(rope, arch.options.pre_norm))


def _is_folded(arch) -> bool:
    """Whether the position of the class token is a part of the token, as timm has DINOv2's."""
    return arch.options.position_cover == "class" and arch.options.num_registers > 0


def _with_names(arch: VisionTransformerArchitecture) -> VisionTransformerArchitecture:
    """Returns the architecture as timm's names hold it; ValueError where they have no place."""
    options, refused = arch.options, {}
    if arch.position_embedding == "sincos2d":  # 0 for other tokens
        options = dataclasses.replace(options, position_cover="patches")
        arch = dataclasses.replace(arch, options=options)
    if options.parallel:
        refused = {k: getattr(options, k) for k, v in PARALLEL.items() if getattr(options, k) != v}
        if options.qkv_bias == "qv":
            refused["qkv_bias"] = "qv"
        if options.rope is not None and options.rope.mixed:
            refused["rope"] = options.rope
        if arch.position_embedding == "relative_2d":
            refused["position_embedding"] = "relative_2d"
    if _is_folded(arch) and arch.prefix.names != ("cls",):
        refused["distillation_token"], refused["num_registers"] = True, options.num_registers
    if refused:
        received = ", ".join(f"{name}={value!r}" for name, value in refused.items())
        raise ValueError(
            "timm's names, which a native torch module has, have no place for a model with "
            f"{received}{' beside parallel=True' if options.parallel else ''}. `to_jax` and "
            "`to_tensorflow` take such a model"
        )
    return arch
