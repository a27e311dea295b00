"""VTAB-1k (arXiv 1910.04867): fine-tunes a checkpoint on 19 tasks; the score is the mean."""

import csv
import io
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from vit_keras.config import read_config
from vit_keras.data.tfds import GROUPS, TASKS, Task
from vit_keras.experiments import training_run
from vit_keras.support.checks import check_choice
from vit_keras.support.files import claimed, write_text
from vit_keras.training.records import read_rows

SGD = {"name": "sgd", "momentum": 0.9, "weight_decay": 0.0, "grad_norm_clip": 1.0}


def _paper(task: Task) -> dict[str, Any]:
    """Returns the fields of Table 4 and Appendix B.1.1, with the authors' later warmup."""
    rates = {"learning_rate": 0.01, "decay_type": "cosine", "warmup_steps": 200}
    return {
        "total_steps": 2500,
        "model": {"image_size": 384},  # for every task
        "optimizer": {**SGD, **rates, "momentum_dtype": "bfloat16"},
    }


def _bit(task: Task) -> dict[str, Any]:
    """Returns BiT-HyperRule fields for under 20 000 images (arXiv 1912.11370), without MixUp."""
    rates = {"learning_rate": 0.003, "decay_type": "staircase", "warmup_steps": 100}
    return {
        "total_steps": 500,
        "model": {"image_size": 128 if task.small else 384},
        "optimizer": {**SGD, **rates, "grad_norm_clip": None},
    }


SETTINGS = {"paper": _paper, "bit": _bit}


def fine_tune_tasks(
    weights: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tasks: Sequence[str] | None = None,
    setting: str = "paper",
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Fine-tunes a checkpoint on tasks of VTAB-1k, and writes the tables after each of them.

    A task with a complete run is not trained again, and a failed task does not stop the others, so
    the same call continues after an interruption.

    Args:
        weights: A checkpoint of any format that `vit_keras.weights` reads.
        out: The folder of the runs, `vtab.csv` and `vtab.md`.
        tasks: Names of tasks; None for all 19.
        setting: "paper" (Table 4), or "bit" for the BiT-HyperRule.
        data: Fields of `DataConfig`, such as `data_dir`.
        changes: Fields of `Config` that replace the setting's.

    Returns:
        `{task: accuracy on its test images}`, accuracies in [0, 1].

    Raises:
        ValueError: A task or setting is unknown, `out` holds another setting's tasks, another
            process uses `out`, or a task has no result; the results of the others are still
            written.

    Example:
        ```python
        folder = {"data_dir": "/data/tensorflow_datasets"}
        accuracies = experiments.fine_tune_tasks(
            "ViT-B_16.npz", "runs/vtab", tasks=["dtd", "svhn"], data=folder
        )
        ```
    """
    out, accuracies, failed = pathlib.Path(out), {}, []
    configs = {
        name: task_config(name, setting, weights, workdir=out / name, data=data, changes=changes)
        for name in tasks or TASKS
    }
    with claimed(out, "VTAB-1k", "Wait until it ends, or give another --out"):
        for name, fields in configs.items():
            try:
                accuracy = _accuracy(out / name, fields, out / f"{name}.yaml")
            except OtherSettingError:
                raise
            except (ImportError, OSError, FloatingPointError, ValueError) as error:
                print(f"{name}: no result: {error}", flush=True)
                failed.append(name)
                continue
            accuracies[name] = accuracy
            as_csv, as_markdown = tables(accuracies)
            write_text(out / "vtab.csv", as_csv)
            write_text(out / "vtab.md", as_markdown)
            print(f"{name}: {100 * accuracy:.2f}%", flush=True)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(configs)} tasks have no result: {', '.join(failed)}. "
            "Run the same command again to continue with them"
        )
    return accuracies


class OtherSettingError(ValueError):
    """A task's folder belongs to another setting or checkpoint."""


def _accuracy(folder, fields, file):
    """Returns a task's test accuracy; trains its run unless it is complete."""
    write_config(fields, file)
    accuracy = accuracy_of(folder, fields["total_steps"])
    if accuracy is None:
        print(f"{folder.name}: training for {fields['total_steps']} updates", flush=True)
        training_run.train_run(read_config(str(file)))
        accuracy = accuracy_of(folder, fields["total_steps"])
    return accuracy


def task_config(
    name: str,
    setting: str,
    weights: str | os.PathLike,
    *,
    workdir: str | os.PathLike,
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the fields of a `Config` that fine-tunes `weights` on a task, as in a YAML file.

    `data` holds fields of `DataConfig`, such as `data_dir`; `changes` replace fields of the
    setting. Raises ValueError for an unknown task or setting.
    """
    check_choice(name, TASKS, "task")
    check_choice(setting, SETTINGS, "setting")
    task = TASKS[name]
    fields = {
        "name": f"vtab-{name}",
        "dataset": f"vtab:{name}",
        "workdir": os.fspath(workdir),
        "batch": 512,
        "data": {"train_split": "train", "test_split": "test", **(data or {})},
        "augment": {"crop": "bit" if task.crop else "resize", "flip": task.flip},
    }
    fields = _merged(fields, SETTINGS[setting](task))
    fields["model"] |= {"weights": os.fspath(weights)}
    fields = _merged(fields, changes or {})
    once = {"eval_every": fields["total_steps"], "checkpoint_every": 500}
    return {**once, **fields}


def write_config(fields: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Writes a task's configuration; raises ValueError if the file holds another one."""
    import yaml

    text, path = yaml.safe_dump(dict(fields), sort_keys=False), pathlib.Path(path)
    if path.exists() and path.read_text() != text:
        raise OtherSettingError(
            f"{os.fspath(path)!r} belongs to another setting or checkpoint. Give another --out"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def accuracy_of(folder: str | os.PathLike, total_steps: int) -> float | None:
    """Returns the test accuracy of a complete run; None for any other folder."""
    folder = pathlib.Path(folder)
    if not (folder / "model.keras").is_file():
        return None
    rows = read_rows(folder)
    return rows[-1].get("val_accuracy") if rows and rows[-1]["step"] == total_steps else None


def means(accuracies: Mapping[str, float]) -> list[tuple[str, int, float]]:
    """Returns the name, task count and mean accuracy of each group of tasks, then of all tasks."""
    rows = []
    for group in GROUPS:
        values = [value for name, value in accuracies.items() if TASKS[name].group == group]
        if values:
            rows.append((group, len(values), sum(values) / len(values)))
    return [*rows, ("all", len(accuracies), sum(accuracies.values()) / len(accuracies))]


def tables(accuracies: Mapping[str, float]) -> tuple[str, str]:
    """Formats the results as CSV, and as a Markdown table in percent."""
    rows = [(name, TASKS[name].group, accuracies[name]) for name in TASKS if name in accuracies]
    rows += [(f"mean of {count}", group, mean) for group, count, mean in means(accuracies)]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(("task", "group", "accuracy"))
    writer.writerows(rows)
    lines = ["| task | group | accuracy (%) |", "|---|---|--:|"]
    lines += [f"| {name} | {group} | {100 * value:.2f} |" for name, group, value in rows]
    return written.getvalue(), "\n".join(lines) + "\n"


def _merged(fields, changes):
    """Returns `fields` overwritten by `changes`, recursively."""
    merged = dict(fields)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged
