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


class Torchvision(Format):
    suffixes = (".pth", ".safetensors")
    tensors = NAMES
    head = ("heads.head.", "heads.pre_logits.")
    marks = ("conv_proj.weight", NAMES.positions)
    computes = Numerics(
        preprocessing=Preprocessing(**IMAGENET, crop_fraction=0.875),
        resizing=Resizing("bicubic_aligned", "bicubic"),
    )

    def canonical(self, name):
        return name.replace(".mlp.linear_1.", ".mlp.0.").replace(".mlp.linear_2.", ".mlp.3.")

    def infer(self, shapes, config):
        arguments = NAMES.sizes(shapes, "token")
        return arguments | covered_positions(arguments, shapes[NAMES.positions][1], covers=("all",))

    def as_read(self, arch):
        return {"channels": 3, "qkv_bias": "all"}
