"""What the names in the studies stand for at the scale of scikit-learn's digits.

Of the 1437 training digits, 25 of each class are set aside for the transfer tasks. Those of the
classes 0 to 6 that remain are for pre-training. The 360 test digits evaluate both.
"""

import csv
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from PIL import Image

import vit_keras
from studies.lab import Trained, read_recipe, replace_fields
from vit_keras import data
from vit_keras.config import AugmentConfig, Config, DataConfig
from vit_keras.support.files import replacing_folder

POOL = 25  # images of each class that are set aside for the tasks
SEEN, UNSEEN = range(7), range(7, 10)  # classes of pre-training, and the others
TABLES = {  # classes, and whether the training images are those set aside for the tasks
    "upstream": (SEEN, False),
    "ten": (range(10), True),
    "unseen": (UNSEEN, True),
}
UPSTREAM_IMAGES = 836  # training images of the table "upstream"
# "ViT-B/4" has the sizes of "B" and patches of 4 x 4 pixels; images have 16 x 16.
SIZES = {"b": (32, 2, 2), "B": (48, 4, 4), "L": (64, 6, 4)}  # width, layers, heads
BIT = {"BiT-R8": (1, 1), "BiT-R14": (2, 2), "BiT-R26": (3, 4)}  # units of each stage
UPSTREAMS = {"25": 25, "80": 80, "250": 250, "836": UPSTREAM_IMAGES}
STEPS, TRANSFER_STEPS, LONGER_STEPS = 400, 100, (600, 1200)
CLASSES = {"ten digits": ("ten", 100), "unseen digits": ("unseen", 30)}  # table, training images


def vit(name: str) -> dict[str, Any]:
    """The model fields of a ViT, such as "ViT-B/4"."""
    size, patch = name.removeprefix("ViT-").split("/")
    width, layers, heads = SIZES[size]
    return {
        "variant": None,
        "patch_size": int(patch),
        "hidden_size": width,
        "num_layers": layers,
        "num_heads": heads,
        "mlp_dim": 2 * width,
    }


def bit(name: str) -> dict[str, Any]:
    """The model fields of a ResNet of two stages and half the width, such as "BiT-R14"."""
    return {"variant": "R50x1", "resnet_layers": BIT[name], "resnet_width": 0.5, **NO_SIZES}


def hybrid(name: str) -> dict[str, Any]:
    """The model fields of a ViT on the root and one unit of a ResNet, such as "Hybrid-B/4"."""
    sizes = {**vit(name.replace("Hybrid", "ViT")), "patch_size": 1}
    return {**sizes, "variant": "R26+S/32", "resnet_layers": (1,), "resnet_width": 0.5}


NO_SIZES = dict.fromkeys(("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim"))
FAMILIES = {"ViT": vit, "BiT": bit, "Hybrid": hybrid}


class DigitsScale:
    """The studies on scikit-learn's digits, which take minutes on two cores.

    Args:
        folder: The folder of the studies; the digits are written to its subfolder `data`.
        steps: Updates of each pre-training run; by default 400, 600 of models to inspect, and 1200
            in Table 8. Those of 7 epochs in Figure 10 have half of them. Fine-tuning takes 100 at
            most.
    """

    name = "digits"
    # The published 2^10 is for about 5000 images and 768 features; 1 is as much for 50 and 48.
    l2 = 1.0

    def __init__(self, folder: pathlib.Path, steps: int | None = None):
        self.folder, self.recipe = folder, "digits"
        chosen = lambda usual: usual if steps is None else steps
        self.steps, self.inspected_steps, self.positions_steps = map(chosen, (STEPS, *LONGER_STEPS))
        self.transfer_steps = min(self.steps, TRANSFER_STEPS)
        self.half_steps = (self.inspected_steps + 1) // 2

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Checks nothing, because scikit-learn contains the digits."""

    @functools.cached_property
    def tables(self) -> dict[str, str]:
        """The tables of `write_tables`, as values for `dataset`."""
        return write_tables(self.folder / "data")

    def base(self, model: str, steps: int) -> Config:
        """The recipe "digits" for `model`, without augmentation and label smoothing."""
        fields = FAMILIES[model.split("-")[0]](model)
        changes = {f"model.{name}": value for name, value in fields.items()}
        plain = {"augment": AugmentConfig(), "label_smoothing": 0.0}
        return replace_fields(
            read_recipe(self.recipe), {**changes, **plain, **evaluated_once(steps)}
        )

    def pretraining(self, model: str, upstream: str, changes: Mapping[str, Any]) -> Config:
        """A small version of Table 3: pre-training `model` on `upstream`, one of `UPSTREAMS`."""
        steps = changes.get("total_steps", self.steps)
        recipe = {
            "name": f"{model}-on-{upstream}".replace("/", ""),
            "dataset": self.tables["upstream"],
            "data": DataConfig(train_split=f"train[:{UPSTREAMS[upstream]}]"),
            "optimizer.learning_rate": 2e-3,
            "optimizer.weight_decay": 0.1,
            "optimizer.decay_type": "linear",
            "optimizer.warmup_steps": steps // 10,
        }
        return replace_fields(self.base(model, steps), {**recipe, **changes})

    def transfer(self, trained: Trained, task: str) -> Config:
        """A small version of Table 4: fine-tuning by SGD with momentum at one learning rate."""
        table, images = CLASSES[task]
        steps = self.transfer_steps
        return replace_fields(
            trained.config,
            {
                **evaluated_once(steps),
                "name": f"{trained.config.name}-to-{table}",
                "dataset": self.tables[table],
                "data": DataConfig(train_split=f"train[:{images}]"),
                "workdir": None,
                "model.weights": str(trained.folder),
                "optimizer.name": "sgd",
                "optimizer.learning_rate": 0.03,
                "optimizer.weight_decay": 0.0,
                "optimizer.decay_type": "cosine",
                "optimizer.warmup_steps": steps // 10,
            },
        )

    def model_to_inspect(self, lab) -> tuple[keras.Model, str, DataConfig]:
        """The model to inspect, with 6 layers and 64 patches, and the data set of its images."""
        recipe = read_recipe(self.recipe)
        changes = {"name": "inspected", **evaluated_once(self.inspected_steps)}
        sizes = {"model.image_size": 32, "model.hidden_size": 48, "model.num_layers": 6}
        trained = lab.train(replace_fields(recipe, {**changes, **sizes}))
        model = vit_keras.open(trained.folder)
        return model, recipe.dataset, recipe.data

    def few_shot_data(self) -> tuple[str, DataConfig]:
        """The data of the few-shot evaluations: ten digits, with 25 unseen images of each class."""
        return self.tables["ten"], DataConfig()


def evaluated_once(steps: int) -> dict[str, int]:
    """The fields of a run of `steps` updates that is evaluated at its end alone."""
    return dict.fromkeys(("total_steps", "eval_every", "checkpoint_every"), steps)


def write_tables(folder: pathlib.Path) -> dict[str, str]:
    """Writes pictures and tables to `folder`, unless it exists, and returns their names.

    The rows of a table alternate between the classes, so that the first rows of a split have
    equally many of each class.

    Returns:
        `{table: name}`, where a name such as "table:FOLDER/ten.csv" is a value for `dataset`.
    """
    if not folder.is_dir():
        with replacing_folder(folder) as new:
            _write(new)
    return {name: f"table:{folder / name}.csv" for name in TABLES}


def _write(folder):
    splits = data.load("digits", channels=1).splits
    for split, images in splits.items():
        (folder / split).mkdir()
        for i in range(len(images)):
            Image.fromarray(images.read(i)[..., 0]).save(folder / split / f"{i:04}.png")
    for name, (classes, for_tasks) in TABLES.items():
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("path", "label", "split"))
            for split, images in splits.items():
                members = slice(None)
                if split == "train":
                    members = slice(POOL) if for_tasks else slice(POOL, None)
                for i in round_robin(images.labels, classes, members):
                    writer.writerow((f"{split}/{i:04}.png", images.labels[i], split))


def round_robin(labels: np.ndarray, classes, members: slice) -> list[int]:
    """Indices of images, alternating between `classes`; `members` selects from each class."""
    by_class = [np.flatnonzero(labels == label)[members] for label in classes]
    longest = max(map(len, by_class))
    return [int(indices[i]) for i in range(longest) for indices in by_class if i < len(indices)]
