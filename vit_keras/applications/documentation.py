"""The docstrings of the constructors."""

from vit_keras import variants
from vit_keras.weights import names

_DOC = """{title}.

    Args:
        include_top: whether to end in the classifier. Without it the outputs are {features}.
        weights: None for random weights, the path of a file of weights in any format that
            `vit_keras.weights` reads, or the name of a published checkpoint, which is downloaded
            to the Keras cache: {published}.
        input_tensor: a Keras tensor to use instead of new image input.
        input_shape: `(height, width, channels)`, {sides}; by default (224, 224, 3), or the size
            that the published weights were trained on.
        pooling: without the top, None for {all}, "avg" or "max" for one vector
            `(B, {width})` of {pooled}.
        classes: number of classes of the classifier; that of published weights where they are
            named, and then no other.
        classifier_activation: activation of the classifier, None for logits.
        name: name of the model.

    Returns:
        A functional `keras.Model`, `(B, height, width, channels)` in [-1, 1] -> `(B, classes)`.

    Raises:
        ValueError: for an unknown `weights` or `pooling`, `classes` or an activation that named
            weights do not have, or a shape that is not static{or_misfit}.
        FileNotFoundError, ConnectionError: published weights cannot be downloaded.
    """
_TOKENS = {
    "features": """the normalised
            tokens `(B, 1 + N, {width})`, the class token first""",
    "sides": "multiples of {stride} pixels",
    "all": "all tokens",
    "pooled": "the patches' tokens",
    "or_misfit": " or that\n            {stride} does not divide",
}
_MAP = {
    "features": """the normalised
            and rectified map `(B, height / 32, width / 32, {width})`""",
    "sides": "of any size",
    "all": "the map",
    "pooled": "its cells",
    "or_misfit": "",
}
_PAPER = "of arXiv 2010.11929"
_KINDS = {
    variants.Variant: ("Vision Transformer ViT-{variant} " + _PAPER, _TOKENS),
    variants.HybridVariant: ("Hybrid of ResNet and transformer {variant} " + _PAPER, _TOKENS),
    variants.ResNetVariant: ("BiT's ResNet {variant} (arXiv 1912.11370), the baseline", _MAP),
}


def documentation(variant: str) -> str:
    """The docstring of a variant's constructor."""
    row = variants.get(variant)
    title, texts = _KINDS[type(row)]
    facts = {"variant": variant, "stride": row.stride, "width": row.feature_size}
    published = ", ".join(f'"{name}"' for name in names(variant)) or "none of this variant"
    filled = {part: text.format(**facts) for part, text in texts.items()}
    return _DOC.format(title=title.format(**facts), published=published, **filled, **facts)
