"""Measures how long an update waits for a checkpoint, and the memory that the checkpoint takes.

    KERAS_BACKEND=jax python -m benchmarks.checkpoint_wait --variant B/16 --folder /a/local/disk

The state is the weights, the moments of AdamW, and the average of the weights. Saves whose caller
waits for the files, and saves that a thread writes, take turns. `memory` is the largest resident
memory during a save beside what the process had before.
"""

import argparse
import contextlib
import ctypes
import pathlib
import tempfile
import threading
import time

import keras
import numpy as np

from benchmarks.memory import resident
from benchmarks.turns import quartiles, take_turns
from vit_keras.config import Config, ModelConfig, OptimizerConfig
from vit_keras.models import from_model_config
from vit_keras.training import checkpoints
from vit_keras.training.checkpoints import CheckpointWriter
from vit_keras.training.loop import compile_model


def build(variant: str) -> keras.Model:
    """A compiled model whose whole state has random values."""
    config = Config(model=ModelConfig(variant), optimizer=OptimizerConfig(ema_decay=0.999))
    config = config.complete_task("classes")
    model = from_model_config(config.model, num_classes=1000)
    compile_model(model, config)
    rng = np.random.default_rng(0)
    for variable in (*model.variables, *model.optimizer.variables):
        if variable.dtype == "float32":
            variable.assign(rng.normal(size=variable.shape).astype("float32"))
    return model


def save(model, folder: pathlib.Path, in_thread: bool) -> tuple[float, float, float]:
    """Saves once; returns the seconds that the caller waits, those until all is written, and GiB.

    A caller that waits for the files has both at once.
    """
    with most_memory() as memory, CheckpointWriter() as writer:
        start = time.perf_counter()
        checkpoints.save(model, folder, 1, keep=1, writer=writer if in_thread else None)
        waited = time.perf_counter() - start
        writer.wait()
        written = time.perf_counter() - start
    return waited, written, memory[0]


@contextlib.contextmanager
def most_memory():
    """Yields a list, whose number in the end is the most memory meanwhile beside that at first."""
    with contextlib.suppress(AttributeError):  # of the C library of Linux
        ctypes.CDLL(None).malloc_trim(0)  # gives back what earlier saves have freed
    before, ended, most = resident(), threading.Event(), [0.0]

    def watch():
        while not ended.wait(0.01):
            most[0] = max(most[0], resident() - before)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", default="B/16")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", help="where the checkpoints are written")
    options = parser.parse_args()
    model = build(options.variant)
    variables = (*model.variables, *model.optimizer.variables)
    size = sum(int(np.prod(v.shape)) for v in variables if v.dtype == "float32") * 4
    print(f"{keras.backend.backend()} {options.variant}: a state of {size / 1e9:.2f} GB")
    figures: dict = {False: [], True: []}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:

        def measure(in_thread):
            figures[in_thread].append(save(model, pathlib.Path(folder), in_thread))
            return figures[in_thread][-1][0]

        waits = take_turns(
            {name: lambda name=name: measure(name) for name in figures}, options.rounds
        )
    for name, in_thread in (("waits for the files", False), ("a thread writes", True)):
        waited, written, memory = np.median(figures[in_thread][1:], axis=0)
        print(f"{name:<20} {waited:6.2f} s, whole after {written:6.2f} s, {memory:.2f} GiB more")
    print(f"ratio of the waits {quartiles(waits[True] / waits[False])}, {options.rounds} rounds")


if __name__ == "__main__":
    main()
