"""Measures a linear probe on features that are computed once, and the same through the model.

    KERAS_BACKEND=jax python -m benchmarks.cached_probe folder:photos runs/others

Both are the recipe finetune/probe, each in a process of its own: `cache_features` true, then false.
Three times are printed: the epochs, from the first picture to the last evaluation, with the
features and the compilation; the whole command, from its start to the report; and the CPU time of
all its threads, which other programs on the machine hardly change.
"""

import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

TIMES = {"epochs": "s of epochs", "command": "s of the command", "cpu": "s of CPU"}


def measure(cached: bool, options, folder: pathlib.Path) -> dict[str, float]:
    """Trains a probe in a new process; its accuracy and its times in seconds."""
    command = [
        *(sys.executable, "-m", "vit_keras", "train", "--config", "finetune/probe"),
        *("--dataset", options.dataset, "--model.weights", options.weights),
        *("--cache_features", str(cached).lower(), "--workdir", str(folder)),
        *("--epochs", str(options.epochs), "--seed", str(options.seed)),
        *(("--model.image_size", str(options.image_size)) if options.image_size else ()),
    ]
    began, before = time.perf_counter(), _cpu_seconds()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    written = lambda name: (folder / name).stat().st_mtime
    return {
        "accuracy": json.loads((folder / "report.json").read_text())["accuracy"],
        "epochs": written("metrics.json") - written("dataset.json"),  # its last and first writing
        "command": time.perf_counter() - began,
        "cpu": _cpu_seconds() - before,
    }


def _cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("dataset", help="such as folder:photos")
    parser.add_argument("weights", help="a run, a checkpoint or a published name")
    parser.add_argument("--image_size", type=int, help="pixels (the weights')")
    parser.add_argument("--epochs", type=int, default=50, help="(50)")
    parser.add_argument("--seed", type=int, default=0, help="(0)")
    options = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as root:
        for name, cached in (("cached", True), ("through the model", False)):
            results.append(measure(cached, options, pathlib.Path(root) / name.split()[0]))
            times = ", ".join(f"{results[-1][key]:.1f} {unit}" for key, unit in TIMES.items())
            print(f"{name}: accuracy {100 * results[-1]['accuracy']:.2f} %, {times}", flush=True)
    ratios = (f"{results[1][key] / results[0][key]:.1f} ({key})" for key in TIMES)
    print(f"times as many seconds through the model: {', '.join(ratios)}")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
