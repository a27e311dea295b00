"""`model.export` of Keras writes our models, alone and under other layers, as they compute."""

import itertools

import keras
import numpy as np
import pytest

from tests.exporting.builds import small_model
from tests.helpers import assert_close, to_numpy
from vit_keras import runtimes

FORMATS = {  # by the backend: what Keras writes, and the name of a file that a runtime opens
    # tf2onnx cannot write Keras' GELU on TensorFlow (Erfc), in any model
    "tensorflow": {"tf_saved_model": "saved_model", "litert": "model.tflite"},
    "jax": {"tf_saved_model": "saved_model"},
    "torch": {"onnx": "model.onnx"},
}[keras.backend.backend()]


def alone(base):
    return base


def under_a_head(base):
    return keras.Model(base.input, keras.layers.Dense(4)(base(base.input)))


def in_a_sequence(base):
    return keras.Sequential([base, keras.layers.Dense(4)])


def fit(model, images):
    model.compile("sgd", "mse")
    model.fit(images, np.zeros((1, model.output_shape[-1])), verbose=0)


USES = {
    "new": lambda model, images: None,
    "predicted": lambda model, images: model.predict(images, verbose=0),
    "fitted": fit,
}


FIRST = [(alone, "new"), (under_a_head, "fitted"), (in_a_sequence, "predicted")]
BUILDS = (alone, under_a_head, in_a_sequence)
CASES = [(form, *pair) for form in FORMATS for pair in itertools.product(BUILDS, USES)]
# By day, of two formats one writes a model that is new, and the other those that were used.
DAY = [
    (form, *pair)
    for form in FORMATS
    for pair in (FIRST if len(FORMATS) == 1 else FIRST[:1] if form == "litert" else FIRST[1:])
]


@pytest.mark.parametrize(
    ("format", "build", "use"),
    [case if case in DAY else pytest.param(*case, marks=pytest.mark.nightly) for case in CASES],
)
def test_a_model_is_exported_by_keras(rng, tmp_path, format, build, use):
    model, images = build(small_model(rng)), rng.normal(size=(1, 8, 12, 3)).astype("float32")
    USES[use](model, images)
    path = tmp_path / FORMATS[format]
    if format == "onnx" and use == "new":  # as any model of Keras
        with pytest.raises(ValueError, match="has never called"):
            model.export(path, format=format, verbose=False)
        model(images)
    model.export(path, format=format, verbose=False)
    assert_close(runtimes.open(path)(images), to_numpy(model(images)))
