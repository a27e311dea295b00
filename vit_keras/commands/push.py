"""Upload a run to the Hugging Face hub, with transformers' files and a card.

examples:
  vit-keras push runs/pets hf://ann/pets --license apache-2.0
  vit-keras push runs/pets hf://ann/pets --private
  vit-keras push runs/pets hf://ann/pets --out pets       # writes the folder, uploads nothing
"""

import dataclasses
import pathlib
import shutil
import tempfile

from vit_keras import models, weights
from vit_keras.commands import options as shared
from vit_keras.support import extras
from vit_keras.support.files import HubAddress, check_new, parse_hf, replacing_folder
from vit_keras.support.tasks import KINDS, figure_name, figure_text

# The metrics on the card.
FIGURES = (*(kind.metric for kind in KINDS.values()), "ece", "mae", "images")
# The Hub's terms for each kind of task: its category, if any, and a tag.
HUB_TASKS = {
    "classes": ("image-classification", None),
    "labels": ("image-classification", "multi-label-image-classification"),
    "numbers": (None, "image-regression"),
    "boxes": ("object-detection", None),
}
SCORES = {"labels": "the probability of one label", "numbers": "one of the numbers"}
FIELDS = ("epochs", "total_steps", "batch", "seed", "loss", "label_smoothing")


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("run", "RUN", "folder of a complete run")
    add("address", "ADDRESS", "hf://USER/NAME, created if necessary")
    add("--license", "NAME", "the hub's name of the license, such as apache-2.0 (none is stated)")
    flag("--private", "make a new repository visible to you alone")
    flag("--dry_run", "print the card, upload nothing")
    add("--out", "PATH", "write the folder here, and upload nothing", shared.folder)


def run(options: shared.Options) -> None:
    from vit_keras import runs

    target = parse_hf(options.address)
    if target != HubAddress(target.repository):
        raise ValueError(
            "An upload needs hf://USER/NAME, without a revision or a file. "
            f"Received: {options.address!r}"
        )
    is_local = options.out or options.dry_run
    if not (is_local or extras.require("huggingface_hub").get_token()):
        raise PermissionError("An upload needs a write token. Run `hf auth login`, or set HF_TOKEN")
    trained = runs.find_run(options.run)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.out or pathlib.Path(temporary) / "model")
        check_new(folder)
        model = weights.open(trained.model_file)
        with replacing_folder(folder) as new:
            weights.save(model, new, format="huggingface")  # or refuses the model
            page = card(model, trained, target.repository, options.license)
            shutil.copyfile(trained.model_file, new / "model.keras")
            (new / "README.md").write_text(page, encoding="utf-8")
        if options.dry_run:
            print(page)
        if is_local:
            names = ", ".join(sorted(path.name for path in folder.iterdir()))
            print(f"{options.out or options.address}: {names}; nothing was uploaded")
            return
        print(upload(folder, target.repository, options.private))


def card(model, trained, repository: str, license: str | None) -> str:
    """Returns the page of a run's model on the Hub: how to load it, and the run's metrics."""
    report = trained.report
    figures = [key for key in FIGURES if isinstance(report.get(key), (int, float))]
    shown = {figure_name(key): figure_text(key, report[key]) for key in figures}
    if chose := report.get("images_chose"):
        shown["chosen by these images"] = chose
    task, address = models.task_of(model), f"hf://{repository}/model.keras"
    height, width, channels = model.input_shape[1:]
    category = HUB_TASKS[task.kind][0] or "image-classification"
    call = "detect" if task.kind == "boxes" else "classify"
    score = f"\n\nEach score of `classify` is {SCORES[task.kind]}." if task.kind in SCORES else ""
    sections = [
        f"---\n{_metadata(task.kind, license)}\n---",
        f"# {repository.partition('/')[2]}",
        f"A Vision Transformer for images of {height}x{width} pixels and {channels} channels, with "
        f"{model.count_params():,} parameters, trained by vit_keras on {trained.config.dataset}.",
        "## Use\n\n```python\nimport vit_keras\n\n"
        f'model = vit_keras.open("{address}")\n```\n\n'
        f"On the command line: `vit-keras predict {address} photos`. With transformers:\n\n"
        "```python\nfrom transformers import pipeline\n\n"
        f'{call} = pipeline("{category}", model="{repository}")\n```{score}',
        _table("Held-out numbers", shown),
        _table("Training", _training(trained)),
        _table("Preprocessing", dataclasses.asdict(models.preprocessing_of(model))),
    ]
    if names := models.class_names_of(model):
        what = task.row.several
        listed = f"{len(names)} {what}: {', '.join(map(str, names))}."
        if task.kind == "labels":
            least = ", ".join(f"{name} {task.threshold(k):.4g}" for k, name in enumerate(names))
            listed += f" A label counts as present at or above this probability: {least}."
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


def upload(folder: pathlib.Path, repository: str, private: bool) -> str:
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
    """
    from vit_keras.weights.hub import reason_of

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
