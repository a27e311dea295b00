"""What the names of the studies stand for at the scale of the digits."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import keras

from vit_keras import runs
from vit_keras.config import AugmentConfig, Config, DataConfig
from vit_keras.reproduce import digits_tables
from vit_keras.reproduce.lab import Trained, changed, read

# Fields of `model` of each model; a ViT is its letter and its patch in pixels of 16.
SIZES = {"b": (32, 2, 2), "B": (48, 4, 4), "L": (64, 6, 4)}  # width, layers, heads
BIT = {"BiT-R8": (1, 1), "BiT-R14": (2, 2), "BiT-R26": (3, 4)}
UPSTREAMS = {"25": 25, "80": 80, "250": 250, "836": digits_tables.UPSTREAM_IMAGES}
STEPS, TRANSFER_STEPS = 400, 100
CLASSES = {"ten digits": ("ten", 100), "unseen digits": ("unseen", 30)}  # table, images trained on


def vit(name: str) -> dict[str, Any]:
    """Fields of `model` of "ViT-B/4"."""
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
    """Fields of `model` of "BiT-R14": two stages of a ResNet of half the width."""
    return {"variant": "R50x1", "resnet_layers": BIT[name], "resnet_width": 0.5, **NO_SIZES}


def hybrid(name: str) -> dict[str, Any]:
    """Fields of `model` of "Hybrid-B/4": the root and a unit of a ResNet, then the transformer."""
    sizes = {**vit(name.replace("Hybrid", "ViT")), "patch_size": 1}
    return {**sizes, "variant": "R26+S/32", "resnet_layers": (1,), "resnet_width": 0.5}


NO_SIZES = dict.fromkeys(("patch_size", "hidden_size", "num_layers", "num_heads", "mlp_dim"))
KINDS = {"ViT": vit, "BiT": bit, "Hybrid": hybrid}


class Digits:
    """The studies on the digits: minutes on two cores."""

    scale = "digits"
    # Few-shot evaluation has 2^10 for some 5000 images and 768 features: as much for 50 and 48.
    l2 = 1.0

    def __init__(self, folder: pathlib.Path, steps: int | None = None):
        self.folder, self.recipe = folder, "digits"
        self.steps, self.transfer_steps = steps or STEPS, min(steps or STEPS, TRANSFER_STEPS)

    def updates(self, factor: float) -> dict[str, int]:
        """The change of a recipe that trains `factor` times as long as the others."""
        return _once(round(factor * self.steps))

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Nothing: the digits come with scikit-learn."""

    @functools.cached_property
    def tables(self) -> dict[str, str]:
        """What `dataset` calls each table of `digits_tables`."""
        return digits_tables.write_tables(self.folder / "data")

    def base(self, model: str, steps: int) -> Config:
        """The main job's recipe for `model`, without augmentation and smoothing."""
        fields = KINDS[model.split("-")[0]](model)
        changes = {f"model.{name}": value for name, value in fields.items()}
        plain = {"augment": AugmentConfig(), "label_smoothing": 0.0}
        return changed(read(self.recipe), {**changes, **plain, **_once(steps)})

    def pretraining(self, model: str, upstream: str, changes: Mapping[str, Any]) -> Config:
        """Table 3 in small: `upstream` is one of `UPSTREAMS`."""
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
        return changed(self.base(model, steps), {**recipe, **changes})

    def transfer(self, trained: Trained, task: str) -> Config:
        """Table 4 in small: SGD with momentum, one learning rate."""
        table, images = CLASSES[task]
        steps = self.transfer_steps
        return changed(
            trained.config,
            {
                **_once(steps),
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

    def inspected(self, lab) -> tuple[keras.Model, str, DataConfig]:
        """The main job's model of 6 layers and 64 patches, its data set and where that lies."""
        recipe = read(self.recipe)
        sizes = {"model.image_size": 32, "model.hidden_size": 48, "model.num_layers": 6}
        trained = lab.train(changed(recipe, {"name": "inspected", **self.updates(1.5), **sizes}))
        model, _ = runs.open_source(trained.folder)
        return model, recipe.dataset, recipe.data

    def few_shot_data(self) -> tuple[str, DataConfig]:
        """The ten digits, of which each class has 25 training images that no model has seen."""
        return self.tables["ten"], DataConfig()


def _once(steps):
    """A run of so many updates that is judged at its end."""
    return dict.fromkeys(("total_steps", "eval_every", "checkpoint_every"), steps)
