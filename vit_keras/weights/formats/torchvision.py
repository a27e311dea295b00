"""torchvision's `VisionTransformer` state dicts: `vit_b_16` and the other sizes."""

from vit_keras.models import Preprocessing
from vit_keras.support.resizing import Resizing
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.formats.base import Format, Link, Numerics, same
from vit_keras.weights.formats.tensor_links import conv, dense, fused, heads_out, norm
from vit_keras.weights.recognition import count_blocks, guess_image_size

LAYERS = "encoder.layers.encoder_layer_"
PREPROCESSING = Preprocessing(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    antialias=True,
    crop_fraction=0.875,
    rounding="torchvision",
)


def canonical(name: str) -> str:
    """Translates the MLP's old names to its new ones."""
    return name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")


def detect(names: set[str]) -> bool:
    return {"conv_proj.weight", "encoder.pos_embedding"} <= names


def links(arch: VisionTransformerArchitecture, names=None, config=None) -> list[Link]:
    result = conv("conv_proj", "embedding")
    result += [same("class_token", "cls/cls")]
    result += [same("encoder.pos_embedding", "posembed_input/pos_embedding")]
    for i in range(arch.num_layers):
        result += _block(f"{LAYERS}{i}", f"encoderblock_{i}", arch.num_heads)
    result += norm("encoder.ln", "encoder_norm")
    if arch.representation_size is not None:
        result += dense("heads.pre_logits", "pre_logits")
    return result + (dense("heads.head", "head") if arch.num_classes is not None else [])


def _block(old, new, num_heads):
    attention, theirs = f"{new}/MultiHeadDotProductAttention_1", f"{old}.self_attention"
    qkv = ("query", "key", "value")
    return [
        *norm(f"{old}.ln_1", f"{new}/LayerNorm_0"),
        *fused(f"{theirs}.in_proj_weight", f"{theirs}.in_proj_bias", attention, qkv, num_heads),
        *heads_out(f"{theirs}.out_proj", f"{attention}/out", num_heads),
        *norm(f"{old}.ln_2", f"{new}/LayerNorm_2"),
        *dense(f"{old}.mlp.0", f"{new}/MlpBlock_3/Dense_0"),
        *dense(f"{old}.mlp.3", f"{new}/MlpBlock_3/Dense_1"),
    ]


def infer(shapes: dict, config: dict) -> dict:
    hidden_size, channels, *patch_size = shapes["conv_proj.weight"]
    arguments = {
        "patch_size": tuple(patch_size),
        "channels": channels,
        "hidden_size": hidden_size,
        "num_layers": count_blocks(shapes, LAYERS),
        "mlp_dim": shapes[f"{LAYERS}0.mlp.0.weight"][0],
        "num_classes": shapes.get("heads.head.weight", (None,))[0],
        "classifier": "token",
        "representation_size": shapes.get("heads.pre_logits.weight", (None,))[0],
    }
    positions = shapes["encoder.pos_embedding"][1]
    return arguments | guess_image_size(positions, arguments["patch_size"], True)


FORMAT = Format(
    name="torchvision",
    suffixes=(".pth", ".safetensors"),
    detect=detect,
    infer=infer,
    links=links,
    numerics=lambda config: Numerics(
        preprocessing=PREPROCESSING, resizing=Resizing("bicubic_aligned", "bicubic")
    ),
    canonical=canonical,
    channels=3,
    head=("heads.head.", "heads.pre_logits."),
    classifiers=("token",),
)
