"""Measures a training step on long sequences: attention by blocks, written out, and torch's own.

    python -m benchmarks.long_sequences --image_size 1024
    python -m benchmarks.long_sequences --image_size 1024 --num_layers 3 --forms blocks written_out
    python -m benchmarks.long_sequences --image_size 1024 --window_size 14 --global_blocks 2 5 8 11

A step of S/16 on one image, each form in a process of its own. The processes take turns. Memory is
the largest that a process took, above what it had after importing its libraries. Torch has one
form. A model of fewer layers lets the written-out form fit into memory.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from typing import Any

import numpy as np

from benchmarks import memory
from benchmarks.turns import quartiles

FORMS = ("blocks", "written_out")
SIZES: dict[str, tuple[int, int, int]] = {  # hidden_size, num_heads, mlp_dim
    "Ti": (192, 3, 768),
    "S": (384, 6, 1536),
    "B": (768, 12, 3072),
}


def make_step(form: str, case: dict[str, Any]):
    """A function that trains once, on one image, as the `train` command does."""
    import keras

    from vit_keras.config import OptimizerConfig
    from vit_keras.layers import backends
    from vit_keras.models import VisionTransformer
    from vit_keras.support import machine
    from vit_keras.training import build_optimizer

    machine.keep_memory()
    if form == "written_out":
        backends.LONG = 10**9
    image_size, (width, heads, mlp_dim) = case["image_size"], SIZES[case["size"]]
    sizes = (width, case["num_layers"], heads, mlp_dim)
    windows = {name: case[name] for name in ("window_size", "global_blocks")}
    model = VisionTransformer(image_size, case["patch_size"], *sizes, 1000, seed=0, **windows)
    optimizer = build_optimizer(OptimizerConfig(weight_decay=0.1), 1000, model)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images = np.random.default_rng(0).uniform(-1, 1, (1, image_size, image_size, 3))
    batch = images.astype("float32"), np.array([7])
    return lambda: model.fit(*batch, batch_size=1, verbose=0)


def work(form: str, case: dict[str, Any]) -> None:
    """Trains once for each line of the standard input, and answers what it took."""
    out, sys.stdout = sys.stdout, sys.stderr
    import vit_keras.data
    import vit_keras.models
    import vit_keras.training  # noqa: F401 (before memory is measured)

    base = memory.resident()
    step = make_step(form, case)
    step()
    step()
    for _ in sys.stdin:
        begin, cpu = time.perf_counter(), time.process_time()
        step()
        answer = {"cpu": time.process_time() - cpu, "clock": time.perf_counter() - begin}
        answer["gib"] = memory.peak() - base
        print(json.dumps(answer), file=out, flush=True)


@contextlib.contextmanager
def process(backend: str, form: str, case: dict[str, Any]):
    """A process that computes one form; yields the function that takes its turn."""
    command = [sys.executable, "-m", "benchmarks.long_sequences", "--worker", form]
    variables = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    if backend != "torch":
        variables["MALLOC_ARENA_MAX"] = "1"  # as commands have it
    worker = subprocess.Popen(
        [*command, json.dumps(case)],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def take_turn():
        worker.stdin.write("\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    try:
        yield take_turn
    finally:
        worker.stdin.close()
        worker.wait()


def compare(backend: str, forms: list[str], case: dict[str, Any], rounds: int) -> None:
    """Prints a row for each form; the ratio of CPU times is to the last form."""
    with contextlib.ExitStack() as stack:
        turns = {form: stack.enter_context(process(backend, form, case)) for form in forms}
        answers = [{form: turn() for form, turn in turns.items()} for _ in range(rounds)]
    for form in forms:
        cpu, clock = (np.array([row[form][name] for row in answers]) for name in ("cpu", "clock"))
        ratio = quartiles(np.array([row[forms[-1]]["cpu"] for row in answers]) / cpu)
        gib = max(row[form]["gib"] for row in answers)
        print(
            f"| {backend} | {form} | {gib:.2f} | {np.median(cpu):.2f} | {np.median(clock):.2f} "
            f"| {ratio} |",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", nargs="+", default=["jax", "tensorflow", "torch"])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["blocks"])
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--image_size", type=int, default=1024)
    parser.add_argument("--patch_size", type=int, default=16)
    parser.add_argument("--num_layers", type=int, default=12)
    parser.add_argument("--window_size", type=int, help="rows and columns of patches in a window")
    parser.add_argument("--global_blocks", type=int, nargs="+", default=[], metavar="INDEX")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker[0], json.loads(options.worker[1]))
        return
    names = ("size", "image_size", "patch_size", "num_layers", "window_size", "global_blocks")
    case = {name: getattr(options, name) for name in names}
    tokens = (options.image_size // options.patch_size) ** 2 + 1
    print(f"{options.size}/{options.patch_size}, {tokens} tokens, {options.num_layers} layers\n")
    print("| backend | attention | GiB | CPU s | s | times as fast by CPU time |")
    print("|---|---|--:|--:|--:|--:|")
    for backend in options.backend:
        compare(backend, ["own"] if backend == "torch" else options.forms, case, options.rounds)


if __name__ == "__main__":
    main()
