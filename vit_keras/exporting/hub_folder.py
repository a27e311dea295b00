"""Writes a run as a folder for the Hub, with a model card, and uploads it in one commit."""

import dataclasses
import os
import pathlib
import shutil

import keras

from vit_keras import weights
from vit_keras.exporting.serving import thresholds_text
from vit_keras.models import class_names_of, preprocessing_of, task_of
from vit_keras.runs import Run
from vit_keras.support import extras
from vit_keras.support.files import HubAddress, check_new, parse_hf, replacing_folder
from vit_keras.support.tasks import figure_name, figure_text
from vit_keras.weights import save
from vit_keras.weights.hub import reason_of

MODEL, CARD = "model.keras", "README.md"
# The metrics on the card.
FIGURES = ("accuracy", "ece", "average_precision", "r2", "mae", "images")
# The Hub's terms for each kind of task: its category, if any, and a tag.
HUB_TASKS = {
    "classes": ("image-classification", None),
    "labels": ("image-classification", "multi-label-image-classification"),
    "numbers": (None, "image-regression"),
}
SCORES = {"labels": "the probability of one label", "numbers": "one of the numbers"}
FIELDS = ("epochs", "total_steps", "batch", "seed", "loss", "label_smoothing")


def write_hub_folder(
    trained: Run, folder: str | os.PathLike, repository: str, license: str | None = None
) -> list[str]:
    """Writes the folder that `vit-keras push` uploads.

    Args:
        trained: A complete run.
        folder: The folder to write, new or empty.
        repository: `USER/NAME` on the Hub, for the card.
        license: The Hub's name for the license, such as "apache-2.0"; None states no license.

    Returns:
        The names of the files.

    Raises:
        ValueError: The folder is not empty, or transformers cannot represent the model.

    Example:
        ```python
        write_hub_folder(runs.find_run("runs/pets"), "pets", "ann/pets", license="apache-2.0")
        ```
    """
    folder = pathlib.Path(folder)
    check_new(folder)
    model = weights.open(trained.model_file)
    with replacing_folder(folder) as new:
        save(model, new, format="huggingface")
        shutil.copyfile(trained.model_file, new / MODEL)
        (new / CARD).write_text(card(model, trained, repository, license), encoding="utf-8")
    return sorted(path.name for path in folder.iterdir())


def card(model: keras.Model, trained: Run, repository: str, license: str | None = None) -> str:
    """Returns the page of a model on the Hub: how to load it, and the run's metrics."""
    report = trained.report
    figures = [key for key in FIGURES if isinstance(report.get(key), (int, float))]
    shown = {figure_name(key): figure_text(key, report[key]) for key in figures}
    if chose := report.get("images_chose"):
        shown["chosen by these images"] = chose
    task, address = task_of(model), f"hf://{repository}"
    height, width, channels = model.input_shape[1:]
    score = f"\n\nEach score of `classify` is {SCORES[task.kind]}." if task.kind in SCORES else ""
    sections = [
        f"---\n{_metadata(task.kind, license)}\n---",
        f"# {repository.partition('/')[2]}",
        f"A Vision Transformer for images of {height}x{width} pixels and {channels} channels, with "
        f"{model.count_params():,} parameters, trained by vit_keras on {trained.config.dataset}.",
        "## Use\n\n```python\nimport vit_keras\n\n"
        f'model = vit_keras.open("{address}/{MODEL}")\n```\n\n'
        f"On the command line: `vit-keras predict {address}/{MODEL} photos`. With transformers:\n\n"
        "```python\nfrom transformers import pipeline\n\n"
        f'classify = pipeline("image-classification", model="{repository}")\n```{score}',
        _table("Held-out numbers", shown),
        _table("Training", _training(trained)),
        _table("Preprocessing", dataclasses.asdict(preprocessing_of(model))),
    ]
    if names := class_names_of(model):
        what = task.row.several
        listed = f"{len(names)} {what}: {', '.join(map(str, names))}.{thresholds_text(model)}"
        sections.append(f"## {what.capitalize()}\n\n{listed}")
    return "\n\n".join(filter(None, sections)) + "\n"


def _metadata(kind, license) -> str:
    """Returns the fields, as YAML, that the Hub reads for search."""
    hub, (category, tag) = extras.require("huggingface_hub"), HUB_TASKS[kind]
    return hub.ModelCardData(
        license=license,
        library_name="transformers",
        pipeline_tag=category,
        tags=list(filter(None, ("vit_keras", "keras", "vit", tag))),
    ).to_yaml()


def _training(trained):
    config, environment = trained.config, trained.environment
    return {
        "recipe": config.name,
        "data set": config.dataset,
        "model": config.model.summary(),
        "initial weights": config.model.weights or None,
        "learning rate": config.optimizer.learning_rate,
        **{name: getattr(config, name) for name in FIELDS},
        "backend": environment["backend"],
        "Keras": environment.get("keras"),
    }


def _table(title, rows):
    texts = {name: list(x) if isinstance(x, tuple) else x for name, x in rows.items()}
    lines = [f"| {name} | {x} |" for name, x in texts.items() if x not in (None, [])]
    return "\n".join([f"## {title}\n", "| | |", "|---|---|", *lines]) if lines else ""


def repository_of(address: str) -> str:
    """Returns `USER/NAME` from `hf://USER/NAME`.

    Raises:
        ValueError: The address is not valid, or names a revision or a file.
    """
    target = parse_hf(address)
    if target != HubAddress(target.repository):
        raise ValueError(
            f"An upload needs hf://USER/NAME, without a revision or a file. Received: {address!r}"
        )
    return target.repository


def check_token() -> None:
    """Checks that the Hub's package is installed and has a token.

    Raises:
        PermissionError: There is no token.
        ImportError: The Hub's package is not installed.
    """
    if not extras.require("huggingface_hub").get_token():
        raise PermissionError("An upload needs a write token. Run `hf auth login`, or set HF_TOKEN")


def upload(folder: str | os.PathLike, repository: str, private: bool = False) -> str:
    """Uploads a folder to a repository in one commit; creates the repository if necessary.

    Args:
        folder: The folder.
        repository: `USER/NAME`.
        private: Whether the repository must be private; a public one is refused.

    Returns:
        The URL of the commit.

    Raises:
        ValueError: `private` is true, but the repository is public.
        ConnectionError: The Hub cannot be reached, or did not accept the commit.

    Example:
        ```python
        upload("pets", "ann/pets", private=True)
        ```
    """
    hub = extras.require("huggingface_hub")
    errors = extras.require("huggingface_hub.errors")
    api = hub.HfApi()
    try:
        if private and api.repo_exists(repository) and not api.model_info(repository).private:
            raise ValueError(
                f"hf://{repository} is public, so nothing was uploaded. Make it private in its "
                "settings, or give another name"
            )
        api.create_repo(repository, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Upload a run of vit_keras"
        )
    except errors.HTTPError as error:
        message = f"hf://{repository} did not accept the upload: {reason_of(error)}"
        raise ConnectionError(message) from error
    return done.commit_url
