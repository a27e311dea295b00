"""A run."""

import dataclasses
from typing import Literal

from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.model import ModelConfig
from vit_keras.config.optimizer import OptimizerConfig
from vit_keras.config.pretext import PretextConfig


@dataclasses.dataclass(frozen=True)
class GridConfig:
    """What a sweep tries.

    Attributes:
        learning_rates: each is tried on a development split of the training images
        seeds: of the last runs, with the best learning rate, on all training images
        dev_percent: of the training images, held out to choose by: 10 for Pets and Flowers, 2 for
            CIFAR, 1 for ImageNet
        classifiers: each gets a learning rate of its own, as in the paper's Figure 9; by default
            there is the model's alone
    """

    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    seeds: tuple[int, ...] = (0, 1, 2)
    dev_percent: float = 10.0
    classifiers: tuple[Literal["token", "gap", "map"], ...] = ()

    def __post_init__(self):
        if not self.learning_rates or not self.seeds:
            raise ValueError("A sweep needs `grid.learning_rates` and `grid.seeds`. Received: none")
        if not 0 < self.dev_percent < 100:
            raise ValueError(
                f"`grid.dev_percent` must be above 0 and below 100. Received: {self.dev_percent}"
            )


@dataclasses.dataclass(frozen=True)
class Config:
    """A run.

    Attributes:
        name: of the run, the first part of its default folder
        dataset: digits, folder:PATH, table:FILE of paths and labels, tfds:NAME,
            or vtab:TASK
        batch: images per update
        batch_eval: images per step of an evaluation
        total_steps: updates in all
        eval_every: updates between evaluations on the held-out images
        checkpoint_every: updates between checkpoints
        keep_checkpoints: how many of the newest checkpoints stay, besides that of the best
            held-out accuracy
        loss: softmax cross-entropy, or one sigmoid a class
        label_smoothing: probability taken from the right class and spread over all
        sweep: try the learning rates of `grid` on a part of the training images, then train with
            the best on all of them, once a seed
        seed: decides initial weights, dropout, the order of images and their changes
        workdir: folder of the run; null for runs/NAME-BACKEND-HASH
        distribution: over devices or processes, see docs/distribution.md
        model_devices: that share one copy of the model, of model_parallel
        steps_per_execution: updates between two looks from Python
        patience: evaluations without a better held-out loss after which the run stops; the model
            of the run is then the one of the best held-out accuracy. null: never, and the last one
        on_nan: what a loss that is not finite does: stop, or rollback to the last checkpoint
        max_rollbacks: how often it may go back, each time with half the learning rate
        watch_every: evaluations between pictures of the attention in TensorBoard; 0 for none
        patch_keep_rates: instead of `model.patch_keep_rate`, parts of an image's patches, each for
            an equal part of the run: "[0.5, 0.75, 1.0]" sees them all in its last third
        fewshot_every: evaluations between few-shot evaluations of the features, with 1, 5 and 10
            training images of each class; 0 for none
        tracker: also log there, through its own Keras callback
        kernels: which implementations torch uses on CPUs: those that are faster when a new run
            measures them, recorded in its environment.json, or the defaults on every machine
        model: the model
        pretext: what it learns in the stead of labels
        data: where the images lie
        augment: random changes of the training images
        optimizer: the optimiser and its learning rate
        grid: what a sweep tries
    """

    name: str = "run"
    dataset: str = "digits"
    batch: int = 512
    batch_eval: int = 512
    total_steps: int = 10_000
    eval_every: int = 500
    checkpoint_every: int = 1_000
    keep_checkpoints: int = 2
    loss: Literal["softmax", "sigmoid"] = "softmax"
    label_smoothing: float = 0.0
    sweep: bool = False
    seed: int = 0
    workdir: str | None = None
    distribution: Literal["auto", "none", "data_parallel", "model_parallel", "multi_worker"] = (
        "none"
    )
    model_devices: int = 2
    steps_per_execution: int = 1
    patience: int | None = None
    on_nan: Literal["stop", "rollback"] = "stop"
    max_rollbacks: int = 3
    watch_every: int = 0
    patch_keep_rates: tuple[float, ...] = ()
    fewshot_every: int = 0
    tracker: Literal["none", "mlflow", "wandb"] = "none"
    kernels: Literal["measured", "default"] = "measured"
    model: ModelConfig = ModelConfig()
    pretext: PretextConfig = PretextConfig()
    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    grid: GridConfig = GridConfig()

    def __post_init__(self):
        for names, least in ((POSITIVE, 1), (NOT_NEGATIVE, 0)):
            for name in names:
                value = getattr(self, name)
                if value is not None and value < least:
                    raise ValueError(f"`{name}` must be at least {least}. Received: {value}")
        if self.batch % self.optimizer.accumulation_steps:
            raise ValueError(
                "`optimizer.accumulation_steps` must divide `batch`. Received: "
                f"accumulation_steps={self.optimizer.accumulation_steps}, batch={self.batch}"
            )
        for name in ("total_steps", "eval_every", "checkpoint_every"):
            if getattr(self, name) % self.steps_per_execution:
                raise ValueError(
                    f"`steps_per_execution` must divide `{name}`. Received: "
                    f"steps_per_execution={self.steps_per_execution}, {name}={getattr(self, name)}"
                )
        if not all(0 < rate <= 1 for rate in self.patch_keep_rates):
            raise ValueError(
                "`patch_keep_rates` must be above 0 and at most 1. "
                f"Received: {list(self.patch_keep_rates)}"
            )
        if self.loss == "sigmoid" and self.label_smoothing:
            raise ValueError(
                "`label_smoothing` is of the softmax loss: with `loss` sigmoid it must be 0. "
                f"Received: {self.label_smoothing}"
            )
        self.model.arguments()
        self.pretext.check(self)


POSITIVE = (
    *("batch", "batch_eval", "eval_every", "checkpoint_every", "keep_checkpoints"),
    *("steps_per_execution", "patience"),
)
NOT_NEGATIVE = ("total_steps", "seed", "max_rollbacks", "watch_every", "fewshot_every")
