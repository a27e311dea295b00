"""The paths of the variables of blocks, layers and ResNet stems, in the order of the layers."""

from vit_keras.layers import BlockOptions
from vit_keras.layers.block_options import PAPER, QKV_BIASES

ATTENTION_PROJECTIONS = ("query", "key", "value", "out")
RELATIVE = {"relative": "relative/embedding", "relative_2d": "relative_2d/table"}


def block_paths(
    block: str, options: BlockOptions = PAPER, position_embedding: str | None = None
) -> list[str]:
    """The paths of one encoder block's variables."""
    attention, kind = f"{block}/MultiHeadDotProductAttention_1", options.norm
    relative = RELATIVE.get(position_embedding or "")
    rope = options.rope
    scales = options.layer_scale is not None
    return [
        *norm_paths(f"{block}/LayerNorm_0", kind),
        *attention_paths(attention, options),
        *([f"{attention}/{relative}"] if relative else []),
        *([f"{attention}/rotary/frequencies"] if rope is not None and rope.mixed else []),
        *([f"{block}/LayerScale_0/gamma"] if scales else []),
        *([] if options.parallel else norm_paths(f"{block}/LayerNorm_2", kind)),
        *mlp_paths(f"{block}/MlpBlock_3", options),
        *([f"{block}/LayerScale_1/gamma"] if scales and not options.parallel else []),
    ]


def map_head_paths(head: str) -> list[str]:
    """The paths of an attention pooling head's variables."""
    return [
        f"{head}/probe",
        *attention_paths(f"{head}/MultiHeadDotProductAttention_0"),
        *norm_paths(f"{head}/LayerNorm_0"),
        *mlp_paths(f"{head}/MlpBlock_0"),
    ]


def dense_paths(name: str) -> list[str]:
    """The paths of a dense layer's kernel and bias."""
    return [f"{name}/kernel", f"{name}/bias"]


def norm_paths(name: str, kind: str = "layer") -> list[str]:
    """The paths of a normalization's gamma and beta, or of the scale of kind "rms"."""
    return [f"{name}/scale"] if kind == "rms" else [f"{name}/gamma", f"{name}/beta"]


def attention_paths(name: str, options: BlockOptions = PAPER) -> list[str]:
    """The paths of the variables in an attention layer's projections and normalizations."""
    biased = (*QKV_BIASES[options.qkv_bias], "out")
    paths = [
        path
        for part in ATTENTION_PROJECTIONS
        for path in dense_paths(f"{name}/{part}")[: 2 if part in biased else 1]
    ]
    norms = ["query_norm", "key_norm"] if options.qk_norm else []
    norms += ["norm"] if options.attention_norm else []
    return paths + [path for norm in norms for path in norm_paths(f"{name}/{norm}", options.norm)]


def mlp_paths(name: str, options: BlockOptions = PAPER) -> list[str]:
    """The paths of the variables in an MLP's dense layers and its normalization."""
    gate = dense_paths(f"{name}/gate") if options.mlp == "swiglu" else []
    norm = norm_paths(f"{name}/norm", options.norm) if options.mlp_norm else []
    return gate + dense_paths(f"{name}/Dense_0") + norm + dense_paths(f"{name}/Dense_1")


def stem_paths(resnet_layers: tuple[int, ...]) -> list[str]:
    """The paths of a hybrid's ResNet stem.

    A norm follows each convolution, and `unit1` of each stage has a projection.
    """
    paths = ["conv_root/kernel", *norm_paths("gn_root")]
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u}"
            for part in ("1", "2", "3", "_proj") if u == 1 else ("1", "2", "3"):
                paths += [f"{unit}/conv{part}/kernel", *norm_paths(f"{unit}/gn{part}")]
    return paths


def resnet_paths(resnet_layers: tuple[int, ...]) -> list[str]:
    """The paths of BiT's ResNet without its head.

    A norm precedes each convolution, and `unit01` of each stage has a projection.
    """
    paths = ["root_block/conv_root/kernel"]
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            unit = f"block{s}/unit{u:02d}"
            paths += [f"{unit}/conv_proj/kernel"] if u == 1 else []
            for part in "123":
                paths += [f"{unit}/conv{part}/kernel", *norm_paths(f"{unit}/gn{part}")]
    return paths + norm_paths("norm-pre-head")
