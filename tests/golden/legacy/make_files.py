"""Writes the files of vit-keras 0.x in this folder; the README beside it says how to run it."""

import sys
import types

import cv2
import numpy as np

try:
    import vit_keras  # noqa: F401 - 0.2.0, for Keras 3
    from vit_keras import vit
except (
    ImportError
):  # 0.1.2, for Keras 2: it needs TensorFlow Addons for TensorFlow before 2.4 alone
    sys.modules["tensorflow_addons"] = types.ModuleType("tensorflow_addons")
    from vit_keras import vit

keras = sys.modules[vit.layers.ClassToken.__mro__[1].__module__.split(".")[0]]
VERSION = sys.argv[1]
SMALL = {"patch_size": 8, "num_layers": 2, "hidden_size": 16, "num_heads": 4, "mlp_dim": 24}


def randomize(model, rng):
    for weight in model.weights:
        values = rng.normal(0, 0.3, weight.shape).astype("float32")
        weight.assign(abs(values) if "variance" in weight.name else values)


def main():
    rng = np.random.default_rng(1)
    top = vit.build_model(
        image_size=(24, 16), classes=5, name="vit-tiny", representation_size=12, **SMALL
    )
    body = vit.build_model(
        image_size=(24, 16), classes=5, name="vit-tiny", include_top=False, **SMALL
    )
    nested = keras.Sequential(
        [
            body,
            keras.layers.Flatten(),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    images = rng.uniform(-1, 1, (2, 24, 16, 3)).astype("float32")
    nested(images)
    outputs = {"images": images}
    for name, model in (("top", top), ("nested", nested)):
        randomize(model, rng)
        for suffix in (".h5", ".weights.h5", ".keras"):
            if suffix == ".weights.h5":
                model.save_weights(f"{VERSION}_{name}{suffix}")
            else:
                model.save(f"{VERSION}_{name}{suffix}")
        outputs[name] = model.predict(images, verbose=0)
    if VERSION == "0.2.0":
        outputs |= compute(rng)
    np.savez(f"{VERSION}_outputs.npz", **outputs)


def compute(rng):
    """What 0.2.0 computes from `published.npz` and from pictures."""
    from vit_keras import utils, visualize

    outputs = {}
    for name, size in (("square", (32, 32)), ("resized", (32, 48))):
        model = vit.build_model(
            image_size=size, classes=5, name=name, representation_size=12, **SMALL
        )
        grid = size[1] // 8, size[0] // 8
        utils.load_weights_numpy(model, "published.npz", True, *grid)
        outputs[f"{name}_images"] = rng.uniform(-1, 1, (2, *size, 3)).astype("float32")
        outputs[name] = model.predict(outputs[f"{name}_images"], verbose=0)
        if name == "square":
            picture = rng.integers(0, 256, (40, 28, 3)).astype("uint8")
            outputs["picture"] = picture
            outputs["attention_map"] = visualize.attention_map(model, picture)
    cv2.imwrite("picture.png", picture[..., ::-1])
    return outputs | {
        "read_16": utils.read("picture.png", 16),
        "read_60": utils.read("picture.png", 60),
    }


main()
