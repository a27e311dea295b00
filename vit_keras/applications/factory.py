"""Makes constructors with the conventions of `keras.applications` from rows of variants."""

import inspect
import os
import textwrap
from collections.abc import Sequence
from typing import Any

import keras
from keras.applications import imagenet_utils
from keras.applications.imagenet_utils import preprocess_input as _preprocess_input

from vit_keras import variants
from vit_keras import weights as weight_files
from vit_keras.layers import DropClassToken
from vit_keras.layers.common import check_positive, pair
from vit_keras.models import from_variant, preprocessing_of
from vit_keras.models.description import has_layer, with_outputs
from vit_keras.models.surgery import normalized_tokens
from vit_keras.support.checks import check_choice
from vit_keras.support.files import is_address
from vit_keras.support.preprocessing import as_numbers
from vit_keras.support.tasks import check_class_names
from vit_keras.variants import families

POOLINGS = {"avg": "Average", "max": "Max"}


class _Default(int):
    """A default value that differs from the same number passed by a caller."""


CLASSES = _Default(1000)


def preprocess_input(x, data_format=None, model=None):
    """Preprocesses a tensor or NumPy array that encodes a batch of images.

    Models of families other than the paper's need `model`, since they scale pixels differently.
    A warning is issued if pixels seem to lie in [0, 1], or lie outside [0, 255]. Arrays of bools
    or of 16-bit numbers are first converted to [0, 255].

    Args:
        x: A floating-point `numpy.array` or a tensor, `(B, height, width, 3)`, with values in [0,
            255]. Without a `model`, a floating-point array is changed in place, as in every Keras
            application; pass `numpy.copy(x)` to keep it.
        data_format: Optional data format of the images, "channels_last" or "channels_first".
        model: Optional model of this package. Pixels are then scaled as in the source of its
            weights. For example, torchvision's weights use another scale.

    Raises:
        ValueError: If the channels are not last, if a value is not finite, or if the white level
            is unknown.

    Returns:
        The preprocessed images. Without a `model`, pixels are scaled to [-1, 1].

    Example:
        ```python
        model = vit_keras.open("vit_b_16.pth", num_heads=12)
        logits = model(preprocess_input(images, model=model))
        ```
    """
    from vit_keras.data.depth import check_axes, pixels_at  # imported only where it is used

    x = pixels_at(x, 255.0 if model is None else preprocessing_of(model).levels)
    data_format = data_format or keras.config.image_data_format()
    if model is not None or data_format == "channels_last":
        check_axes(x, None if model is None else model.inputs[0].shape[-1])
    if model is None:
        return _preprocess_input(x, data_format=data_format, mode="tf")
    return preprocessing_of(model).normalize(keras.ops.cast(x, "float32"))


def application(variant: str, name: str, function: str):
    """Makes the constructor `function` of a variant. Its models are called `name`."""

    def build(
        include_top=True,
        weights=None,
        input_tensor=None,
        input_shape=None,
        pooling=None,
        classes=CLASSES,
        classifier_activation="softmax",
        name=name,
        class_names=None,
    ):
        """Instantiates the model {variant}.

        Reference:
        - [{title}](
            {paper})

        Each Keras application expects its own preprocessing of images. For this one, call
        `vit_keras.applications.preprocess_input(images, model=model)` on images with pixels
        in [0, 255].

        Args:
            include_top: Whether to include the classifier at the top of the network. Without it,
                the output is the {features}.
            weights: One of `None` (random initialization), the path of a file or folder of weights,
                or its address on a hub, in any format that `vit_keras.weights.load` reads, or the
                name of published weights, which are downloaded once, to a cache.
                {published}
            input_tensor: Optional Keras tensor, such as the output of `keras.Input()`, to use as
                image input for the model.
            input_shape: Optional tuple `(height, width, channels)`.
                {sides}
                The default is `({pixels}, 3)`, or the size of the images that the published weights
                were trained on last.
            pooling: Optional pooling of the features when `include_top` is `False`. `None` keeps
                all of them. `"avg"` and `"max"` give their average or maximum `(B, {width})` over
                the patches, or the cells of the map.
            classes: Optional number of classes to classify images into, if `include_top` is `True`.
                The default is 1000, or the number of classes of the published weights, which allow
                no other.
            classifier_activation: A `str` or callable. The activation function of the classifier.
                Set `classifier_activation=None` to return the logits. With published weights it
                must be `None` or `"softmax"`.
            name: The name of the model (string).
            class_names: Optional sequence of your own classes' names, if `include_top` is `True`.
                It sets `classes` to its length, and `model.class_names`, which `decode_predictions`
                and `vit-keras predict` use.

        Returns:
            A functional `keras.Model` that maps images `(B, height, width, channels)` to
            probabilities `(B, classes)`, or to features.

        Raises:
            ValueError: If `weights` is not a file, an address or a published name, if `classes` or
                `classifier_activation` contradicts the published weights, if `pooling` is unknown,
                if `class_names` does not have one name for each class, or if `input_shape`
                is not allowed.
            FileNotFoundError: If the server does not have the published weights.
            ConnectionError: If the published weights cannot be downloaded.

        Example:
            ```python
            model = vit_keras.applications.{function}(
                include_top=False, weights={weights}, pooling="avg"
            )
            image = keras.utils.load_img(
                "cat.jpg", target_size=model.input_shape[1:3], interpolation="bilinear"
            )
            batch = keras.utils.img_to_array(image)[None]
            batch = vit_keras.applications.preprocess_input(batch, model=model)
            features = model(batch)  # (1, {width})
            ```
        """
        if keras.config.image_data_format() != "channels_last":
            raise ValueError(
                "The models take images with channels last. "
                'Received: image_data_format="channels_first"; call '
                'keras.config.set_image_data_format("channels_last")'
            )
        check_choice(pooling, (None, *POOLINGS), "pooling")
        is_file = weights is None or is_address(weights) or os.path.exists(weights)
        row = None  # of the published weights
        if not is_file or weights in weight_files.names(variant):
            row = weight_files.lookup(variant, weights)
        design = variants.architecture(variant)
        form: dict[str, Any] = {"image_size": None, "num_classes": None, "name": name}
        if include_top:
            classes = _classes(design, row, class_names, classes, classifier_activation)
            form["num_classes"] = classes
        form |= _head(design, row, include_top, classifier_activation)
        size = row.resolution if row else variants.get(variant).image_size
        if input_tensor is None:
            input_tensor = keras.Input(input_shape or (*pair(size, "size"), 3), name="images")
        model = from_variant(variant, input_tensor=input_tensor, **form)
        if weights is not None:
            path = weights if row is None else weight_files.resolve(variant, weights)
            model = weight_files.load(model, path, head="keep" if include_top else "drop")
        if not include_top:
            return _without_top(model, pooling)
        if classifier_activation is not None and _has_two_heads(design):  # applied to their mean
            options = {"dtype": "float32", "name": "predictions"}
            activation = keras.layers.Activation(classifier_activation, **options)
            model = with_outputs(model, activation(model.output))
        if class_names is not None:
            model.class_names = tuple(class_names)
        return model

    build.__name__ = build.__qualname__ = function
    build.__module__ = "vit_keras.applications"
    build.__doc__ = documentation(build.__doc__, variant, function)
    return build


_VIT = {
    "title": "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale",
    "paper": "https://arxiv.org/abs/2010.11929",
    "features": "normalized tokens `(B, T + N, {row.feature_size})`, T tokens before N patches",
    "sides": "Height and width must be multiples of {row.stride} pixels.",
}
_RESNET = {
    "title": "Big Transfer (BiT): General Visual Representation Learning",
    "paper": "https://arxiv.org/abs/1912.11370",
    "features": "rectified map `(B, height / 32, width / 32, {row.feature_size})`",
    "sides": "Images may have any size; `include_top=False` also allows `(None, None, 3)`.",
}
_CROPPED = "Pixels at the right and bottom that do not fill a patch are left out."


def documentation(template: str | None, variant: str, function: str) -> str:
    """Returns the docstring of the constructor `function` of a variant.

    Args:
        template: The docstring with fields in braces; None if Python left it out.
        variant: The name of the variant.
        function: The name of the constructor.
    """
    row, published = variants.get(variant), weight_files.names(variant)
    texts = _RESNET if isinstance(row, variants.ResNetVariant) else _VIT
    facts = {key: text.format(row=row) for key, text in texts.items()}
    if isinstance(row, variants.FamilyVariant):
        family = families.family_of(row)
        facts |= {"title": family.title, "paper": family.paper}
    if variants.architecture(variant).get("crop_to_patches"):
        facts["sides"] = _CROPPED
    bullets = [f"\n        {_bullet(variant, name)}" for name in published]
    text = inspect.cleandoc(template or "").format(
        variant=variant,
        function=function,
        width=row.feature_size,
        pixels=", ".join(map(str, pair(row.image_size, "image_size"))),
        published="Published weights are:" + "".join(bullets) if bullets else "None are published.",
        weights=f'"{published[0]}"' if published else None,
        **facts,
    )
    return textwrap.indent(text, "    ").lstrip() + "\n    "


def _bullet(variant, name):
    row = weight_files.lookup(variant, name)
    top1 = max((accuracy.top1 for accuracy in row.accuracies), default=None)
    accuracy = "" if top1 is None else f", {top1:.1f}% top-1 on ImageNet"
    classes = "embeddings" if row.is_projection else f"{row.num_classes or 'no'} classes"
    return f'- `"{name}"`: {row.resolution} pixels, {classes}{accuracy} ({row.license}).'


def _classes(design, row, class_names, classes, activation):
    """Returns the number of classes: `classes`, or that of the weights, names or variant."""
    is_default = isinstance(classes, _Default)
    if row:
        is_other = row.num_classes is None or not (is_default or classes == row.num_classes)
        if is_other or activation not in (None, "softmax"):
            raise ValueError(
                "With include_top=True, published weights allow only their own classes, and only "
                'None or "softmax" as `classifier_activation`. Received: weights '
                f"{row.weights!r} with {row.num_classes or 'no'} classes, classes={classes}, "
                f"classifier_activation={activation!r}; use include_top=False and add your own "
                "classifier on top"
            )
        classes = row.num_classes
    elif is_default:
        usual = design["num_classes"] if "boxes" in design else classes
        classes = usual if class_names is None else len(class_names)
    check_positive(classes=classes)
    if class_names is not None:
        check_class_names(class_names, classes)
    return int(classes)


def _head(design, row, include_top, activation):
    """Returns the head's arguments that differ from the variant's."""
    gives_logits = _has_two_heads(design) or ("boxes" in design and activation == "softmax")
    head = {} if gives_logits else {"classifier_activation": activation}
    if row is not None and "hidden_size" in design:
        head["representation_size"] = row.representation_size if include_top else None
        if row.is_projection:  # timm's projection has a bias, which is zero
            head |= {"classifier_activation": None, "head_use_bias": row.format == "timm"}
    return head


def _has_two_heads(design):
    return design.get("classifier") == "distilled"


def _without_top(model, pooling):
    if not has_layer(model, "encoder_norm"):  # a ResNet
        x = model.get_layer("relu").output
    else:
        x = normalized_tokens(model)
        before = model.architecture.prefix.count
        if pooling is not None and before:
            x = DropClassToken(before, name="patch_tokens")(x)
    if pooling is not None:
        layer = getattr(keras.layers, f"Global{POOLINGS[pooling]}Pooling{len(x.shape) - 2}D")
        x = layer(name=f"{pooling}_pool")(x)
    return with_outputs(model, x)


def decode_predictions(
    preds, top: int = 5, class_names: Sequence[str] | None = None, model: keras.Model | None = None
) -> list[list[tuple]]:
    """Decodes predictions into the names of their most likely classes.

    The names are `class_names`, the names that `model` carries, or ImageNet's 1000.

    Args:
        preds: A batch of predictions, `(B, classes)`, as an array or tensor. Scores are returned
            unchanged, so logits stay logits.
        top: The number of classes to return for each image.
        class_names: Optional names of your own classes, in the order of the predictions.
        model: Optional model that made the predictions. Its `class_names` are used if it has any.

    Returns:
        For each image, a list of tuples `(class_name, class_description, score)`, the highest score
        first. The name of an ImageNet class is its WordNet ID, as in `("n02123045", "tabby", 0.9)`.
        Your own classes are described by their names, as in `("cat", "cat", 0.9)`.

    Raises:
        ValueError: If `preds` is not two-dimensional, if the numbers of classes and names differ,
            or if there are no names and the classes are not ImageNet's 1000.

    Example:
        ```python
        model = vit_keras.applications.ViTB16(class_names=["cat", "dog"])
        for row in decode_predictions(model.predict(images), top=1, model=model):
            _, name, probability = row[0]
        ```
    """
    if not isinstance(preds, (list, tuple)):
        preds = keras.ops.convert_to_numpy(preds)
    preds = as_numbers(preds, "Predictions")
    if preds.ndim != 2:
        raise ValueError(
            f"`preds` must be a batch of predictions, (B, classes). Received: shape {preds.shape}"
        )
    if class_names is None:
        class_names = getattr(model, "class_names", None) or None
    if class_names is None:
        return imagenet_utils.decode_predictions(preds, top=top)
    names = check_class_names(class_names, preds.shape[1])
    orders = preds.argsort(axis=1)[:, ::-1][:, :top]
    return [
        [(names[k], names[k], scores[k]) for k in order] for scores, order in zip(preds, orders)
    ]
