"""The variants as Keras applications, with the conventions of `keras.applications`.

Images go through `preprocess_input` first:

```python
model = vit_keras.applications.ViTB16(weights="augreg-imagenet")
probabilities = model(vit_keras.applications.preprocess_input(images))  # (B, 1000)
```

The constructors, such as `ViTB16` and `DINOv2S14`, are made from the rows of `vit_keras.variants`
on first use.
"""

from vit_keras.applications.factory import application, decode_predictions, preprocess_input
from vit_keras.variants import PAPER, RESNETS
from vit_keras.variants.families import FAMILIES

__all__ = ["decode_predictions", "preprocess_input"]


def _function_of(variant):
    """Returns the name of a constructor of the paper's, such as "R50ViTB16" for "R50+B/16"."""
    words = variant.replace("/", "").replace("-opt", "Opt")
    if variant in RESNETS:
        return f"BiT{words}"
    return words.replace("+", "ViT") if "+" in words else f"ViT{words}"


def _model_name(variant):
    """Returns the name of a variant's models, such as "r50_vit_b16" for "R50+B/16"."""
    words = variant.replace("/", "").replace("-", "_")
    words = words if words[0] in "gG" else words.lower()  # "g/14" and "G/14" are two sizes
    if variant not in PAPER:
        return words.replace("+", "_plus")
    prefix = "bit_" if variant in RESNETS else "" if "+" in words else "vit_"
    return prefix + words.replace("+", "_vit_")


# {name of a constructor: variant}
OF_FAMILIES = {
    family.function_of(size): family.variant(size)
    for family in FAMILIES.values()
    for size in family.sizes
}
PUBLISHED = [variant for variant in PAPER if variant != "b/32"]  # it is in a figure alone
CONSTRUCTORS = {_function_of(variant): variant for variant in PUBLISHED} | OF_FAMILIES
__all__ += sorted(CONSTRUCTORS)


def __getattr__(name):
    if name not in CONSTRUCTORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    variant = CONSTRUCTORS[name]
    globals()[name] = application(variant, _model_name(variant), name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *CONSTRUCTORS})
