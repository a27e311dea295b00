"""Kills training runs again and again, and checks that they end like a run that was not killed.

    KERAS_BACKEND=jax python -m tests.training.kill --points 20

One run is never killed. Another run is killed by SIGKILL at a random moment: half the time before
a random event (a batch, an update, a batch of an evaluation, a flush to the disk, a rename, a
removal), otherwise after a random time. The same command resumes it, is killed again, and so on. At
the end, its last checkpoint, metrics and model are compared with those of the first run. More runs
follow until there were `--points` kills. `python -m tests.training.kill run KIND AT ARGUMENTS` is
the process that dies.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import threading
import time

import numpy as np

from tests.helpers import run_script

STEPS = 40
ARGUMENTS = [
    *("--model.hidden_size", "16", "--model.num_layers", "2", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--model.dropout_rate", "0.2", "--batch", "32"),
    *("--total_steps", str(STEPS), "--eval_every", "7", "--checkpoint_every", "4"),
    *("--optimizer.ema_decay", "0.9", "--optimizer.accumulation_steps", "2"),
]
EVENTS = {
    "batch": ("keras.callbacks.CallbackList", "on_train_batch_begin"),
    "update": ("vit_keras.training.callbacks.CallbackList", "on_train_batch_end"),
    "evaluation": ("keras.callbacks.CallbackList", "on_test_batch_end"),
    "flush": ("os", "fsync"),
    "rename": ("os", "replace"),
    "removal": ("shutil", "rmtree"),
}
SIGNALS = {"sigterm": signal.SIGTERM, "sigint": signal.SIGINT}


def die(kind, at, number=signal.SIGKILL):
    print(f"killed: {kind} {at}", flush=True)
    os.kill(os.getpid(), number)


def watch(kind, at):
    """Arranges that this process dies as `train` describes."""
    import keras

    from vit_keras.training import callbacks

    homes = {"keras.callbacks.CallbackList": keras.callbacks.CallbackList}
    homes |= {"vit_keras.training.callbacks.CallbackList": callbacks.CallbackList}
    homes |= {"os": os, "shutil": shutil}
    seen = []

    def noted(name, original):
        def call(*arguments, **options):
            if seen or name == "batch":  # from the first batch on
                seen.append(name)
            if name == "update" and seen.count("update") == 1 and kind == "seconds":
                threading.Timer(at, die, [kind, at]).start()
            counted = len(seen) if kind in ("event", *SIGNALS) else seen.count(kind)
            if seen and counted == at and kind in (name, "event", *SIGNALS):
                die(name, at, SIGNALS.get(kind, signal.SIGKILL))
            return original(*arguments, **options)

        return call

    for name, (home, attribute) in EVENTS.items():
        original = getattr(homes[home], attribute)
        setattr(homes[home], attribute, noted(name, original))


def train(folder, kind="never", at=0, **options):
    """Runs one process that trains in `folder`, and returns how it ended.

    `kind` says when SIGKILL ends it: "event" means before event number `at` since training began, a
    name in `EVENTS` means before number `at` of these events, and "seconds" means `at` seconds
    after the first update. "sigterm" and "sigint" send these before event number `at`. "never" lets
    it end.
    """
    command = ["-m", "tests.training.kill", "run", kind, str(at), *ARGUMENTS, "--workdir", folder]
    return run_script(*command, check=False, **options)


def differences(straight, other):
    """Names what differs between the folders of two runs, except the numbers of the clock."""
    found = []
    ours, theirs = (
        np.load(f / "checkpoints" / f"step_{STEPS:09d}" / "state.npz") for f in (straight, other)
    )
    found += sorted({*ours.files} ^ {*theirs.files})
    found += [n for n in ours.files if ours[n].tobytes() != theirs[n].tobytes()]
    rows = [json.loads((f / "metrics.json").read_text()) for f in (straight, other)]
    for row in [*rows[0], *rows[1]]:
        row.pop("images_per_second")
    found += ["metrics.json"] if rows[0] != rows[1] else []
    steps = [
        [line.split(",")[0] for line in (f / "metrics.csv").read_text().splitlines()]
        for f in (straight, other)
    ]
    found += ["metrics.csv"] if steps[0] != steps[1] else []
    return found + model_differences(straight, other)


def model_differences(straight, other):
    import keras

    import vit_keras  # noqa: F401 - the classes of the files

    ours, theirs = (keras.saving.load_model(f / "model.keras") for f in (straight, other))
    return [
        f"model.keras: {one.path}"
        for one, two in zip(ours.weights, theirs.weights)
        if not np.array_equal(*map(keras.ops.convert_to_numpy, (one, two)))
    ]


def chain(points, seed, root, longest=60):
    """Kills one run after another until there were `points` kills; returns the differences."""
    rng = np.random.default_rng(seed)
    began = time.perf_counter()
    done = train(root / "straight")
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    kills, runs, found = 0, 0, []
    while kills < points:
        folder, runs = root / f"killed{runs}", runs + 1
        while True:
            left = points - kills
            kind = ("event", "seconds")[rng.integers(2)] if left else "never"
            at = {"event": rng.integers(1, longest), "seconds": round(rng.uniform(0, 1.5), 3)}
            done = train(folder, kind, at.get(kind, 0))
            if done.returncode == 0:
                break
            if done.returncode != -signal.SIGKILL:
                raise RuntimeError(done.stderr[-3000:])
            kills += 1
            checkpoints = sorted(p.name for p in (folder / "checkpoints").glob("*"))
            print(
                f"{kills:3d} {done.stdout.split('killed:')[-1].strip()}: {checkpoints}", flush=True
            )
        found += [f"{folder.name}: {name}" for name in differences(root / "straight", folder)]
    print(f"{kills} kills in {runs} runs, {time.perf_counter() - began:.0f} s; differ: {found}")
    return found


def main():
    if sys.argv[1:2] == ["run"]:
        kind, at = sys.argv[2], float(sys.argv[3])
        signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
        watch(kind, at)
        from vit_keras import commands

        return commands.main(["train", *sys.argv[4:]])
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--points", type=int, default=20, help="how often to kill (20)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        return int(bool(chain(options.points, options.seed, pathlib.Path(root))))


if __name__ == "__main__":
    sys.exit(main())
