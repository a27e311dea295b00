"""Where the studies train: what was finished is taken, what was begun goes on."""

import contextlib
import dataclasses
import functools
import json
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vit_keras import data, runs
from vit_keras.config import Config, read_config
from vit_keras.evaluation import evaluate_few_shot, open_predictor
from vit_keras.experiments import rate_sweep, training_run
from vit_keras.files import write_text
from vit_keras.reproduce.results import Mean

SHOTS = 5  # of the few-shot evaluations


@dataclasses.dataclass(frozen=True)
class Trained:
    """A run that has come to its end: its `folder`, its `config` and the `report` on it."""

    folder: pathlib.Path
    config: Config
    report: Mapping[str, Any]

    @property
    def metrics(self) -> list[dict[str, float]]:
        """What the run has recorded, a row an evaluation."""
        return json.loads((self.folder / "metrics.json").read_text())

    @property
    def percent(self) -> float:
        """Top-1 accuracy on the held-out images, %."""
        return 100 * self.report["accuracy"]


class Lab:
    """The runs of the studies, in `folder`/runs, one folder a configuration.

    `setting` says what the names of models, data sets and tasks stand for. What the many short runs
    on the digits print goes to runs.log.
    """

    def __init__(self, folder: pathlib.Path, setting):
        self.folder, self.setting, self.trained = pathlib.Path(folder), setting, 0

    @property
    def scale(self) -> str:
        """ "digits" or "full"."""
        return self.setting.scale

    def require(self, upstreams: Sequence[str], tasks: Sequence[str] = ()) -> None:
        """Raises an error, as `data.load`, unless all data of a study are there."""
        self.setting.require(list(upstreams), list(tasks))

    def train(self, config: Config) -> Trained:
        """The run of `config`: trained now, unless it has come to its end before."""
        folder = self.folder / runs.default_workdir(config)
        config = dataclasses.replace(config, workdir=str(folder))
        report = folder / "report.json"  # the last file that a run writes
        if not report.is_file():
            begun = time.monotonic()
            with self._log():
                training_run.train_run(config)
            self.trained += 1
            seconds = time.monotonic() - begun
            print(f"  trained {folder.name} in {seconds:.0f} s", flush=True)
        return Trained(folder, config, json.loads(report.read_text()))

    def pretrain(self, model: str, upstream: str, **changes) -> Trained:
        """`model` trained on `upstream`; `changes` are fields such as "optimizer.name"."""
        return self.train(self.setting.pretraining(model, upstream, changes))

    def finetune(self, trained: Trained, task: str, seeds: Sequence[int] = (0,)) -> Mean:
        """Accuracy (%) of a pre-trained run on the held-out images of `task`, once a seed.

        Where the task has a sweep, its grid gives the learning rates and the seeds.
        """
        config = self.setting.transfer(trained, task)
        if config.sweep:
            return Mean.of([100 * accuracy for accuracy in self._sweep(config)])
        found = [self.train(changed(config, {"seed": seed})) for seed in seeds]
        return Mean.of([run.percent for run in found])

    def _sweep(self, config):
        """The test accuracies of a sweep, one a seed of its grid."""
        folder = self.folder / runs.default_workdir(config)
        if not (folder / "sweep.json").is_file():
            rate_sweep.sweep(dataclasses.replace(config, workdir=str(folder)))
        return list(json.loads((folder / "sweep.json").read_text())["test"].values())

    def few_shot(self, trained: Trained) -> Mean:
        """5-shot linear accuracy (%) of a run's features, over three draws of the shots."""
        (name, config), l2 = self.setting.few_shot_data(), self.setting.l2
        file = trained.folder / f"fewshot-{SHOTS}-l2-{l2:g}.json"
        if not file.is_file():
            predictor, _ = open_predictor(str(trained.folder))
            found = data.load(name, predictor.input_shape[-1], config)
            splits = config.train_split, config.test_split
            how = {"batch": 256, "splits": splits, "shots": (SHOTS,), "l2": (l2,)}
            rows = evaluate_few_shot(predictor, found, **how)
            write_text(file, json.dumps(rows, indent=1))
        row = json.loads(file.read_text())[0]
        return Mean.of([100 * accuracy for accuracy in row["accuracies"]])

    @contextlib.contextmanager
    def _log(self):
        if self.scale == "full":
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (
            open(self.folder / "runs.log", "a") as file,
            contextlib.redirect_stdout(file),
            contextlib.redirect_stderr(file),
        ):
            yield


read = functools.cache(read_config)  # a study reads a recipe for each of its runs


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """`config` with other values of fields such as "seed" or "optimizer.learning_rate".

    Raises TypeError for a field that there is not.
    """
    rooms = {}
    for name, value in changes.items():
        room, _, field = name.rpartition(".")
        rooms.setdefault(room, {})[field] = value
    fields = rooms.pop("", {})
    for room, values in rooms.items():
        fields[room] = dataclasses.replace(getattr(config, room), **values)
    return dataclasses.replace(config, **fields)
