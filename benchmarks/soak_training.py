"""The process that a soak ends at random, and the comparison of what such processes leave.

python -m benchmarks.soak_training EXPORT_EVERY train ARGUMENTS
"""

import faulthandler
import json
import pathlib
import signal
import sys

import numpy as np

ROOT = pathlib.Path(__file__).parents[1]
BATCH = 32


def main():
    every, arguments = int(sys.argv[1]), sys.argv[2:]
    faulthandler.register(signal.SIGUSR1)  # tells where a process that does not end is
    signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    sys.argv[0] = str(ROOT / "train.py")  # a command, which repeats a Ctrl-C that Python ignored
    from vit_keras import commands

    if every:
        export_while_training(every)
    return commands.main(arguments)


def export_while_training(every: int) -> None:
    """Lets this process export the model after a checkpoint, every `every` updates."""
    from vit_keras.training import checkpoints

    save = checkpoints.save

    def save_and_export(model, folder, step, *others):
        path = save(model, folder, step, *others)
        if step % every == 0:
            export(model, folder.parent / "export")
            print(f"exported at {step}", flush=True)
        return path

    checkpoints.save = save_and_export


def export(model, folder: pathlib.Path) -> None:
    """Exports a copy of `model`; on torch, it leaves the global generator as it was."""
    import vit_keras
    from vit_keras import weights
    from vit_keras.exporting import export as export_model
    from vit_keras.training import checkpoints

    generator = checkpoints.generator_state()
    copy = folder.parent / "copy.keras"
    weights.save_model(model, copy)
    export_model(vit_keras.open(copy), folder, formats=("savedmodel",))
    if generator is not None:
        checkpoints.set_generator_state(generator)


def steps_per_second(folder: pathlib.Path) -> float:
    """How fast a run was when it had compiled everything."""
    return min(row["images_per_second"] for row in _read_rows(folder)[2:]) / BATCH


def updates(folder: pathlib.Path) -> int:
    """The updates of a run until its last evaluation."""
    rows = _read_rows(folder)
    return rows[-1]["step"] if rows else 0


def compare(straight: pathlib.Path, other: pathlib.Path) -> tuple[list[str], int]:
    """Names what differs between two runs' folders, and counts the checkpoints that both have."""
    folders = straight, other
    names = [{p.name for p in (f / "checkpoints").glob("step_*")} for f in folders]
    both, found = sorted(names[0] & names[1]), []
    for name in both:
        ours, theirs = (np.load(f / "checkpoints" / name / "state.npz") for f in folders)
        if {*ours.files} != {*theirs.files}:
            found.append(f"{other.name}/{name}: {sorted({*ours.files} ^ {*theirs.files})}")
        found += [
            f"{other.name}/{name}: {key}"
            for key in {*ours.files} & {*theirs.files}
            if ours[key].tobytes() != theirs[key].tobytes()
        ]
    rows = [_rows(folder) for folder in folders]
    differ = sum(one != two for one, two in zip(*rows))
    found += [f"{other.name}/metrics.json: {differ} rows"] if differ else []
    if (other / "model.keras").exists():
        found += [f"{other.name}/model.keras: {name}" for name in _model_differences(*folders)]
        reports = {(folder / "report.json").read_text() for folder in folders}
        found += [f"{other.name}/report.json"] if len(reports) > 1 else []
    return found, len(both)


def _read_rows(folder):
    path = folder / "metrics.json"
    return json.loads(path.read_text()) if path.exists() else []


def _rows(folder):
    """The rows of metrics, without what the clock measured."""
    clock = "images_per_second"
    return [{k: v for k, v in row.items() if k != clock} for row in _read_rows(folder)]


def _model_differences(*folders):
    import keras

    import vit_keras

    pairs = zip(*(vit_keras.open(folder / "model.keras").weights for folder in folders))
    read = lambda weight: keras.ops.convert_to_numpy(weight).tobytes()
    return [one.path for one, two in pairs if read(one) != read(two)]


if __name__ == "__main__":
    sys.exit(main())
