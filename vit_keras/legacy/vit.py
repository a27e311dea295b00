"""`vit_keras.vit` of vit-keras 0.x: its models, with their names, arguments and layers.

Each model maps images `(B, H, W, 3)` to probabilities, to logits or, without a top, to the class
token `(B, D)`. It is built from that version's layers, so its saved weights fit.
"""

import warnings

import keras

from vit_keras import variants
from vit_keras import weights as weight_files
from vit_keras.applications import preprocess_input
from vit_keras.layers import AddPositionEmbs, ClassToken, TakeClassToken
from vit_keras.layers.base import LayerArguments
from vit_keras.layers.common import LayerNormalization, check_choice, pair
from vit_keras.legacy.layers import TransformerBlock
from vit_keras.legacy.utils import load_weights_numpy
from vit_keras.models.common import dense, with_kernel

# {`weights` of 0.x: (name of the published weights, number of classes)}
WEIGHTS = {
    "imagenet21k": ("imagenet21k", 21_843),
    "imagenet21k+imagenet2012": ("imagenet-384", 1_000),
}


def preprocess_inputs(X):
    """Scales pixels from [0, 255] to [-1, 1].

    Args:
        X: An array or a tensor of images, `(..., H, W, 3)`. A floating-point array is changed in
            place.

    Returns:
        The images, with the same shape.

    Example:
        >>> vit.preprocess_inputs(np.array([[[[0, 255, 51]]]]))
        array([[[[-1. ,  1. , -0.6]]]], dtype=float32)
    """
    return preprocess_input(X)


def build_model(
    image_size,
    patch_size: int,
    num_layers: int,
    hidden_size: int,
    num_heads: int,
    name: str,
    mlp_dim: int,
    classes: int,
    dropout: float = 0.1,
    activation="linear",
    include_top: bool = True,
    representation_size: int | None = None,
) -> keras.Model:
    """Builds a Vision Transformer of any size from the layers of vit-keras 0.x.

    Args:
        image_size: Pixels, an int or (height, width).
        patch_size: The side of a patch in pixels. It must divide both sides of the image.
        num_layers: The number of blocks.
        hidden_size: D, the width of the tokens.
        num_heads: The number of attention heads. It must divide D.
        name: The name of the model.
        mlp_dim: The number of hidden units of the MLPs.
        classes: The number of classes.
        dropout: The fraction of the units that the dropouts in the blocks set to 0 in training.
        activation: The activation of the classifier.
        include_top: Whether to add the classifier. Without it, the outputs are `(B, D)`.
        representation_size: The width of a layer with tanh before the classifier, or None.

    Returns:
        A `keras.Model` with initial weights.

    Raises:
        ValueError: If `patch_size` does not divide the image, or if `num_heads` does not divide D.

    Example:
        ```python
        model = vit.build_model((64, 32), 8, 2, 16, 4, "tiny", mlp_dim=32, classes=10)
        ```
    """
    size, layer = pair(image_size, "image_size"), LayerArguments(None, None)
    if any(side % patch_size for side in size):
        raise ValueError(
            "`patch_size` must divide both sides of `image_size`. "
            f"Received: patch_size={patch_size}, image_size={image_size}"
        )
    tokens = (size[0] // patch_size) * (size[1] // patch_size)
    images = keras.Input((*size, 3))
    area = patch_size**2
    embedding = with_kernel(layer("embedding"), 3 * area, hidden_size * area)
    x = keras.layers.Conv2D(hidden_size, patch_size, patch_size, **embedding)(
        images
    )  # (B, h, w, D)
    x = keras.layers.Reshape((tokens, hidden_size))(x)
    x = ClassToken(name="class_token")(x)  # (B, 1 + N, D)
    x = AddPositionEmbs(**layer("Transformer_posembed_input"))(x)
    for i in range(num_layers):
        named = layer(f"Transformer_encoderblock_{i}")
        x, _ = TransformerBlock(num_heads=num_heads, mlp_dim=mlp_dim, dropout=dropout, **named)(x)
    x = LayerNormalization(epsilon=1e-6, name="Transformer_encoder_norm")(x)
    x = TakeClassToken(name="ExtractToken")(x)  # (B, D)
    if representation_size is not None:
        x = dense(x, representation_size, layer("pre_logits"), "tanh")
    if include_top:
        x = dense(x, classes, layer("head"), activation)
    return keras.Model(images, x, name=name)


def _constructor(function: str, variant: str, image_size: tuple[int, int]):
    """Makes the function that builds a variant, such as "B/16"."""

    def build(
        image_size=image_size,
        classes: int = 1000,
        activation="linear",
        include_top: bool = True,
        pretrained: bool = True,
        pretrained_top: bool = True,
        weights: str = "imagenet21k+imagenet2012",
    ) -> keras.Model:
        """Builds ViT-B/16, by default with published weights.

        The first call downloads the weights from their publisher into the Keras cache.

        Args:
            image_size: Pixels, an int or (height, width). Position embeddings are resized.
            classes: The number of classes of a new classifier.
            activation: The activation of the classifier, by default none.
            include_top: Whether the model has a classifier. Without it the outputs are `(B, D)`.
            pretrained: Whether to load published weights.
            pretrained_top: Whether to load the published classifier too, with `pretrained` and
                `include_top`.
            weights: "imagenet21k+imagenet2012", which was fine-tuned on ImageNet's 1000 classes at
                384 pixels, or "imagenet21k" with 21,843 classes and a layer `pre_logits`.

        Returns:
            A `keras.Model`.

        Raises:
            ValueError: If `weights` is unknown.
            FileNotFoundError, ConnectionError: If the weights cannot be downloaded.

        Example:
            ```python
            model = vit.vit_b16(image_size=224, pretrained_top=False, classes=200)
            ```
        """
        check_choice(weights, WEIGHTS, "weights")
        published, count = WEIGHTS[weights]
        pretrained_top = pretrained_top and pretrained and include_top
        if pretrained_top and classes != count:
            warnings.warn(
                f"The published classifier of {weights!r} has {count} classes, so the model has "
                f"{count} too. Received: classes={classes}. `pretrained_top=False` starts a new "
                "classifier",
                stacklevel=2,
            )
            classes = count
        sizes = variants.get(variant).constructor_arguments()
        width = sizes["hidden_size"] if weights == "imagenet21k" else None
        top = {"activation": activation, "include_top": include_top, "representation_size": width}
        name = function.replace("_", "-")
        model = build_model(image_size, name=name, classes=classes, **sizes, **top)
        if pretrained:
            load_weights_numpy(model, weight_files.resolve(variant, published), pretrained_top)
        return model

    build.__name__ = build.__qualname__ = function
    text = build.__doc__ or ""
    build.__doc__ = text.replace("B/16", variant).replace("vit_b16", function)
    return build


vit_b16 = _constructor("vit_b16", "B/16", (224, 224))
vit_b32 = _constructor("vit_b32", "B/32", (224, 224))
vit_l16 = _constructor("vit_l16", "L/16", (384, 384))
vit_l32 = _constructor("vit_l32", "L/32", (384, 384))
