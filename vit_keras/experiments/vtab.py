"""VTAB-1k (arXiv 1910.04867): fine-tunes a checkpoint on 19 tasks; the score is the mean."""

import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from vit_keras.config import Config, merge_configs
from vit_keras.data.tfds import GROUPS, TASKS
from vit_keras.experiments import training_run
from vit_keras.runs import read_rows
from vit_keras.support.checks import check_choice
from vit_keras.support.files import claimed, write_text

SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.9, "weight_decay": 0.0}
COSINE = {"learning_rate": 0.01, "decay_type": "cosine", "warmup_steps": 200}
STAIRS = {"learning_rate": 0.003, "decay_type": "staircase", "warmup_steps": 100}
SETTINGS = {  # the number of updates, and the optimizer
    # Table 4 and Appendix B.1.1, with the authors' later warmup
    "paper": (2500, SGD | COSINE | {"momentum_dtype": "bfloat16", "grad_norm_clip": 1.0}),
    # BiT-HyperRule for fewer than 20 000 images (arXiv 1912.11370), without MixUp
    "bit": (500, SGD | STAIRS | {"grad_norm_clip": None}),
}


def fine_tune_tasks(
    weights: str | os.PathLike,
    out: str | os.PathLike,
    *,
    tasks: Sequence[str] | None = None,
    setting: str = "paper",
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> dict[str, float]:
    """Fine-tunes a checkpoint on tasks of VTAB-1k, and writes the tables after each task.

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
    sources: dict[str, Any] = {"weights": os.fspath(weights)}
    sources |= {"data": data or {}, "changes": changes or {}}
    configs = [task_config(name, setting, out / name, **sources) for name in tasks or TASKS]
    with claimed(out, "VTAB-1k", "Wait until it ends, or give another --out"):
        settings = json.dumps({"setting": setting, **sources}, indent=1)
        if (file := out / "settings.json").exists() and file.read_text() != settings:
            raise ValueError(f"{file} belongs to another setting or checkpoint. Give another --out")
        write_text(file, settings)
        for name, config in zip(tasks or TASKS, configs):
            try:
                accuracies[name] = _accuracy(config)
            except (ImportError, OSError, FloatingPointError, ValueError) as error:
                print(f"{name}: no result: {error}", flush=True)
                failed.append(name)
                continue
            as_csv, as_markdown = tables(accuracies)
            write_text(out / "vtab.csv", as_csv)
            write_text(out / "vtab.md", as_markdown)
            print(f"{name}: {100 * accuracies[name]:.2f}%", flush=True)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(configs)} tasks have no result: {', '.join(failed)}. "
            "Run the same command again to continue with them"
        )
    return accuracies


def task_config(
    name: str,
    setting: str,
    workdir: str | os.PathLike,
    weights: str,
    data: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Config:
    """Returns the run that fine-tunes `weights` on a task.

    `data` holds fields of `DataConfig`, such as `data_dir`; `changes` replace fields of the
    setting. Raises ValueError for an unknown task or setting.
    """
    check_choice(name, TASKS, "task")
    check_choice(setting, SETTINGS, "setting")
    task, (updates, optimizer) = TASKS[name], SETTINGS[setting]
    size = 128 if setting == "bit" and task.small else 384
    fields = {
        "name": f"vtab-{name}",
        "dataset": f"vtab:{name}",
        "workdir": os.fspath(workdir),
        "batch": 512,
        "total_steps": updates,
        "eval_every": updates,
        "checkpoint_every": 500,
        "optimizer": optimizer,
        "model": {"weights": weights, "image_size": size},
        "data": {"train_split": "train", "test_split": "test", **(data or {})},
        "augment": {"crop": "bit" if task.crop else "resize", "flip": task.flip},
    }
    return merge_configs(fields, changes or {})


def _accuracy(config):
    """Returns a task's test accuracy; trains its run unless it is complete."""
    folder = pathlib.Path(config.workdir)
    rows = read_rows(folder) if (folder / "model.keras").is_file() else []
    if not rows or rows[-1]["step"] != config.total_steps:
        print(f"{folder.name}: training", flush=True)
        training_run.train_run(config)
        rows = read_rows(folder)
    return rows[-1]["val_accuracy"]


def means(accuracies: Mapping[str, float]) -> list[tuple[str, int, float]]:
    """Returns the name, task count and mean accuracy of each group of tasks, then of all tasks."""
    of = lambda group: [x for name, x in accuracies.items() if TASKS[name].group == group]
    groups = {group: of(group) for group in GROUPS} | {"all": [*accuracies.values()]}
    return [(group, len(x), sum(x) / len(x)) for group, x in groups.items() if x]


def tables(accuracies: Mapping[str, float]) -> tuple[str, str]:
    """Formats the results as CSV, and as a Markdown table in percent."""
    rows = [(name, TASKS[name].group, accuracies[name]) for name in TASKS if name in accuracies]
    rows += [(f"mean of {count}", group, mean) for group, count, mean in means(accuracies)]
    as_csv = [f"{name},{group},{value}" for name, group, value in rows]
    lines = ["| task | group | accuracy (%) |", "|---|---|--:|"]
    lines += [f"| {name} | {group} | {100 * value:.2f} |" for name, group, value in rows]
    return "\n".join(["task,group,accuracy", *as_csv, ""]), "\n".join([*lines, ""])
