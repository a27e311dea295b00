"""What several tests need: random weights, weights by path, other backends' processes."""

import contextlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
from PIL import Image

from tests.quick_xla import quick

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
BACKENDS = ("tensorflow", "jax", "torch")


def to_numpy(x):
    return np.asarray(keras.ops.convert_to_numpy(x))


def assert_close(actual, expected, rtol=4e-6, name="", floor=0.0, strict=False):
    """No value differs by more than `rtol` times the largest magnitude of `expected`.

    Sums in float32 are rounded differently by processors, backends and numbers of threads: by about
    sqrt(n) half units in the last place of the largest value after n operations, 4096 by default.
    Where terms cancel, their size is `floor`. `strict` compares the types too.
    """
    actual, expected = to_numpy(actual), to_numpy(expected)
    expected = expected if expected.ndim else np.broadcast_to(expected, actual.shape)
    kinds = [(x.shape, x.dtype if strict else "") for x in (actual, expected)]
    assert kinds[0] == kinds[1], f"{name} {kinds[0]} is not {kinds[1]}"
    values, targets = actual.astype("float64"), expected.astype("float64")
    difference, largest = np.abs(values - targets), max(np.abs(targets).max(), floor)
    if not (difference <= rtol * largest).all():  # NaN is not close
        place = np.unravel_index(np.argmax(difference), difference.shape)
        ratio = difference[place] / largest
        raise AssertionError(
            f"{name} differs at {[*map(int, place)]}: {values[place]} is not {targets[place]}; "
            f"that is {ratio:.2g} of the largest value {largest:.4g}, more than {rtol:.2g}"
        )


def randomize(model, rng, scale=0.3):
    """Random values for all weights: zeros and ones would hide swapped names."""
    for weight in model.weights:
        center = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(center + scale * rng.normal(size=weight.shape).astype("float32"))
    return model


def write_picture(path, rng, size=(16, 16), low=0, high=256):
    """Writes random pixels of these levels, and returns them `(H, W, 3)`."""
    pixels = rng.integers(low, high, (*size, 3), dtype="uint8")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def weights_by_path(model):
    return {weight.path: to_numpy(weight.value) for weight in model.weights}


def spread(**options):
    """Parametrizes a test: each pair of values of two options occurs, the other cases at night."""

    def pairs(case):
        return set(itertools.combinations(enumerate(case), 2))

    values = list(options.values())
    cases = list(itertools.product(*(range(len(each)) for each in values)))
    chosen, left = [], set().union(*map(pairs, cases))
    while left:
        chosen.append(max(cases, key=lambda case: len(pairs(case) & left)))
        left -= pairs(chosen[-1])
    rest = [case for case in cases if case not in chosen]
    rows = [[each[i] for each, i in zip(values, case)] for case in chosen + rest]
    marks = [()] * len(chosen) + [pytest.mark.nightly] * len(rest)
    parameters = [pytest.param(*row, marks=mark) for row, mark in zip(rows, marks)]
    return pytest.mark.parametrize(tuple(options), parameters)


def keeping(kept: dict):
    """While it is open, what torch keeps for gradients goes into `kept`, one tensor a storage."""
    import torch

    def note(x):
        kept.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    return torch.autograd.graph.saved_tensors_hooks(note, lambda x: x)


class Killed(BaseException):
    """Stands for the end of the process: nothing that runs afterwards may touch the disk."""


@contextlib.contextmanager
def killed_before(operation):
    """Lets `operation` flushes, renames and removals happen; every later one raises `Killed`."""
    calls = []

    def counted(original):
        def call(*arguments, **options):
            calls.append(original)
            if len(calls) > operation:
                raise Killed
            return original(*arguments, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for module, name in [(os, "fsync"), (os, "replace"), (os, "remove"), (shutil, "rmtree")]:
            patch.setattr(module, name, counted(getattr(module, name)))
        with contextlib.suppress(Killed):
            yield


@contextlib.contextmanager
def shapes_only():
    """Models built inside have weights without values, so that the largest takes no memory."""
    try:
        with keras.StatelessScope(initialize_variables=False):
            yield
    finally:
        keras.utils.clear_session()  # Keras would give them values at the end of the next scope


def run_script(*arguments, backend=None, cwd=ROOT, check=True, timeout=None, **variables):
    """Runs `python ARGUMENTS` in a process of its own; with `check`, a failure shows its output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", **variables}
    environment["KERAS_BACKEND"] = backend or keras.backend.backend()
    if environment["KERAS_BACKEND"] == "jax":
        environment = quick(environment)
    command = [sys.executable, *map(str, arguments)]
    pipes = {"capture_output": True, "text": True, "timeout": timeout}
    done = subprocess.run(command, cwd=cwd, env=environment, **pipes)
    if check and done.returncode:
        raise AssertionError(f"{command} failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def initial_weights():
    """What `keras.utils.set_random_seed` and an explicit seed give, by path."""
    from vit_keras.models import VisionTransformer

    sizes = {"hidden_size": 12, "num_layers": 1, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
    rates = {"dropout_rate": 0.1, "attention_dropout_rate": 0.1, "stochastic_depth_rate": 0.1}
    found = {}
    for name in ("token", "map"):
        keras.utils.set_random_seed(13)
        drawn = VisionTransformer(8, 4, **sizes, **rates, classifier=name)
        given = VisionTransformer(8, 4, **sizes, seed=3, representation_size=6)
        found |= {f"{name}/drawn/{path}": value for path, value in weights_by_path(drawn).items()}
        found |= {f"{name}/given/{path}": value for path, value in weights_by_path(given).items()}
    return found
