"""VTAB-1k: a checkpoint fine-tuned on each of 19 tasks; the score is the mean accuracy."""

import csv
import io
import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any

from vit_keras.data.vtab import GROUPS, TASKS, Task
from vit_keras.files import write_text
from vit_keras.weights import weight_file

SIZES = ("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim", "classifier")
SGD = {"name": "sgd", "momentum": 0.9, "weight_decay": 0.0, "grad_norm_clip": 1.0}


def _paper(task: Task) -> dict[str, Any]:
    """Table 4 and Appendix B.1.1; the warmup is that of the authors' later VTAB configuration."""
    rates = {"learning_rate": 0.01, "decay_type": "cosine", "warmup_steps": 200}
    return {
        "total_steps": 2500,
        "model": {"image_size": 384},  # whatever the task
        "optimizer": {**SGD, **rates, "momentum_dtype": "bfloat16"},
    }


def _bit(task: Task) -> dict[str, Any]:
    """The BiT-HyperRule for fewer than 20 000 images (arXiv 1912.11370, 3.3); no MixUp there."""
    rates = {"learning_rate": 0.003, "decay_type": "staircase", "warmup_steps": 100}
    return {
        "total_steps": 500,
        "model": {"image_size": 128 if task.small else 384},
        "optimizer": {**SGD, **rates, "grad_norm_clip": None},
    }


SETTINGS = {"paper": _paper, "bit": _bit}


def task_config(
    name: str,
    setting: str,
    weights: str | os.PathLike,
    *,
    workdir: str | os.PathLike,
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The fields of the `Config` that fine-tunes `weights` on a task, as its YAML file has them.

    `data` are fields of `DataConfig`, such as data_dir; `changes` go before all that the setting
    says. ValueError for an unknown task or setting.
    """
    _check(name, TASKS, "task")
    _check(setting, SETTINGS, "setting")
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
    fields["model"] |= {**architecture(weights), "weights": os.fspath(weights)}
    fields = _merged(fields, changes or {})
    once = {"eval_every": fields["total_steps"], "checkpoint_every": 500}
    return {**once, **fields}


def architecture(path: str | os.PathLike) -> dict[str, Any]:
    """The fields of `ModelConfig` that a Vision Transformer's checkpoint tells by itself."""
    with weight_file.open_weight_file(path, None) as file:
        found = file.infer()
    if "hidden_size" not in found or found.get("resnet_layers") is not None:
        return {}  # a ResNet or a hybrid: `model.variant` is asked of the user
    plain = lambda value: list(value) if isinstance(value, tuple) else value
    return {"variant": None, **{key: plain(found[key]) for key in SIZES if key in found}}


def write_config(fields: Mapping[str, Any], path: str | os.PathLike) -> None:
    """Writes a task's configuration; ValueError where there is another one already."""
    import yaml

    text, path = yaml.safe_dump(dict(fields), sort_keys=False), pathlib.Path(path)
    if path.exists() and path.read_text() != text:
        raise ValueError(
            f"{os.fspath(path)!r} is of another setting or checkpoint. Give another --out"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def accuracy_of(folder: str | os.PathLike, total_steps: int) -> float | None:
    """The test accuracy of a run that has come to its end; None of any other."""
    folder = pathlib.Path(folder)
    if not (folder / "model.keras").is_file():
        return None
    last = json.loads((folder / "metrics.json").read_text())[-1]
    return last["val_accuracy"] if last["step"] == total_steps else None


def means(accuracies: Mapping[str, float]) -> list[tuple[str, int, float]]:
    """Name, number of tasks and mean accuracy of each group of tasks, and of all tasks last."""
    rows = []
    for group in GROUPS:
        found = [value for name, value in accuracies.items() if TASKS[name].group == group]
        if found:
            rows.append((group, len(found), sum(found) / len(found)))
    return [*rows, ("all", len(accuracies), sum(accuracies.values()) / len(accuracies))]


def tables(accuracies: Mapping[str, float]) -> tuple[str, str]:
    """The results as CSV, and as a table in Markdown, in per cent."""
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
    """`changes` over `fields`, mapping by mapping."""
    merged = dict(fields)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _check(name, known, kind):
    if name not in known:
        raise ValueError(
            f"`{kind}` must be one of {', '.join(map(repr, known))}. Received: {kind}={name!r}"
        )
