"""Kills training runs again and again, and checks that they end like a run that was not killed.

    KERAS_BACKEND=jax python -m tests.training.kill --kills 40

One run is never killed. Another run is killed by SIGKILL at a random moment: half the time at a
system call on a file of the run (an opening, a write, half a write, a flush, a closing, a rename, a
removal), otherwise before a random event (a batch, an update, a batch of an evaluation, a flush to
the disk, a rename, a removal) or after a random time. The same command resumes it, is killed again,
and so on. At the end, its last checkpoint, metrics and model are compared with those of the first
run. More runs follow until there were `--kills` kills. With `--stops FOLDER`, one run is stopped at
chosen moments instead.
"""

import argparse
import collections
import importlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import numpy as np

from tests.faults import shim

STEPS = 40
ARGUMENTS = [
    *("--model.hidden_size", "16", "--model.num_layers", "2", "--model.num_heads", "2"),
    *("--model.mlp_dim", "16", "--model.dropout_rate", "0.2", "--batch", "32"),
    *("--total_steps", str(STEPS), "--eval_every", "7", "--checkpoint_every", "4"),
    *("--optimizer.ema_decay", "0.9", "--optimizer.accumulation_steps", "2"),
    *("--kernels", "default"),
]
EVENTS = {
    "batch": ("keras.callbacks.CallbackList", "on_train_batch_begin"),
    "update": ("vit_keras.training.callbacks.CallbackList", "on_train_batch_end"),
    "evaluation": ("keras.callbacks.CallbackList", "on_test_batch_end"),
    "flush": ("os", "fsync"),
    "rename": ("os", "replace"),
    "removal": ("shutil", "rmtree"),
}
# What a run imports; Keras imports TensorFlow to serialize layers.
IMPORTS = ("vit_keras.experiments", "sklearn.datasets", "matplotlib.figure", "tensorflow", "h5py")
# How many system calls of a kind a save makes, about.
CALLS = {"open": 40, "write": 150, "torn write": 150, "fsync": 12, "close": 40, "rename": 8}
CALLS |= {"mkdir": 3, "unlink": 20, "rmdir": 3}
# The second one dies at the flush of the second checkpoint that follows its first file.
STOPS = [("straight",), ("stopped", "flush", 8), ("stopped", "sigint", 16), ("stopped",)]
SIGNALS = {"sigterm": signal.SIGTERM, "sigint": signal.SIGINT}


def die(kind, at, number=signal.SIGKILL):
    print(f"killed: {kind} {at}", flush=True)
    os.kill(os.getpid(), number)


def watch(kind, at, folder):
    """Arranges that this process dies.

    `kind` says when: "event" means before event number `at` since training began, a name in
    `EVENTS` means before number `at` of these events, "call " and a name in `CALLS` means at number
    `at` of these system calls, which needs `LD_PRELOAD`, and "seconds" means `at` seconds after the
    first update. "sigterm" and "sigint" send these before event number `at`. "never" lets it end.
    """
    import keras

    from vit_keras.training import callbacks

    homes = {"keras.callbacks.CallbackList": keras.callbacks.CallbackList}
    homes |= {"vit_keras.training.callbacks.CallbackList": callbacks.CallbackList}
    homes |= {"os": os, "shutil": shutil}
    seen = []

    def noted(name, original):
        def call(*arguments, **options):
            if name == "batch" and not seen and kind.startswith("call "):
                shim.kill_at(folder, kind.removeprefix("call "), int(at))
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


def differences(straight, other):
    """Names what differs between the folders of two runs, except the numbers of the clock."""
    found: list[str] = []
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


def moment(rng):
    """A kind and a number for `watch`."""
    if rng.integers(2):
        call = list(CALLS)[rng.integers(len(CALLS))]
        return f"call {call}", int(rng.integers(1, CALLS[call] + 1))
    if rng.integers(2):
        return "event", int(rng.integers(1, 60))
    return "seconds", round(rng.uniform(0, 1.5), 3)


def chain(kills, seed, root):
    """Kills one run after another until there were `kills` kills; returns the differences."""
    rng, began = np.random.default_rng(seed), time.perf_counter()
    import_for_forks()
    straight, log = root / "straight", root / "log"
    if fork_run(log, straight):
        raise RuntimeError(log.read_text()[-3000:])
    deaths, runs, found = collections.Counter(), 0, []
    while deaths.total() < kills:
        folder, runs = root / f"killed{runs}", runs + 1
        while True:
            kind, at = moment(rng) if deaths.total() < kills else ("never", 0)
            code = fork_run(log, folder, kind, at)
            if code == 0:
                break
            if code != -signal.SIGKILL:
                raise RuntimeError(log.read_text()[-3000:])
            deaths[kind] += 1
            checkpoints = sorted(p.name for p in (folder / "checkpoints").glob("*"))
            print(f"{deaths.total():3d} {kind} {at}: {checkpoints}", flush=True)
        wrong = in_child(log, differences, straight, folder)
        wrong += [f"{name} is left" for name in remains(folder)]
        print(f"{folder.name} ended like the run without kills, but for {wrong}", flush=True)
        found += wrong
    seconds = time.perf_counter() - began
    print(f"{deaths.total()} kills {dict(deaths)} in {runs} runs, {seconds:.0f} s; differ: {found}")
    return found


def import_for_forks():
    for name in IMPORTS:
        importlib.import_module(name)


def fork_run(log, folder, kind="never", at=0):
    """Trains in a fork of this process: packages are not imported each time."""
    return fork(log, lambda: run(kind, at, [*ARGUMENTS, "--workdir", str(folder)]))


def in_child(log, function, *arguments):
    """A list of strings that `function` returns, which may use the backend: a fork may not."""
    out = log.with_suffix(".json")
    if fork(log, lambda: out.write_text(json.dumps(function(*arguments))) and 0):
        raise RuntimeError(log.read_text()[-3000:])
    return json.loads(out.read_text())


def fork(log, function):
    """Calls a function in a fork of this process, and returns its exit code, or minus a signal."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        with open(log, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        code = function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code or 0)


def remains(folder):
    """What lies in a complete run's folder under a hidden name."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".*"))


def run(kind, at, arguments):
    """Trains, and dies as `watch` describes; returns the exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    watch(kind, at, arguments[-1])
    from vit_keras import commands

    return commands.main(["train", *arguments])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="how often to kill (20)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (0)")
    parser.add_argument("--stops", type=pathlib.Path, help="a folder for the two runs")
    options = parser.parse_args()
    if options.stops:
        return stopped(options.stops)
    with tempfile.TemporaryDirectory() as root:
        if "LD_PRELOAD" not in os.environ:
            environment = {**os.environ, "LD_PRELOAD": shim.build(root)}
            command = [sys.executable, "-m", "tests.training.kill", *sys.argv[1:]]
            return subprocess.run(command, env=environment).returncode
        return int(bool(chain(options.kills, options.seed, pathlib.Path(root))))


def stopped(root):
    """A run that is never stopped, and one that is killed in a checkpoint and then has Ctrl-C.

    Prints what `tests/training/test_kill.py` reads: how each process ended, what it printed, and
    the folders of the checkpoints then; at last the differences of the two runs.
    """
    log, ends = root / "log", []
    import_for_forks()
    for name, *moment in STOPS:
        code = fork_run(log, root / name, *moment)
        folders = sorted(path.name for path in (root / name / "checkpoints").iterdir())
        ends.append([code, log.read_text(), folders])
    print(json.dumps([ends, in_child(log, differences, root / "straight", root / "stopped")]))


if __name__ == "__main__":
    sys.exit(main())
