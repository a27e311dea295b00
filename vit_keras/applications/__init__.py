"""The variants as Keras applications, with the conventions of `keras.applications`.

Images go through `preprocess_input` first:

```python
model = vit_keras.applications.ViTB16(weights="augreg-imagenet")
probabilities = model(vit_keras.applications.preprocess_input(images))  # (B, 1000)
```

Each constructor is made from the row of its variant on first use, also those of other families,
such as `DINOv2S14`, whose rows are in `vit_keras.variants.families`.
"""

from vit_keras.applications.factory import application, decode_predictions, preprocess_input
from vit_keras.variants.families import FAMILIES

# The paper's constructors, each with its variant and the name of its models.
_PAPER = """
    ViTTi16 Ti/16 vit_ti16   ViTS16 S/16 vit_s16  ViTS32 S/32 vit_s32  ViTB8 B/8 vit_b8
    ViTB16 B/16 vit_b16      ViTB32 B/32 vit_b32  ViTL16 L/16 vit_l16  ViTL32 L/32 vit_l32
    ViTH14 H/14 vit_h14      ViTmu16 mu/16 vit_mu16         ViTM16 M/16 vit_m16
    ViTSo400m14 So400m/14 vit_so400m14                      ViTg14 g/14 vit_g14
    ViTgOpt16 g-opt/16 vit_g_opt16  ViTG14 G/14 vit_G14     ViTGOpt16 G-opt/16 vit_G_opt16
    ViTe14 e/14 vit_e14
    RViTTi16 R+Ti/16 r_vit_ti16     R26ViTS32 R26+S/32 r26_vit_s32  R26ViTB32 R26+B/32 r26_vit_b32
    R50ViTB16 R50+B/16 r50_vit_b16  R50ViTB32 R50+B/32 r50_vit_b32  R50ViTL16 R50+L/16 r50_vit_l16
    R50ViTL32 R50+L/32 r50_vit_l32
    BiTR50x1 R50x1 bit_r50x1     BiTR50x2 R50x2 bit_r50x2     BiTR50x3 R50x3 bit_r50x3
    BiTR101x1 R101x1 bit_r101x1  BiTR101x3 R101x3 bit_r101x3  BiTR152x1 R152x1 bit_r152x1
    BiTR152x2 R152x2 bit_r152x2  BiTR152x4 R152x4 bit_r152x4  BiTR200x3 R200x3 bit_r200x3
"""
_WORDS = _PAPER.split()
_ROWS = {name: row for name, *row in zip(_WORDS[::3], _WORDS[1::3], _WORDS[2::3])}
# {name of a family's constructor: variant}
OF_FAMILIES = {
    family.function_of(size): family.variant(size)
    for family in FAMILIES.values()
    for size in family.sizes
}
for _name, _variant in sorted(OF_FAMILIES.items()):
    _model = _variant.lower().replace("/", "").replace("-", "_").replace("+", "_plus")
    _ROWS[_name] = [_variant, _model]

__all__ = ["decode_predictions", "preprocess_input", *_ROWS]


def __getattr__(name):
    if name not in _ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    variant, model_name = _ROWS[name]
    globals()[name] = application(variant, model_name, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
