"""RandAugment, AutoAugment and ColorJitter: operations and how they are chosen.

The operations equal those of the published code (arXiv 1805.09501 and 1909.13719): Pillow's
`ImageOps`, `ImageEnhance` and affine maps to the nearest pixel. Areas that a map leaves empty
become gray.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from vit_keras.data.depth import Picture, as_array, as_picture, pillow, to_levels
from vit_keras.support import extras

GRAY = (128, 128, 128)


def _affine(picture, *numbers):
    """Applies an affine map with nearest-neighbor sampling, Pillow's default."""
    return picture.transform(picture.size, pillow().Transform.AFFINE, numbers, fillcolor=GRAY)


def _image_ops(name):
    return lambda picture, *amount: getattr(pillow("ImageOps"), name)(picture, *amount)


def _enhance(name):
    return lambda picture, factor: getattr(pillow("ImageEnhance"), name)(picture).enhance(factor)


VALUES = np.arange(256)


def _by_table(table):
    """Makes an operation that maps the values of three channels by `table(amount)`, `(256,)`."""
    values = functools.cache(lambda amount: table(amount).tolist() * 3)
    return lambda picture, amount: picture.point(values(amount))


def _cutout(picture, half, share_y, share_x):
    """Paints a square of 2 * half pixels gray, around a center given in fractions of the sides."""
    width, height = picture.size
    y, x = int(share_y * height), int(share_x * width)
    picture = picture.copy()
    picture.paste(GRAY, (max(x - half, 0), max(y - half, 0), x + half, y + half))
    return picture


def _turn_hue(picture, circles):
    """Turns the hue by a fraction of a circle, as torchvision does."""
    hue, *others = picture.convert("HSV").split()
    hue = hue.point([(level + int(255 * circles)) % 256 for level in range(256)])
    return pillow().merge("HSV", (hue, *others)).convert("RGB")


# Each maps a picture, which most of them need in RGB, and amounts of change to a new picture.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "auto_contrast": _image_ops("autocontrast"),
    "equalize": _image_ops("equalize"),
    "invert": _image_ops("invert"),
    # The number of upper bits to keep; 0, which Pillow refuses, leaves only zeros.
    "posterize": _by_table(lambda bits: VALUES & ~(2 ** (8 - bits) - 1)),
    "solarize": _image_ops("solarize"),  # inverts pixels from here on
    # The number to add to dark pixels, those below 128.
    "solarize_add": _by_table(lambda n: (VALUES + n * (VALUES < 128)).clip(max=255)),
    "color": _enhance("Color"),  # a factor; 1 changes nothing
    "contrast": _enhance("Contrast"),
    "brightness": _enhance("Brightness"),
    "sharpness": _enhance("Sharpness"),
    "hue": _turn_hue,
    "gray": lambda picture: picture.convert("L").convert(picture.mode),
    "blur": lambda picture, sigma: picture.filter(pillow("ImageFilter").GaussianBlur(sigma)),
    "shear_x": lambda picture, level: _affine(picture, 1, level, 0, 0, 1, 0),
    "shear_y": lambda picture, level: _affine(picture, 1, 0, 0, level, 1, 0),
    "translate_x": lambda picture, pixels: _affine(picture, 1, 0, pixels, 0, 1, 0),
    "translate_y": lambda picture, pixels: _affine(picture, 1, 0, 0, 0, 1, pixels),
    "rotate": lambda picture, degrees: picture.rotate(degrees, fillcolor=GRAY),
    "cutout": _cutout,  # half of a side in pixels, and a center in fractions of the sides
}


SIDE = 224  # picture side in pixels for which the published code states lengths

Amounts = Callable[[float, int, tuple[int, int]], tuple[Any, ...]]


def _nothing(level, sign, size):
    return ()


def _signed(largest: float) -> Amounts:
    return lambda level, sign, size: (largest * level * sign,)


def _factor(level, sign, size):
    return (0.1 + 1.8 * level,)


def _of_side(axis: int, pixels: int) -> Amounts:
    return lambda level, sign, size: (pixels / SIDE * size[axis] * level * sign,)


# Level 1 is the published magnitude 10, and level 3 is 30.
RANDAUGMENT: dict[str, Amounts] = {
    **dict.fromkeys(("auto_contrast", "equalize", "invert"), _nothing),
    "rotate": _signed(30.0),
    "posterize": lambda level, sign, size: (min(int(4 * level), 8),),
    "solarize": lambda level, sign, size: (int(256 * level),),
    **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), _factor),
    **dict.fromkeys(("shear_x", "shear_y"), _signed(0.3)),
    "translate_x": _of_side(1, 100),
    "translate_y": _of_side(0, 100),
    "cutout": lambda level, sign, size: (int(40 / SIDE * min(size) * level),),
    "solarize_add": lambda level, sign, size: (int(110 * level),),
}


def _factor_around_1(level, sign, size):
    return (1 + 0.9 * level * sign,)


# Level 0 changes nothing, and level 1 is AutoAugment's level 9.
AUTOAUGMENT: dict[str, Amounts] = {
    **dict.fromkeys(("auto_contrast", "equalize", "invert"), _nothing),
    "rotate": _signed(30.0),
    "posterize": lambda level, sign, size: (round(8 - 4 * level),),
    "solarize": lambda level, sign, size: (255 * (1 - level),),
    **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), _factor_around_1),
    **dict.fromkeys(("shear_x", "shear_y"), _signed(0.3)),
}

# AutoAugment's policy for ImageNet: operations with their probabilities and levels.
IMAGENET = (
    (("posterize", 0.4, 8), ("rotate", 0.6, 9)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 0)),
    (("equalize", 0.8, 0), ("equalize", 0.6, 0)),
    (("posterize", 0.6, 7), ("posterize", 0.6, 6)),
    (("equalize", 0.4, 0), ("solarize", 0.2, 4)),
    (("equalize", 0.4, 0), ("rotate", 0.8, 8)),
    (("solarize", 0.6, 3), ("equalize", 0.6, 0)),
    (("posterize", 0.8, 5), ("equalize", 1.0, 0)),
    (("rotate", 0.2, 3), ("solarize", 0.6, 8)),
    (("equalize", 0.6, 0), ("posterize", 0.4, 6)),
    (("rotate", 0.8, 8), ("color", 0.4, 0)),
    (("rotate", 0.4, 9), ("equalize", 0.6, 0)),
    (("equalize", 0.0, 0), ("equalize", 0.8, 0)),
    (("invert", 0.6, 0), ("equalize", 1.0, 0)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("rotate", 0.8, 8), ("color", 1.0, 2)),
    (("color", 0.8, 8), ("solarize", 0.8, 7)),
    (("sharpness", 0.4, 7), ("invert", 0.6, 0)),
    (("shear_x", 0.6, 5), ("equalize", 1.0, 0)),
    (("color", 0.4, 0), ("equalize", 0.6, 0)),
    (("equalize", 0.4, 0), ("solarize", 0.2, 4)),
    (("solarize", 0.6, 5), ("auto_contrast", 0.6, 0)),
    (("invert", 0.6, 0), ("equalize", 1.0, 0)),
    (("color", 0.6, 4), ("contrast", 1.0, 8)),
    (("equalize", 0.8, 0), ("equalize", 0.6, 0)),
)


COLUMNS = 4  # numbers drawn for each row
JITTERED = ("brightness", "contrast", "color")


# A policy yields names and amounts of operations, given a generator and the picture's height and
# width.
Policy = Callable[[np.random.Generator, tuple[int, int]], Iterator[tuple[Any, ...]]]


def randaugment(layers: int, magnitude: float) -> Policy:
    """RandAugment (arXiv 1909.13719): `layers` operations of the same strength, 0 to 30."""
    names = tuple(RANDAUGMENT)

    def steps(rng, size):
        for choice, sign, *place in rng.random((layers, COLUMNS)):
            name = names[int(choice * len(names))]
            amounts = RANDAUGMENT[name](magnitude / 10, _sign(sign), size)
            yield name, *amounts, *(place if name == "cutout" else ())

    return steps


def autoaugment(rng: np.random.Generator, size: tuple[int, int]) -> Iterator[tuple[Any, ...]]:
    """AutoAugment's policy for ImageNet (arXiv 1805.09501): one of 25 pairs of operations."""
    drawn = rng.random((2, COLUMNS))
    pair = IMAGENET[int(drawn[0, 0] * len(IMAGENET))]
    for (name, probability, level), (_, sign, chance, _) in zip(pair, drawn):
        if chance < probability:
            yield name, *AUTOAUGMENT[name](level / 9, _sign(sign), size)


def color_jitter(strengths: Mapping[str, float]) -> Policy:
    """Changes brightness, contrast, saturation ("color"), and hue in a random order.

    The first three change by a factor from 1 - strength, at least 0, to 1 + strength, and the hue
    turns by up to a fraction `strength` of a circle.
    """

    def steps(rng, size):
        for name in rng.permutation(list(strengths)):
            most = strengths[name]
            low, high = (-most, most) if name == "hue" else (max(0.0, 1 - most), 1 + most)
            yield name, rng.uniform(low, high)

    return steps


Change = Callable[[Picture, np.random.Generator], Picture]


def chosen(config) -> list[Change]:
    """Returns the changes of RGB pictures that an `AugmentConfig` asks for, in order."""
    changes: list[Change] = []
    applied = lambda policy: changes.append(functools.partial(apply, policy))
    if config.randaugment_layers:
        strength = config.randaugment_layers, config.randaugment_magnitude
        if config.library == "pillow":
            applied(randaugment(*strength))
        else:
            changes.append(keras_cv(*strength))
    if config.policy == "autoaugment":
        applied(autoaugment)
    if config.color_jitter:
        applied(color_jitter(dict.fromkeys(JITTERED, config.color_jitter)))
    return changes


def apply(policy: Policy, picture, rng: np.random.Generator):
    """Applies the operations of a policy to a picture, with numbers that `rng` draws."""
    if isinstance(picture, np.ndarray):
        picture = as_picture(to_levels(picture, 255))
    for name, *amounts in policy(rng, picture.size[::-1]):
        picture = OPERATIONS[name](picture, *amounts)
    return picture


def _sign(number):
    return 1 if number < 0.5 else -1


class Keys:
    """Replaces TensorFlow's `Generator` with stateless keys.

    The n-th draw of a traced function folds n into `key`, two integers.
    """

    def __init__(self, key):
        self.tf, self.key, self.count = extras.require("tensorflow"), key, 0

    def next(self, ordered=True):
        self.count += 1
        return self.tf.random.experimental.stateless_fold_in(self.key, self.count)

    def uniform(self, shape, minval=0, maxval=None, dtype="float32", name=None):
        maxval = 1 if maxval is None and self.tf.as_dtype(dtype).is_floating else maxval
        return self.tf.random.stateless_uniform(shape, self.next(), minval, maxval, dtype, name)

    def normal(self, shape, mean=0.0, stddev=1.0, dtype="float32", name=None):
        return self.tf.random.stateless_normal(shape, self.next(), mean, stddev, dtype, name)


def keras_cv(layers: int, magnitude: float) -> Change:
    """Turns KerasCV's RandAugment of one image into a pure function that several threads may call.

    Its layers draw from stateful generators, so a resumed run would see different images. Here each
    draw has its own key, folded from the image's key. TensorFlow computes it on every backend.

    Args:
        layers: The number of operations per image.
        magnitude: The strength, from 0 to 30, which is the library's strongest.

    Returns:
        `(picture, rng) -> image`: the images are `(H, W, 3)` float32 in [0, 255].

    Raises:
        ImportError: If TensorFlow or KerasCV is not installed.
    """
    names = ("tensorflow", "keras_cv.core", "keras_cv.layers")
    tf, core, cv_layers = (extras.require(name) for name in names)
    layer = cv_layers.RandAugment((0, 255), layers, magnitude / 30, dtype="float32")

    def keyed(old, keys):
        def sample(shape=(), dtype="float32"):
            if isinstance(old, core.UniformFactorSampler):
                return keys.uniform(shape, old.lower, old.upper, dtype)
            drawn = keys.normal(shape, old.mean, old.stddev, dtype)
            return tf.clip_by_value(drawn, old.min_value, old.max_value)

        return sample

    places = [
        (part, name, value)
        for part in (layer, layer._random_choice, *layer.layers)
        for name, value in vars(part).items()
        if isinstance(value, (core.UniformFactorSampler, core.NormalFactorSampler))
    ]

    @functools.partial(tf.function, autograph=False)
    def apply(image, key):
        keys = Keys(key)
        for part in (layer, layer._random_choice, *layer.layers):
            part._random_generator = keys
        for part, name, old in places:
            setattr(part, name, keyed(old, keys))
        changed = tf.function(lambda image: layer(image))(image)  # KerasCV needs AutoGraph
        return tf.ensure_shape(changed, image.shape)

    def change(picture, rng):
        with tf.device("CPU"):
            return apply(as_array(picture).astype("float32"), rng.integers(2**31, size=2)).numpy()

    return change
