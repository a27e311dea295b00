"""The paths of the variables of blocks, layers and ResNet stems, in the order of the layers."""

ATTENTION_PROJECTIONS = ("query", "key", "value", "out")


def block_paths(block: str) -> list[str]:
    """The paths of one encoder block's variables."""
    return [
        *norm_paths(f"{block}/LayerNorm_0"),
        *attention_paths(f"{block}/MultiHeadDotProductAttention_1"),
        *norm_paths(f"{block}/LayerNorm_2"),
        *mlp_paths(f"{block}/MlpBlock_3"),
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


def norm_paths(name: str) -> list[str]:
    """The paths of a normalization's gamma and beta."""
    return [f"{name}/gamma", f"{name}/beta"]


def attention_paths(name: str) -> list[str]:
    """The paths of the variables in an attention layer's four projections."""
    return [path for part in ATTENTION_PROJECTIONS for path in dense_paths(f"{name}/{part}")]


def mlp_paths(name: str) -> list[str]:
    """The paths of the variables in an MLP's two dense layers."""
    return dense_paths(f"{name}/Dense_0") + dense_paths(f"{name}/Dense_1")


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
