"""Kills training runs again and again, and checks that they end like a run that was not killed.

    KERAS_BACKEND=jax python -m tests.training.kill --kills 40

One run is never killed. Another run is killed by SIGKILL at a random moment: half the time at a
system call on a file of the run (an opening, a write, half a write, a flush, a closing, a rename, a
removal), otherwise before a random event (a batch, an update, a batch of an evaluation, a flush to
the disk, a rename, a removal). The same command resumes it, is killed again, and so on. At the end,
its last checkpoint, metrics and model are compared with those of the first run. More runs follow
until there were `--kills` kills. With `--stops FOLDER`, one run is stopped at chosen moments
instead.
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
# What a run imports; Keras imports TensorFlow to serialize layers.
IMPORTS = ("vit_keras.experiments", "sklearn.datasets", "matplotlib.figure", "tensorflow", "h5py")
# How many system calls of a kind a save makes, about.
CALLS = {"open": 40, "write": 150, "torn write": 150, "fsync": 12, "close": 40, "rename": 8}
CALLS |= {"mkdir": 3, "unlink": 20, "rmdir": 3}
# The second one dies at the flush of the second checkpoint that follows its first file.
STOPS = [("straight",), ("stopped", "flush", 8), ("stopped", "sigint", 16), ("stopped",)]


def watch(kind, at, folder):
    """Arranges that this process dies.

    `kind` says when: "event" means before event number `at` since training began, "flush" before
    flush number `at`, "call " and a name in `CALLS` at number `at` of these system calls, which
    needs `LD_PRELOAD`. "sigint" sends Ctrl-C before event number `at`. "never" lets it end.
    """
    import keras

    from vit_keras.training import callbacks

    events = {
        "batch": (keras.callbacks.CallbackList, "on_train_batch_begin"),
        "update": (callbacks.RunCallbacks, "on_train_batch_end"),
        "evaluation": (keras.callbacks.CallbackList, "on_test_batch_end"),
        "flush": (os, "fsync"),
        "rename": (os, "replace"),
        "removal": (shutil, "rmtree"),
    }
    seen = []

    def noted(name, original):
        def call(*arguments, **options):
            if name == "batch" and not seen and kind.startswith("call "):
                shim.kill_at(folder, kind.removeprefix("call "), int(at))
            if seen or name == "batch":  # from the first batch on
                seen.append(name)
                counted = seen.count(kind) if kind in events else len(seen)
                if counted == at and kind in (name, "event", "sigint"):
                    print(f"killed: {name} {at}", flush=True)
                    os.kill(os.getpid(), signal.SIGINT if kind == "sigint" else signal.SIGKILL)
            return original(*arguments, **options)

        return call

    for name, (home, attribute) in events.items():
        setattr(home, attribute, noted(name, getattr(home, attribute)))


def differences(straight, other):
    """Names what differs between the folders of two runs, except the numbers of the clock."""
    states = [f / "checkpoints" / f"step_{STEPS:09d}" / "state.npz" for f in (straight, other)]
    ours, theirs = map(np.load, states)
    found = sorted({*ours.files} ^ {*theirs.files})
    found += [n for n in ours.files if ours[n].tobytes() != theirs[n].tobytes()]
    rows = [json.loads((f / "metrics.json").read_text()) for f in (straight, other)]
    for row in [*rows[0], *rows[1]]:
        row.pop("images_per_second")
    found += ["metrics.json"] if rows[0] != rows[1] else []
    tables = [(f / "metrics.csv").read_text().splitlines() for f in (straight, other)]
    steps = [[line.split(",")[0] for line in table] for table in tables]
    found += ["metrics.csv"] if steps[0] != steps[1] else []
    return found + model_differences(straight, other)


def model_differences(straight, other):
    import keras

    import vit_keras  # noqa: F401 - the classes of the files

    ours, theirs = (keras.saving.load_model(f / "model.keras") for f in (straight, other))
    return [
        f"model.keras: {one.path}"
        for one, two in zip(ours.weights, theirs.weights, strict=True)
        if not np.array_equal(*map(keras.ops.convert_to_numpy, (one, two)))
    ]


def moment(rng):
    """A kind and a number for `watch`."""
    if rng.integers(2):
        call = list(CALLS)[rng.integers(len(CALLS))]
        return f"call {call}", int(rng.integers(1, CALLS[call] + 1))
    return "event", int(rng.integers(1, 60))


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
        wrong += [f"{path.relative_to(folder)} is left" for path in sorted(folder.rglob(".*"))]
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

    def run():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
        watch(kind, at, str(folder))
        from vit_keras import commands

        return commands.main(["train", *ARGUMENTS, "--workdir", str(folder)])

    return fork(log, run)


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

    Prints what `tests/training/test_runs.py` reads: how each process ended, what it printed, and
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
