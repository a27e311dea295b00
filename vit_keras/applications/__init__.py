"""The variants as Keras applications, with the conventions of `keras.applications`.

Images go through `preprocess_input` first:

```python
model = vit_keras.applications.ViTB16(weights="augreg-imagenet")
probabilities = model(vit_keras.applications.preprocess_input(images))  # (B, 1000)
```

Each constructor is made from its variant's row on first use. Other families, such as DINOv2 with
`DINOv2S14`, have their rows in `vit_keras.variants.families`.
"""

from vit_keras.applications.factory import application, decode_predictions, preprocess_input
from vit_keras.variants import PAPER, ResNetVariant
from vit_keras.variants.families import FAMILIES

# {name of a family's constructor: variant}
OF_FAMILIES = {
    family.function_of(size): family.variant(size)
    for family in FAMILIES.values()
    for size in family.sizes
}


def _paper_names(variant):
    """Returns the constructor's name and the models' name for one of the paper's variants."""
    resnet, _, size = variant.replace("/", "").rpartition("+")
    if isinstance(PAPER[variant], ResNetVariant):
        return f"BiT{size}", f"bit_{size.lower()}"
    spelled = size if size[0] == "G" else size.lower()  # G and g are two sizes
    words = [*([resnet.lower()] if resnet else []), "vit", spelled.replace("-", "_")]
    return f"{resnet}ViT{size.replace('-opt', 'Opt')}", "_".join(words)


# {constructor's name: variant, its models' name}. b/32 is left out: it is not a published model.
_ROWS = {}
for _variant in PAPER.keys() - {"b/32"}:
    _function, _model = _paper_names(_variant)
    _ROWS[_function] = _variant, _model
for _function, _variant in OF_FAMILIES.items():
    _model = _variant.lower().replace("/", "").replace("-", "_").replace("+", "_plus")
    _ROWS[_function] = _variant, _model

__all__ = ["decode_predictions", "preprocess_input", *sorted(_ROWS)]


def __getattr__(name):
    if name not in _ROWS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    variant, model_name = _ROWS[name]
    globals()[name] = application(variant, model_name, name)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
