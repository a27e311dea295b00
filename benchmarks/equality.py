"""Compares the losses of one run that is made in several ways: `python -m benchmarks.equality`.

The default recipe's model, without dropout, trains for 200 updates on each backend: as it is, with
each batch in four parts, and on two processes with half of each batch. The table, which is for
docs/training.md, has the largest relative difference between the losses of two runs, where each
loss is a mean over ten updates.

`python -m benchmarks.equality sgd` trains with SGD at 0.01. AdamW divides gradients by roots of
their squares and so amplifies rounding; SGD does not.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
BACKENDS = ("tensorflow", "jax", "torch")
STEPS, EVERY, FIRST = 200, 10, 20
SHARED = {"total_steps": STEPS, "eval_every": EVERY, "checkpoint_every": STEPS, "batch_eval": 90}
OPTIMIZERS = {"adamw": {}, "sgd": {"optimizer.name": "sgd", "optimizer.learning_rate": 0.01}}
WAYS = {
    "one": {},
    "parts": {"optimizer.accumulation_steps": 4},
    "processes": {"distribution": "multi_worker"},
}


def losses(backend: str, way: str, optimizer: str, folder: pathlib.Path) -> list[float]:
    """Trains once and returns the losses that the run recorded."""
    workdir = folder / f"{backend}-{way}"
    fields = {**SHARED, **WAYS[way], **OPTIMIZERS[optimizer], "workdir": workdir}
    command = [sys.executable, "train.py", *(f"--{name}={value}" for name, value in fields.items())]
    count = 2 if way == "processes" else 1
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"KERAS_BACKEND": backend, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = []
    for rank in range(count):
        named = {**shared, "RANK": str(rank), "WORLD_SIZE": str(count)} if count > 1 else shared
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **named}
        with open(folder / f"{backend}-{way}-{rank}.log", "w") as log:
            processes.append(
                subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
            )
    if any(process.wait() for process in processes):
        raise RuntimeError((folder / f"{backend}-{way}-0.log").read_text()[-3000:])
    return [row["loss"] for row in json.loads((workdir / "metrics.json").read_text())]


def difference(ours: list[float], expected: list[float], steps: int) -> float:
    """The largest relative difference over the first `steps` updates."""
    rows = steps // EVERY
    return max(abs(a - b) / b for a, b in zip(ours[:rows], expected[:rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split(":")[0])
    parser.add_argument("optimizer", nargs="?", default="adamw", choices=OPTIMIZERS)
    optimizer = parser.parse_args().optimizer
    print("| backend | against | first 20 updates | 200 updates |")
    print("|---|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        curves = {}
        for backend in BACKENDS:
            for way in WAYS:
                curves[backend, way] = losses(backend, way, optimizer, pathlib.Path(folder))
        rows = [
            (b, "the same run on tensorflow", "one", ("tensorflow", "one")) for b in BACKENDS[1:]
        ]
        rows += [(b, "itself, a batch in 4 parts", "parts", (b, "one")) for b in BACKENDS]
        rows += [(b, "itself, 2 processes", "processes", (b, "one")) for b in BACKENDS]
        for backend, against, way, other in rows:
            pair = curves[backend, way], curves[other]
            print(
                f"| {backend} | {against} | {difference(*pair, FIRST):.1e} "
                f"| {difference(*pair, STEPS):.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
