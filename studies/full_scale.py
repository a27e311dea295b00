"""What the names in the studies stand for at the paper's scale: the recipes of the paper."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras

import vit_keras
from studies.lab import Trained, read_recipe, replace_fields
from studies.results import published
from vit_keras import data, variants, weights
from vit_keras.config import Config, DataConfig
from vit_keras.evaluation.probes import L2

JFT, IMAGENET_21K, IMAGENET = "JFT-300M", "ImageNet-21k", "ImageNet"
RECIPES = {  # for JFT-300M, by the beginning of the variant's name; the longest match counts
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
OTHER_RECIPES = {  # for other data
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
    JFT: "JFT-300M is not public. Give a data set of your own instead: --jft table:FILE or "
    "--jft folder:PATH",
    IMAGENET_21K: "ImageNet-21k is available at image-net.org. Unpack its archives into one "
    "folder for each class and give --imagenet21k folder:PATH",
}


class FullScale:
    """The studies as the paper ran them, which takes months on a large machine.

    Args:
        data_dir: The folder of TensorFlow Datasets.
        jft: The data set to take as JFT-300M, such as "folder:PATH"; None for the recipe's.
        imagenet21k: The data set to take as ImageNet-21k; None for the recipe's.
    """

    name = "full"
    l2 = L2

    def __init__(
        self, data_dir: str | None = None, jft: str | None = None, imagenet21k: str | None = None
    ):
        self.data_dir = data_dir
        self.datasets = {JFT: jft, IMAGENET_21K: imagenet21k}

    def pretraining(self, model: str, upstream: str, changes: Mapping[str, Any]) -> Config:
        """The recipe of Table 3 for pre-training `model` on `upstream`.

        Args:
            model: a name of the paper's tables, such as "ViT-B/16".
            upstream: a data set, such as "JFT-300M", or "JFT-300M[9000000]" for its first images.
            changes: Values of fields that differ from the recipe.

        Raises:
            ValueError: Table 3 has no recipe for this model on this data.
        """
        source, _, count = upstream.removesuffix("]").partition("[")
        variant = variant_of(model)
        config = read_recipe(f"pretrain/{_recipe(source, variant)}")
        config = self._with_data(config, source)
        name = f"{variant}-{source}".replace("/", "")
        fields: dict[str, Any] = {"name": name, "model.variant": variant}
        if config.model.representation_size is not None:
            fields["model.representation_size"] = variants.get(variant).feature_size
        if count:
            fields["data.train_split"] = f"{config.data.train_split}[:{count}]"
        return replace_fields(config, {**fields, **changes})

    def transfer(self, trained: Trained, task: str) -> Config:
        """The recipe of Table 4 for fine-tuning on `task`; a sweep chooses the learning rate."""
        config = read_recipe(f"finetune/{TASKS[task]}")
        fields = {
            "name": f"{trained.config.name}-to-{TASKS[task]}",
            "sweep": True,
            "model.variant": trained.config.model.variant,
            "model.weights": str(trained.folder),
        }
        return replace_fields(self._with_data(config, task), fields)

    def model_to_inspect(self, lab) -> tuple[keras.Model, str, DataConfig]:
        """The published ViT-L/16 of ImageNet-21k, and ImageNet's validation images."""
        model = vit_keras.open(weights.resolve("L/16", "imagenet21k"))
        return model, *self.few_shot_data()

    def few_shot_data(self) -> tuple[str, DataConfig]:
        """The data of the few-shot evaluations: ImageNet."""
        config = DataConfig(data_dir=self.data_dir, test_split="validation")
        return "tfds:imagenet2012", config

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Opens all data that a study needs, so that missing data are reported before training.

        Raises:
            ValueError, FileNotFoundError: As `data.load` raises them, with a hint where to get the
                data.
        """
        for name in dict.fromkeys(upstream.partition("[")[0] for upstream in upstreams):
            recipe = next(iter(OTHER_RECIPES.get(name, RECIPES).values()))
            config = read_recipe(f"pretrain/{recipe}")
            self._open(self._with_data(config, name), HINTS.get(name))
        for name in tasks:
            config = read_recipe(f"finetune/{TASKS[name]}")
            self._open(self._with_data(config, name))

    def _with_data(self, config, name):
        dataset = self.datasets.get(name) or config.dataset
        return replace_fields(config, {"dataset": dataset, "data.data_dir": self.data_dir})

    def _open(self, config, hint=None):
        try:
            data.load(config.dataset, config.model.channels, config.data)
        except (ValueError, OSError) as error:
            message = f"{str(error).rstrip('.')}. {hint}" if hint else str(error)
            raise type(error)(message) from error


def variant_of(model: str) -> str:
    """The variant of a model in the paper's tables: "R50+B/16" for "R50+ViT-B/16"."""
    return model.replace("ViT-", "").replace("BiT-", "")


def epochs_of(upstream: str, epochs: float, batch: int = 4096) -> dict[str, int]:
    """The change to a recipe for training `epochs` epochs on the data set `upstream`."""
    return {"total_steps": round(published("table3")["images"][upstream] * epochs / batch)}


def _recipe(upstream, variant):
    recipes = OTHER_RECIPES.get(upstream, RECIPES)
    fitting = [start for start in recipes if variant.startswith(start)]
    if not fitting:
        raise ValueError(
            f"A model must have a recipe in Table 3. For {upstream} there are recipes of models "
            f"whose names start with {', '.join(sorted(recipes))}. Received: {variant}"
        )
    return recipes[max(fitting, key=len)]
