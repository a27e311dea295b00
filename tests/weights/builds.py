"""Small models with random weights for the tests of formats, and a published file."""

import contextlib
import warnings

import numpy as np

from tests.helpers import GOLDEN, randomize, weights_by_path
from vit_keras.models import VisionTransformer
from vit_keras.weights import lookup

SMALL = {"hidden_size": 24, "num_layers": 2, "num_heads": 3, "mlp_dim": 40, "num_classes": 5}
SUFFIX = {
    "google": ".npz",
    "big_vision": ".npz",
    "timm": ".safetensors",
    "huggingface": ".safetensors",
    "torchvision": ".pth",
    "keras_hub": ".weights.h5",
    "vit_keras": ".weights.h5",
}
# The classifiers that each format can hold.
HOLDS = {
    "google": ("token", "gap"),
    "big_vision": ("token", "gap", "map"),
    "timm": ("token", "gap", "gap_norm", "map", "distilled"),
    "huggingface": ("token", "gap"),
    "torchvision": ("token",),
    "keras_hub": ("token", "gap"),
    "vit_keras": ("token", "gap", "gap_norm", "map", "distilled"),
}
PUBLISHED = lookup("B/16", "imagenet21k")
BODY = (GOLDEN / "vit_token.npz").read_bytes()  # small, in the published format
FILES = {f"/{PUBLISHED.path}": BODY}
PAIRS = [(name, classifier) for name in HOLDS for classifier in HOLDS[name]]


def build(rng=None, image_size=(16, 24), patch_size=8, **changes):
    """Builds a small model without a square grid; `rng` randomizes its weights."""
    model = VisionTransformer(image_size, patch_size, **{**SMALL, **changes})
    return model if rng is None else randomize(model, rng, scale=0.2)


@contextlib.contextmanager
def other_numerics():
    """Suppresses the warning that the format's code computes differently from the model."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*computes with.*")
        yield


def channels_first(images):
    """torch's images of ours, for other projects' models."""
    import torch

    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def arrays_of(path):
    """Names and arrays of an `.npz` or safetensors file, read by the format's own library."""
    if str(path).endswith(".npz"):
        with np.load(path) as file:
            return dict(file)
    from safetensors.numpy import load_file

    return load_file(path)


def strip_note(path):
    """Takes what says the architecture from a safetensors file of ours."""
    from safetensors.numpy import save_file

    save_file({k: np.array(v) for k, v in arrays_of(path).items()}, path)


def assert_equal_weights(model, other):
    """Compares all weights bit by bit."""
    ours, theirs = weights_by_path(model), weights_by_path(other)
    assert ours.keys() == theirs.keys()
    different = [path for path in ours if ours[path].tobytes() != theirs[path].tobytes()]
    assert not different
