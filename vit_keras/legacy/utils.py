"""`vit_keras.utils` of vit-keras 0.x: pictures, ImageNet's class names, and Google's weights."""

import os
import pathlib
import urllib.parse
import urllib.request

import keras
import numpy as np

from vit_keras.data import resize, to_uint8
from vit_keras.data.depth import pillow
from vit_keras.data.picture_files import read_encoded, read_image
from vit_keras.layers.common import pair
from vit_keras.legacy.saved_files import AS_OPENCV, downgrade, upgrade
from vit_keras.weights import load
from vit_keras.weights.download import DEFAULT_TIMEOUT_SECONDS

CLASS_NAMES = pathlib.Path(__file__).with_name("imagenet2012.txt")
LARGEST_PICTURE_BYTES = 2**28  # of a download; a larger one is cut off, and then refused


def get_imagenet_classes() -> list[str]:
    """Returns the 1000 class names of ImageNet 2012, in the order of the published classifiers.

    Returns:
        A list with WordNet's words for each class.

    Example:
        >>> utils.get_imagenet_classes()[0]
        'tench, Tinca tinca'
    """
    return CLASS_NAMES.read_text(encoding="utf-8").splitlines()


def read(filepath_or_buffer, size, timeout: float | None = None) -> np.ndarray:
    """Reads a picture, turns it upright, and resizes it with bilinear interpolation.

    Args:
        filepath_or_buffer: A path, an http or https URL, a file opened for reading bytes, or a
            `PIL.Image.Image`.
        size: The side of the result in pixels; (height, width) if they differ.
        timeout: The seconds after which to give up on a silent server; 30 by default.

    Returns:
        Pixels as uint8, `(size, size, 3)`.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is not a picture.
        OSError: If the URL cannot be read.

    Example:
        ```python
        image = utils.read("cat.jpg", 384)
        ```
    """
    source = filepath_or_buffer
    if isinstance(source, pillow().Image):
        image = np.asarray(source.convert("RGB"))
    elif hasattr(source, "read"):
        image = read_encoded(source.read(), 3)
    elif urllib.parse.urlsplit(os.fspath(source)).scheme in ("http", "https"):
        seconds = timeout or DEFAULT_TIMEOUT_SECONDS
        with urllib.request.urlopen(os.fspath(source), timeout=seconds) as response:
            image = read_encoded(response.read(LARGEST_PICTURE_BYTES), 3)
    else:
        image = read_image(source, 3)
    return to_uint8(resize(image, pair(size, "size"), AS_OPENCV))


def load_weights_numpy(
    model: keras.Model,
    params_path,
    pretrained_top: bool,
    num_x_patches: int | None = None,
    num_y_patches: int | None = None,
) -> None:
    """Loads one of Google's published `.npz` files into a model of `vit_keras.vit`.

    All of the file's tensors must fit. Position embeddings for another grid are resized.

    Args:
        model: A model from `vit.build_model` or from functions such as `vit.vit_b16`.
        params_path: The `.npz` file.
        pretrained_top: Whether to load the classifier too.
        num_x_patches: Not needed: the number of patches in a row, which the model knows.
        num_y_patches: Not needed: the number of patches in a column, which the model knows.

    Raises:
        FileNotFoundError: If there is no file.
        ValueError: If the file is damaged or does not fit. The message lists all differences.

    Example:
        ```python
        utils.load_weights_numpy(model, "ViT-B_16.npz", pretrained_top=False)
        ```
    """
    upgraded = upgrade(model)
    load(upgraded, params_path, head="keep" if pretrained_top else "drop")
    downgrade(upgraded, model)
