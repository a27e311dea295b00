"""torchvision's `VisionTransformer` state dicts: `vit_b_16` and the other sizes."""

from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics
from vit_keras.support.preprocessing import Resizing
from vit_keras.variants.families import IMAGENET
from vit_keras.weights.formats.base import Format, covered_positions
from vit_keras.weights.formats.tensor_names import TensorNames

NAMES = TensorNames.of(
    "patches=conv_proj cls=class_token positions=encoder.pos_embedding "
    "block=encoder.layers.encoder_layer_{}. norm_0=ln_1 qkv=self_attention.in_proj_ "
    "out=self_attention.out_proj norm_2=ln_2 dense_0=mlp.0 dense_1=mlp.3 norm=encoder.ln "
    "pre_logits=heads.pre_logits head=heads.head",
)
PREPROCESSING = Preprocessing(
    **IMAGENET, antialias=True, crop_fraction=0.875, rounding="torchvision"
)


def canonical(name: str) -> str:
    """Translates the MLP's old names to its new ones."""
    return name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")


def infer(shapes: dict, config: dict) -> dict:
    arguments = NAMES.sizes(shapes, "token")
    return arguments | covered_positions(arguments, shapes[NAMES.positions][1], covers=("all",))


FORMAT = Format(
    name="torchvision",
    suffixes=(".pth", ".safetensors"),
    detect=lambda names: {"conv_proj.weight", NAMES.positions} <= names,
    infer=infer,
    links=lambda arch, names=None, config=None: NAMES.links(arch),
    numerics=lambda shapes, config: Numerics(
        preprocessing=PREPROCESSING, resizing=Resizing("bicubic_aligned", "bicubic")
    ),
    canonical=canonical,
    head=("heads.head.", "heads.pre_logits."),
    as_read=lambda arch: {"channels": 3, "qkv_bias": "all"},
)
