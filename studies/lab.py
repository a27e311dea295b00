"""The runs that the studies share: finished ones are reused, interrupted ones continue."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import keras

from studies.results import Mean
from vit_keras import data, inspection, models, runs
from vit_keras.config import Config, ModelConfig, read_config
from vit_keras.evaluation import evaluate_few_shot, open_predictor
from vit_keras.experiments import sweeps, training_run
from vit_keras.runs import read_rows
from vit_keras.support.checks import read_json
from vit_keras.support.files import write_text

AGAIN = "Delete it: the same command makes it again"
SHOTS = 5  # images of each class in the few-shot evaluations


class Sweep(TypedDict):
    """What is read of a sweep's numbers: the accuracy on the test split by seed."""

    test: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished training run.

    Attributes:
        folder: The folder of the run.
        config: Its configuration.
        report: Its evaluation on the held-out images, as in report.json.
    """

    folder: pathlib.Path
    config: Config
    report: Mapping[str, Any]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """The recorded metrics, one row for each evaluation during training."""
        return read_rows(self.folder, 1)

    @property
    def accuracy_percent(self) -> float:
        """The top-1 accuracy on the held-out images, in percent."""
        return 100 * self.report["accuracy"]


class Lab:
    """Trains what the studies need and keeps it: one folder in FOLDER/runs for each configuration.

    Digits runs are short and many, so their output goes to FOLDER/runs.log.

    Args:
        folder: The folder of all runs and results.
        scale: What the names of models, data sets and tasks stand for: a `DigitsScale` or a
            `FullScale`.
    """

    def __init__(self, folder: pathlib.Path, scale):
        self.folder, self.scale = pathlib.Path(folder), scale

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Checks that all data of a study exist, before anything is trained.

        Raises:
            ValueError, FileNotFoundError: As `data.load` raises them, for data that do not exist.
        """
        self.scale.require(list(upstreams), list(tasks))

    def setup(self, texts: Mapping[str, str]) -> str:
        """How a study differs from the paper at the lab's scale.

        Args:
            texts: A text for each scale, with attributes of the scale in braces: "{steps} updates".
        """
        return texts[self.scale.name].format_map(vars(self.scale))

    def train(self, config: Config) -> Trained:
        """Trains the run of `config`, continues it, or returns it if it is finished."""
        folder = self.folder / runs.default_workdir(config)
        config = dataclasses.replace(config, workdir=str(folder))
        report = folder / "report.json"  # a run writes this file last
        if not report.is_file():
            start = time.monotonic()
            with self._log():
                training_run.train_run(config)
            seconds = time.monotonic() - start
            print(f"  trained {folder.name} in {seconds:.0f} s", flush=True)
        return Trained(folder, config, read_json(report, remedy=AGAIN))

    def pretrain(self, model: str, upstream: str, **changes) -> Trained:
        """Trains `model` on the data set `upstream`.

        Args:
            model: a name of the scale, such as "ViT-B/4".
            upstream: a data set of the scale, such as "836" or "JFT-300M".
            changes: Values of fields, such as `**{"optimizer.name": "sgd"}`.
        """
        return self.train(self.scale.pretraining(model, upstream, changes))

    def finetune(self, trained: Trained, task: str, seeds: Sequence[int] = (0,)) -> Mean:
        """Fine-tunes a pre-trained run on `task`, once for each seed.

        Where the task has a sweep, the sweep's grid determines learning rates and seeds.

        Returns:
            The accuracy (%) on the held-out images.
        """
        config = self.scale.transfer(trained, task)
        if config.sweep:
            return Mean.of([100 * accuracy for accuracy in self._sweep(config)])
        tuned = [self.train(replace_fields(config, {"seed": seed})) for seed in seeds]
        return Mean.of([run.accuracy_percent for run in tuned])

    def _sweep(self, config):
        """The test accuracies of a sweep, one for each seed of its grid."""
        folder = self.folder / runs.default_workdir(config)
        if not (folder / "sweep.json").is_file():
            sweeps.sweep(dataclasses.replace(config, workdir=str(folder)))
        return list(read_json(folder / "sweep.json", Sweep, AGAIN)["test"].values())

    def few_shot(self, trained: Trained) -> Mean:
        """The 5-shot linear accuracy (%) of a run's features, over three draws of the shots."""
        (name, config), l2 = self.scale.few_shot_data(), self.scale.l2
        file = trained.folder / f"fewshot-{SHOTS}-l2-{l2:g}.json"
        if not file.is_file():
            predictor, _ = open_predictor(str(trained.folder))
            dataset = data.load(name, predictor.input_shape[-1], config)
            splits = config.train_split, config.test_split
            rows = evaluate_few_shot(
                predictor, dataset, batch=256, splits=splits, shots=(SHOTS,), l2=(l2,)
            )
            write_text(file, json.dumps(rows, indent=1))
        row = read_json(file, list[dict], AGAIN)[0]
        return Mean.of([100 * accuracy for accuracy in row["accuracies"]])

    @contextlib.contextmanager
    def _log(self):
        if self.scale.name == "full":
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            open(self.folder / "runs.log", "a") as file,
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            yield


read_recipe = functools.cache(read_config)  # a study reads the same recipe for each of its runs


def replace_fields(config: Config, changes: Mapping[str, Any]) -> Config:
    """Returns `config` with other values of some fields.

    Args:
        config: The configuration, which stays as it is.
        changes: `{field: value}` with fields such as "seed" or "optimizer.learning_rate".

    Raises:
        TypeError: There is no such field.
    """
    by_section: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        section, _, field = name.rpartition(".")
        by_section.setdefault(section, {})[field] = value
    fields = by_section.pop("", {})
    for section, values in by_section.items():
        fields[section] = dataclasses.replace(getattr(config, section), **values)
    return dataclasses.replace(config, **fields)


def pretraining_flops(trained) -> float:
    """The floating-point operations of all updates of a run, counted as the paper's Table 6 does.

    Args:
        trained: The run, a `Trained`.
    """
    config = trained.config
    model = _abstract_model(config.model, len(trained.report["classes"]))
    return 1e18 * inspection.training_exaflops(model, config.total_steps * config.batch)


@functools.cache
def _abstract_model(config: ModelConfig, num_classes: int) -> keras.Model:
    """The model of all runs that have this configuration, without the values of its weights."""
    arguments = {"num_classes": num_classes, "seed": 0}
    return inspection.abstract_model(lambda: models.from_model_config(config, **arguments))
