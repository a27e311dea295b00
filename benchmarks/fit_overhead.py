"""Measures what `fit` with all its callbacks costs on top of the compiled training step.

    KERAS_BACKEND=jax python -m benchmarks.fit_overhead

Both run the same compiled step of the same model on the same batch. They take turns, so that other
load on the machine affects both alike, and the result is the median of the paired ratios. Neither
includes evaluations and checkpoints, since a run has few of them. `--clock cpu` takes the time of
all threads of this process, which other programs on the machine hardly change.
"""

import argparse
import dataclasses
import pathlib
import tempfile
import time
import types
from unittest import mock

import keras
import numpy as np

from benchmarks.turns import take_turns
from vit_keras.config import Config, ModelConfig
from vit_keras.data.batches import Batches
from vit_keras.layers import backends
from vit_keras.models import from_model_config
from vit_keras.runs import Run
from vit_keras.training import callbacks
from vit_keras.training.loop import compile_model, train

SIZES = {
    "digits": (
        ModelConfig(
            variant=None,
            image_size=16,
            channels=1,
            patch_size=4,
            hidden_size=64,
            num_layers=4,
            num_heads=4,
            mlp_dim=128,
        ),
        64,
    ),
    "Ti/16": (ModelConfig(variant="Ti/16", image_size=96), 16),
}
CLASSES = 10
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def batch_of(config):
    rng = np.random.default_rng(0)
    shape = (config.batch, config.model.image_size, config.model.image_size, config.model.channels)
    labels = np.eye(CLASSES, dtype="float32")[np.arange(config.batch) % CLASSES]
    return rng.normal(size=shape).astype("float32"), labels


def through_fit(model, config, data, clock) -> float:
    """Seconds per step through `fit`, computed from the speed that the run records."""
    clocks = mock.patch.object(callbacks, "time", types.SimpleNamespace(perf_counter=clock))
    with tempfile.TemporaryDirectory() as folder, clocks:
        run = Run(pathlib.Path(folder), config)
        rows = train(model, run, data, Batches(lambda number, each: data(0)[0], 1))
    return config.batch / rows[-1]["images_per_second"]


def bare(model, config, data, clock) -> float:
    """Seconds per step of the compiled train function in a plain loop."""
    model.make_train_function()
    seconds = LOOPS[keras.backend.backend()](model, data, config.total_steps, clock)
    return seconds / config.total_steps


def _jax(model, data, steps, clock):
    import jax

    batch = jax.device_put(data(0)[0])
    names = ("trainable", "non_trainable", "optimizer", "metrics")
    flags = {f"{name}_variables": True for name in names}
    state = model._get_jax_state(**flags, purge_model_variables=True)
    start = clock()
    for _ in range(steps):
        _, state = model.train_function(state, iter([batch]))
    jax.block_until_ready(state)
    seconds = clock() - start
    model._jax_state_synced = False
    model._jax_state = {f"{name}_variables": values for name, values in zip(names, state)}
    model.jax_state_sync()
    model._jax_state = None
    return seconds


def _tensorflow(model, data, steps, clock):
    batches = iter(data(0).as_dataset())
    start = clock()
    for _ in range(steps):
        logs = model.train_function(batches)
    float(logs["loss"])
    return clock() - start


def _torch(model, data, steps, clock):
    import torch

    batch = tuple(map(torch.from_numpy, map(np.copy, data(0)[0])))
    model.train()
    start = clock()
    for _ in range(steps):
        logs = model.train_function([batch])
    float(logs["loss"])
    return clock() - start


LOOPS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}


def measure(name, repeats, steps, clock):
    model_config, batch = SIZES[name]
    config = Config(
        batch=batch,
        total_steps=steps,
        eval_every=steps,
        checkpoint_every=steps,
        model=model_config,
    )
    model = from_model_config(config.model, num_classes=CLASSES, seed=0)
    compile_model(model, config)
    batch = batch_of(config)
    data = lambda start: Batches(lambda number, each: batch, steps - start)
    few = dataclasses.replace(config, total_steps=2, eval_every=2, checkpoint_every=2)
    for run in (bare, through_fit):
        run(model, few, data, CLOCKS[clock])  # compiles
    seconds = take_turns(
        {
            run: lambda run=run: run(model, config, data, CLOCKS[clock])
            for run in (bare, through_fit)
        },
        repeats,
        warm_up=False,
    )
    ratio = np.median(seconds[bare] / seconds[through_fit])
    alone, fitted = (1000 * np.median(seconds[run]) for run in (bare, through_fit))
    print(
        f"{keras.backend.backend()} {name}, {clock} clock: step alone {alone:.1f} ms, through fit "
        f"{fitted:.1f} ms;"
        f" images/s through fit over alone {ratio:.3f} (median of {repeats} pairs)",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--repeats", type=int, default=21, help="pairs of measurements (default: 21)"
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    options = parser.parse_args()
    backends.use(backends.measure())
    for name in options.sizes:
        measure(name, options.repeats, {"digits": 100, "Ti/16": 20}[name], options.clock)


if __name__ == "__main__":
    main()
