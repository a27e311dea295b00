"""The variants as Keras applications, with the conventions of `keras.applications`.

Images go through `preprocess_input` first:

```python
model = vit_keras.applications.ViTB16(weights="augreg-imagenet")
probabilities = model(vit_keras.applications.preprocess_input(images))  # (B, 1000)
```

The constructors of other families, such as `DINOv2S14`, are made from the rows of
`vit_keras.variants.families` on first use.
"""

from vit_keras.applications.factory import application, decode_predictions, preprocess_input
from vit_keras.variants.families import FAMILIES

__all__ = ["decode_predictions", "preprocess_input"]

ViTTi16 = application("Ti/16", "vit_ti16", "ViTTi16")
ViTS16 = application("S/16", "vit_s16", "ViTS16")
ViTS32 = application("S/32", "vit_s32", "ViTS32")
ViTB8 = application("B/8", "vit_b8", "ViTB8")
ViTB16 = application("B/16", "vit_b16", "ViTB16")
ViTB32 = application("B/32", "vit_b32", "ViTB32")
ViTL16 = application("L/16", "vit_l16", "ViTL16")
ViTL32 = application("L/32", "vit_l32", "ViTL32")
ViTH14 = application("H/14", "vit_h14", "ViTH14")
ViTmu16 = application("mu/16", "vit_mu16", "ViTmu16")
ViTM16 = application("M/16", "vit_m16", "ViTM16")
ViTSo400m14 = application("So400m/14", "vit_so400m14", "ViTSo400m14")
ViTg14 = application("g/14", "vit_g14", "ViTg14")
ViTgOpt16 = application("g-opt/16", "vit_g_opt16", "ViTgOpt16")
ViTG14 = application("G/14", "vit_G14", "ViTG14")
ViTGOpt16 = application("G-opt/16", "vit_G_opt16", "ViTGOpt16")
ViTe14 = application("e/14", "vit_e14", "ViTe14")

RViTTi16 = application("R+Ti/16", "r_vit_ti16", "RViTTi16")
R26ViTS32 = application("R26+S/32", "r26_vit_s32", "R26ViTS32")
R26ViTB32 = application("R26+B/32", "r26_vit_b32", "R26ViTB32")
R50ViTB16 = application("R50+B/16", "r50_vit_b16", "R50ViTB16")
R50ViTB32 = application("R50+B/32", "r50_vit_b32", "R50ViTB32")
R50ViTL16 = application("R50+L/16", "r50_vit_l16", "R50ViTL16")
R50ViTL32 = application("R50+L/32", "r50_vit_l32", "R50ViTL32")

BiTR50x1 = application("R50x1", "bit_r50x1", "BiTR50x1")
BiTR50x2 = application("R50x2", "bit_r50x2", "BiTR50x2")
BiTR50x3 = application("R50x3", "bit_r50x3", "BiTR50x3")
BiTR101x1 = application("R101x1", "bit_r101x1", "BiTR101x1")
BiTR101x3 = application("R101x3", "bit_r101x3", "BiTR101x3")
BiTR152x1 = application("R152x1", "bit_r152x1", "BiTR152x1")
BiTR152x2 = application("R152x2", "bit_r152x2", "BiTR152x2")
BiTR152x4 = application("R152x4", "bit_r152x4", "BiTR152x4")
BiTR200x3 = application("R200x3", "bit_r200x3", "BiTR200x3")

# {name of a constructor: variant}
OF_FAMILIES = {
    family.function_of(size): family.variant(size)
    for family in FAMILIES.values()
    for size in family.sizes
}
__all__ += [k for k, made in [*globals().items()] if getattr(made, "__module__", "") == __name__]
__all__ += sorted(OF_FAMILIES)


def __getattr__(name):
    if name not in OF_FAMILIES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    variant = OF_FAMILIES[name]
    model_name = variant.lower().replace("/", "").replace("-", "_").replace("+", "_plus")
    globals()[name] = application(variant, model_name, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *OF_FAMILIES})
