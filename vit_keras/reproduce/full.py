"""What the names of the studies stand for at the paper's scale: the recipes in configs/."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from vit_keras import data, variants, weights
from vit_keras.config import Config, DataConfig
from vit_keras.evaluation.fewshot import L2
from vit_keras.reproduce.lab import Trained, changed, read
from vit_keras.reproduce.results import published

JFT, IMAGENET_21K, IMAGENET = "JFT-300M", "ImageNet-21k", "ImageNet"
RECIPES = {  # of pre-training on JFT-300M, by what a variant's name begins with; the longest wins
    "B/": "jft_b16",
    "b/": "jft_b16",
    "L/32": "jft_l32",
    "L/16": "jft_l16",
    "H/": "jft_h14",
    "R50x": "jft_r50",
    "R101x": "jft_r101",
    "R152x": "jft_r152",
    "R200x": "jft_r152",
    "R50+B": "jft_r50_b16",
    "R50+L/32": "jft_r50_l32",
    "R50+L/16": "jft_r50_l16",
}
ELSEWHERE = {  # of pre-training on other data
    IMAGENET_21K: {"B/": "imagenet21k_b16", "L/": "imagenet21k_l16", "H/": "imagenet21k_l16"},
    IMAGENET: {"B/": "imagenet_vit", "L/": "imagenet_vit", "H/": "imagenet_vit"},
}
TASKS = {
    "ImageNet": "imagenet",
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "Pets": "pets",
    "Flowers": "flowers",
}
HINTS = {
    JFT: "JFT-300M is not public: give a table or a folder of your own, --jft table:FILE or "
    "--jft folder:PATH",
    IMAGENET_21K: "ImageNet-21k is handed out at image-net.org: unpack its archives into one "
    "folder a class and give --imagenet21k folder:PATH",
}


class Full:
    """The studies as the paper ran them: months of a large machine."""

    scale = "full"
    l2 = L2

    def __init__(self, data_dir: str | None = None, **given: str | None):
        """`given` are data sets by their options, jft and imagenet21k; None for the recipes'."""
        self.data_dir = data_dir
        self.given = {JFT: given.get("jft"), IMAGENET_21K: given.get("imagenet21k")}

    def pretraining(self, model: str, upstream: str, changes: Mapping[str, Any]) -> Config:
        """Table 3; `upstream` is a data set, or "JFT-300M[9000000]" for the first of its images."""
        source, _, count = upstream.removesuffix("]").partition("[")
        variant = variant_of(model)
        config = read(f"pretrain/{_recipe(source, variant)}")
        config = self._located(config, source)
        fields = {"name": f"{variant}-{source}".replace("/", ""), "model.variant": variant}
        if config.model.representation_size is not None:
            fields["model.representation_size"] = variants.get(variant).feature_size
        if count:
            fields["data.train_split"] = f"{config.data.train_split}[:{count}]"
        return changed(config, {**fields, **changes})

    def transfer(self, trained: Trained, task: str) -> Config:
        """Table 4, the learning rate chosen by a sweep."""
        config = read(f"finetune/{TASKS[task]}")
        fields = {
            "name": f"{trained.config.name}-to-{TASKS[task]}",
            "sweep": True,
            "model.variant": trained.config.model.variant,
            "model.weights": str(trained.folder),
        }
        return changed(self._located(config, task), fields)

    def inspected(self, lab) -> tuple[keras.Model, str, DataConfig]:
        """The published ViT-L/16 of ImageNet-21k, and ImageNet's validation images."""
        model = weights.from_checkpoint(weights.resolve("L/16", "imagenet21k"))
        return model, *self.few_shot_data()

    def few_shot_data(self) -> tuple[str, DataConfig]:
        """ImageNet."""
        where = DataConfig(data_dir=self.data_dir, test_split="validation")
        return "tfds:imagenet2012", where

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Opens all data that a study needs, so that what lacks is said before months of work.

        Raises ValueError or FileNotFoundError as `data.load`, and how to come by the data.
        """
        for name in dict.fromkeys(upstream.partition("[")[0] for upstream in upstreams):
            recipe = next(iter(ELSEWHERE.get(name, RECIPES).values()))
            config = read(f"pretrain/{recipe}")
            self._open(self._located(config, name), HINTS.get(name))
        for name in tasks:
            config = read(f"finetune/{TASKS[name]}")
            self._open(self._located(config, name))

    def _located(self, config, name):
        dataset = self.given.get(name) or config.dataset
        return changed(config, {"dataset": dataset, "data.data_dir": self.data_dir})

    def _open(self, config, hint=None):
        try:
            data.load(config.dataset, config.model.channels, config.data)
        except (ValueError, OSError) as error:
            said = f"{str(error).rstrip('.')}. {hint}" if hint else str(error)
            raise type(error)(said) from error


def variant_of(model: str) -> str:
    """ "R50+B/16" for the tables' "R50+ViT-B/16", "L/16" for "ViT-L/16"."""
    return model.replace("ViT-", "").replace("BiT-", "")


def epochs_of(upstream: str, epochs: float, batch: int = 4096) -> dict[str, int]:
    """The change of a recipe that trains for `epochs`."""
    return {"total_steps": round(published("table3")["images"][upstream] * epochs / batch)}


def _recipe(upstream, variant):
    recipes = ELSEWHERE.get(upstream, RECIPES)
    fitting = [start for start in recipes if variant.startswith(start)]
    if not fitting:
        raise ValueError(
            f"Table 3 has no recipe of {variant} on {upstream}. It has those of {sorted(recipes)}"
        )
    return recipes[max(fitting, key=len)]
