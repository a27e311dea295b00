"""Runs the examples of the rooms whose examples need nothing but Keras and NumPy."""

import doctest

import keras
import numpy as np
import pytest

import vit_keras
from vit_keras import layers
from vit_keras.support import resizing

pytestmark = pytest.mark.once
ROOMS = (layers, resizing)
NAMES = [(room, name) for room in ROOMS for name in room.__all__ if callable(getattr(room, name))]


@pytest.mark.parametrize(("room", "name"), NAMES, ids=[name for _, name in NAMES])
def test_an_example_gives_the_result_that_it_shows(room, name):
    names = {"keras": keras, "np": np, "vit_keras": vit_keras, name: getattr(room, name)}
    text = getattr(room, name).__doc__
    example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
    runner, report = doctest.DocTestRunner(), []
    results = runner.run(example, out=report.append)
    assert results.attempted and not results.failed, "".join(report)
