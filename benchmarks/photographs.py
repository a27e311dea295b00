"""Photographs that installed packages ship, and a small model that tells them apart."""

import importlib.util
import pathlib

import keras
import numpy as np

from vit_keras import data
from vit_keras.models import Preprocessing, VisionTransformer

# Package: the folder inside it, and its photographs. Nothing of the package is imported.
SHIPPED = {
    "sklearn": ("datasets/images", ("china.jpg", "flower.jpg")),
    "matplotlib": ("mpl-data/sample_data", ("grace_hopper.jpg",)),
    "skimage": (
        "data",
        (
            "astronaut.png",
            "chelsea.png",
            "coffee.png",
            "hubble_deep_field.jpg",
            "ihc.png",
            "motorcycle_left.png",
            "motorcycle_right.png",
            "retina.jpg",
            "rocket.jpg",
        ),
    ),
}
SIDE, CLASSES = 224, 10
WAVES = 6
SPREAD = 2.0  # standard deviation of a logit over the photographs


def photographs() -> list[pathlib.Path]:
    """Returns the photographs of the packages that are installed."""
    paths = []
    for package, (folder, names) in SHIPPED.items():
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            paths += [pathlib.Path(spec.origin).parent / folder / name for name in names]
    return paths


def small_model(
    paths: list[pathlib.Path], preprocessing: Preprocessing, seed: int = 0, smooth=True, **arguments
) -> keras.Model:
    """Builds a Vision Transformer whose probabilities differ from photograph to photograph.

    Its weights are random. Its patch kernels are smooth, as trained ones are (Figure 7 of the
    paper), and the head is scaled so that each logit has mean 0 and standard deviation 2 over the
    photographs.

    Args:
        paths: The photographs.
        preprocessing: How they become images.
        seed: Decides the weights.
        smooth: Whether the patch kernels are smooth; others pass on the rounding of single pixels.
        **arguments: Arguments of `VisionTransformer`.
    """
    sizes = {"hidden_size": 48, "num_layers": 3, "num_heads": 3, "mlp_dim": 96, "gelu": "exact"}
    model = VisionTransformer(SIDE, 32, num_classes=CLASSES, seed=seed, **{**sizes, **arguments})
    model.preprocessing = preprocessing
    model.class_names = [f"class {i}" for i in range(CLASSES)]
    rng = np.random.default_rng(seed)
    if smooth:
        kernel = model.get_layer("embedding").kernel
        kernel.assign(smooth_kernel(rng, kernel.shape).astype("float32"))
    pictures = [data.read_image(path, model.input_shape[-1]) for path in paths]
    images = np.stack([data.resize(p, (SIDE, SIDE), preprocessing) for p in pictures])
    head = model.get_layer("head")
    encoder = keras.Model(model.input, head.input)
    features = encoder.predict(preprocessing.normalize(images), verbose=0)  # (N, D)
    kernel = rng.normal(size=(features.shape[-1], CLASSES))
    kernel *= SPREAD / (features @ kernel).std(axis=0)
    head.kernel.assign(kernel.astype("float32"))
    head.bias.assign(-(features @ kernel).mean(axis=0).astype("float32"))
    return model


def smooth_kernel(rng: np.random.Generator, shape) -> np.ndarray:
    """Random sums of the `WAVES` longest cosines along each side, `(height, width, C, D)`."""
    height, width, *rest = shape
    waves = np.arange(WAVES)
    rows, columns = (
        np.cos(np.pi * (np.arange(side)[:, None] + 0.5) * waves / side) for side in (height, width)
    )
    weights = rng.normal(size=(WAVES, WAVES, *rest)) / (1 + waves[:, None] + waves)[..., None, None]
    kernel = np.einsum("yf,xg,fgcd->yxcd", rows, columns, weights)
    return kernel / np.sqrt((kernel**2).sum((0, 1, 2)))
