"""The configuration of a run, of its optimizer, and of a sweep."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.model import LATER, RATE, Count, LoraConfig, ModelConfig, fill
from vit_keras.config.pretext import DistillConfig, PretextConfig
from vit_keras.support.checks import NEEDS, ONE_OF_TWO, Rule, check_defaults, check_rules
from vit_keras.support.tasks import KINDS


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The optimizer and its learning rate.

    Attributes:
        name: adamw, or sgd with momentum
        learning_rate: peak of the schedule, per update
        weight_decay: decoupled decay of kernels, multiplied by the learning rate; unlike
            big_vision's values, so divide those by the base rate
        beta_1: decay of the first moment of adamw
        beta_2: decay of the second moment of adamw
        momentum: momentum of sgd
        decay_type: decay of the learning rate from the warmup to 0 at total_steps; staircase
            divides it by 10 at 30, 60 and 90 % (BiT)
        warmup_steps: updates over which the learning rate grows linearly from 0
        warmup_fraction: the same as a fraction of all updates; null to count by warmup_steps
        grad_norm_clip: largest global norm of the gradients; null for no limit
        momentum_dtype: dtype of sgd's momentum; bfloat16 as published for fine-tuning
        accumulation_steps: parts of a batch to compute one after the other
        ema_decay: decay of Polyak's average of the weights, 0.9999 in Table 2; null for none
        layer_decay: factor by which learning rates fall from block to block, from the head down;
            null for none
        freeze: names of layers to freeze, with * and ?; "[!h]*" trains only the head, a linear
            probe
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    momentum: float = 0.9
    decay_type: Literal["cosine", "linear", "staircase"] = "cosine"
    warmup_steps: int = 0
    warmup_fraction: float | None = None
    grad_norm_clip: float | None = 1.0
    momentum_dtype: Literal["float32", "bfloat16"] = "float32"
    accumulation_steps: int = 1
    ema_decay: float | None = None
    layer_decay: float | None = None
    freeze: tuple[str, ...] = ()

    def __post_init__(self):
        check_rules(self, "optimizer", OPTIMIZER_RULES)

    def warmup(self, total_steps: int) -> int:
        """Returns the number of warmup updates in a run of `total_steps` updates."""
        if self.warmup_fraction is None:
            return self.warmup_steps
        return round(self.warmup_fraction * total_steps)


OPTIMIZER_RULES: tuple[Rule, ...] = (
    ("learning_rate", lambda value: value > 0, "above 0"),
    ("weight_decay", lambda value: value >= 0, "at least 0"),
    *((name, *RATE) for name in ("beta_1", "beta_2", "momentum")),
    ("warmup_steps", lambda value: value >= 0, "at least 0"),
    ("warmup_fraction", lambda value: 0 <= value < 1, "at least 0 and below 1, or null"),
    ("grad_norm_clip", lambda value: value > 0, "above 0, or null for no limit"),
    ("accumulation_steps", lambda value: value >= 1, "at least 1"),
    ("ema_decay", lambda value: 0 < value < 1, "above 0 and below 1, or null for no average"),
    ("layer_decay", lambda value: 0 < value <= 1, "above 0 and at most 1, or null for none"),
    (
        ("warmup_steps", "warmup_fraction"),
        lambda steps, fraction: not steps or fraction is None,
        ONE_OF_TWO[1],
    ),
)


GRID_RULES: tuple[Rule, ...] = (
    ("dev_percent", lambda value: 0 < value < 100, "above 0 and below 100"),
    ("learning_rates", bool, "one or several numbers"),
    ("seeds", bool, "one or several numbers"),
)
Loss = Literal[
    "softmax", "sigmoid", "focal", "logit_adjusted", "mse", "mae", "huber", "pixels", "set"
]


@dataclasses.dataclass(frozen=True)
class GridConfig:
    """The settings of a sweep.

    Attributes:
        learning_rates: rates to try, each on a development split of the training images
        seeds: seeds of the final runs, which use the best learning rate and all training images
        dev_percent: percentage of the training images on which to judge the trials: 10 for Pets and
            Flowers, 2 for CIFAR, 1 for ImageNet
        classifiers: classifiers to try, each with its own learning rate, as in the paper's Figure
            9; empty for only the model's classifier
    """

    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    seeds: tuple[int, ...] = (0, 1, 2)
    dev_percent: float = 10.0
    classifiers: tuple[Literal["token", "gap", "map"], ...] = ()

    def __post_init__(self):
        check_rules(self, "grid", GRID_RULES)


@dataclasses.dataclass(frozen=True)
class Config:
    """A training run.

    Attributes:
        name: name of the run, the first part of its default folder
        dataset: data to learn from: digits, folder:PATH, table:FILE, shards:PATTERN, hf:NAME,
            tfds:NAME or vtab:TASK
        batch: images per update
        batch_eval: images per step of an evaluation
        epochs: passes through the training images; null to count updates by total_steps
        total_steps: number of updates; null for 10000, or to follow `epochs`
        eval_every: updates between evaluations on the held-out images; null for 500, or for an
            epoch
        checkpoint_every: updates between checkpoints; null for 1000, or for an epoch
        keep_checkpoints: number of newest checkpoints to keep, in addition to the one with the best
            held-out accuracy
        task: what the labels are; classes, of which one is right, any number of labels, numbers,
            masks, or boxes of objects; auto to follow the data set
        loss: softmax, sigmoid (one for each class), focal or logit_adjusted for classes; sigmoid or
            focal for labels; mse, mae or huber for numbers; pixels for masks; set for boxes; null
            for the first of these
        focal_gamma: exponent of the focal loss
        balance: what to do about rare classes or labels: nothing, loss weights that give all
            classes equal weight, or sampling, which draws images of all classes equally often
        calibrate: divide the logits by the temperature that fits the development split best, at
            the end of the run
        label_smoothing: probability to take from the right class and spread over all classes
        sweep: try the learning rates of `grid` on a part of the training images, then train with
            the best one on all of them, once for each seed
        folds: number of runs of a cross-validation, each judged on a different part of the training
            images; 0 for one run
        seed: decides the initial weights, dropout, the order of the images and their augmentation
        workdir: folder of the run; null for runs/NAME-BACKEND-HASH
        distribution: how the run uses several devices or processes; see docs/distribution.md
        model_devices: number of devices that share one copy of the model under model_parallel
        shard_state: split the weights, the optimizer's moments and the average of the weights over
            the devices of a distribution, instead of a copy on each (fully sharded data parallel);
            only on JAX
        steps_per_execution: updates that run before control returns to Python
        patience: stop after this many evaluations without a lower held-out loss, and keep the model
            with the best held-out accuracy; null to train to the end and keep the last model
        on_nan: what to do when the loss is not finite: stop, or rollback to the last checkpoint
        max_rollbacks: number of rollbacks allowed; each halves the learning rate
        watch_every: evaluations between attention pictures in TensorBoard; 0 for none
        patch_keep_rates: values of `model.patch_keep_rate`, each for an equal part of the run:
            "[0.5, 0.75, 1.0]" trains on all patches in its last third
        fewshot_every: evaluations between few-shot evaluations of the features, with 1, 5 and 10
            training images of each class; 0 for none
        cache_features: compute the outputs of the frozen layers once, into the run's folder, and
            train the other layers on them
        tracker: experiment tracker to log to, through its own Keras callback
        kernels: implementations to use on CPUs: the fastest ones that a new run measures, recorded
            in its environment.json, or the defaults on every machine
        model: the model
        lora: low-rank adapters that train instead of the model
        pretext: what the run learns instead of labels
        distill: what the run learns from another model
        data: where the images are
        augment: random changes of the training images
        optimizer: the optimizer and its learning rate
        grid: what a sweep tries
    """

    name: str = "run"
    dataset: str = "digits"
    batch: int = 512
    batch_eval: int = 512
    epochs: float | None = None
    total_steps: Count = LATER
    eval_every: Count = LATER
    checkpoint_every: Count = LATER
    keep_checkpoints: int = 2
    task: Literal["auto", "classes", "labels", "numbers", "masks", "boxes"] = "auto"
    loss: Loss | None = None
    focal_gamma: float = 2.0
    balance: Literal["none", "weights", "sampling"] = "none"
    calibrate: bool = False
    label_smoothing: float = 0.0
    sweep: bool = False
    folds: int = 0
    seed: int = 0
    workdir: str | None = None
    distribution: Literal["auto", "none", "data_parallel", "model_parallel", "multi_worker"] = (
        "none"
    )
    model_devices: int = 2
    shard_state: bool = False
    steps_per_execution: int = 1
    patience: int | None = None
    on_nan: Literal["stop", "rollback"] = "stop"
    max_rollbacks: int = 3
    watch_every: int = 0
    patch_keep_rates: tuple[float, ...] = ()
    fewshot_every: int = 0
    cache_features: bool = False
    tracker: Literal["none", "mlflow", "wandb"] = "none"
    kernels: Literal["measured", "default"] = "measured"
    model: ModelConfig = ModelConfig()
    lora: LoraConfig = LoraConfig()
    pretext: PretextConfig = PretextConfig()
    distill: DistillConfig = DistillConfig()
    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    grid: GridConfig = GridConfig()

    def __post_init__(self):
        if self.epochs is None:
            fill(self, STEPS)
        else:
            one_of_two = lambda epochs, steps: steps is None
            check_rules(self, None, [(("epochs", "total_steps"), one_of_two, ONE_OF_TWO[1])])
        check_rules(self, None, RULES)
        check_cached_features(self)
        if self.task != "auto":
            check_task(self)
        self.distill.check(self)
        if self.model.is_complete:
            self.model.arguments()
            self.pretext.check(self)

    @property
    def learns_labels(self) -> bool:
        """Whether the run trains a head for the labels of its data set."""
        alone = self.distill.is_active and not self.distill.needs_labels
        return not self.pretext.is_active and not alone

    def complete_task(self, kind: Any) -> "Config":
        """Returns this configuration with the kind of a data set's labels and with a loss.

        Args:
            kind: The kind of the data set's labels.

        Raises:
            ValueError: Another field does not fit the kind.
        """
        loss: Any = (self.loss or KINDS[kind].losses[0]) if self.learns_labels else None
        return dataclasses.replace(self, task=kind, loss=loss)

    def count_steps(self, images: int) -> "Config":
        """Returns this configuration with its length in updates instead of epochs.

        Args:
            images: The number of training images in an epoch.

        Returns:
            A `Config` without `epochs`, for `fit` and its callbacks.
        """
        if self.epochs is None:
            return self
        executed = self.steps_per_execution
        whole = lambda epochs: max(round(epochs * images / self.batch / executed), 1) * executed
        return dataclasses.replace(
            self,
            epochs=None,
            total_steps=whole(self.epochs),
            eval_every=self.eval_every or whole(1),
            checkpoint_every=self.checkpoint_every or whole(1),
        )


STEPS = {"total_steps": 10_000, "eval_every": 500, "checkpoint_every": 1_000}

_POSITIVE = (lambda value: value >= 1, "at least 1")
_NOT_NEGATIVE = (lambda value: value >= 0, "at least 0")
_DIVIDED = (lambda value, by: (value or 0) % by == 0, "the second must divide the first")
RULES: tuple[Rule, ...] = (
    *((name, *_POSITIVE) for name in ("batch", "batch_eval", "eval_every", "checkpoint_every")),
    *((name, *_POSITIVE) for name in ("keep_checkpoints", "steps_per_execution", "patience")),
    *((name, *_NOT_NEGATIVE) for name in ("total_steps", "seed", "max_rollbacks")),
    *((name, *_NOT_NEGATIVE) for name in ("watch_every", "fewshot_every")),
    ("epochs", lambda value: 0 < value < math.inf, "above 0"),
    ("folds", lambda folds: folds == 0 or folds >= 2, "0 or at least 2"),
    (("folds", "sweep"), *ONE_OF_TWO),
    (("batch", "optimizer.accumulation_steps"), *_DIVIDED),
    *(((name, "steps_per_execution"), *_DIVIDED) for name in STEPS),
    (
        "patch_keep_rates",
        lambda rates: all(0 < rate <= 1 for rate in rates),
        "above 0 and at most 1",
    ),
    (
        ("label_smoothing", "loss"),
        lambda smoothing, loss: not smoothing or loss in (None, "softmax"),
        "the first must be 0 unless the second is softmax",
    ),
)


# Fields that must keep their defaults with a kind of label.
NO_TEXTS = ("lora.rank", "pretext.objective", "distill.teacher", "model.head_bias")
NOT_CLASSES = ("label_smoothing", "fewshot_every")
UNUSED = {
    "classes": (),
    "labels": NOT_CLASSES,
    "numbers": (*NOT_CLASSES, "balance", "calibrate", "model.labels"),
    "masks": (
        *(*NOT_CLASSES, "balance", "calibrate", "distill.teacher", "cache_features"),
        *("augment.randaugment_layers", "augment.policy", "augment.erasing"),
        *("augment.mixup_alpha", "augment.cutmix_alpha", "model.labels"),
    ),
}
UNUSED["boxes"] = (*UNUSED["masks"], "augment.rotation_degrees")


def check_task(run: Any) -> None:
    """Raises ValueError if a field of a run's `Config` does not fit its `task`."""
    losses = KINDS[run.task].losses
    if run.loss is not None and run.loss not in losses:
        raise ValueError(
            f"`loss` must be {' or '.join(losses)} with `task` {run.task}. Received: {run.loss}"
        )
    check_defaults(run, UNUSED[run.task], f"`task` {run.task}")
    if run.model.labels:
        check_defaults(run, NO_TEXTS, "`model.labels`")
    check_rules(run, None, TASK_RULES)


TASK_RULES: tuple[Rule, ...] = (
    (
        ("augment.crop", "task"),
        lambda crop, task: crop != "objects" or task == "boxes",
        "crops of objects need task boxes",
    ),
    (
        ("loss", "task", "balance"),
        lambda *values: values != ("sigmoid", "classes", "weights"),
        "weights of classes need loss softmax, focal or logit_adjusted",
    ),
    (("calibrate", "data.dev_percent"), *NEEDS),
)


# Fields that change features between epochs, or need the frozen layers again.
CHANGING = (
    *("distribution", "fewshot_every", "watch_every", "patch_keep_rates", "pretext.objective"),
    *("lora.rank", "distill.teacher", "optimizer.layer_decay"),
    *(f"model.{name}_rate" for name in ("dropout", "attention_dropout", "stochastic_depth")),
    "model.patch_keep_rate",
    *("augment.rotation_degrees", "augment.scale", "augment.shift", "augment.flip"),
    *("augment.crop", "augment.randaugment_layers", "augment.policy", "augment.color_jitter"),
    *("augment.erasing", "augment.mixup_alpha", "augment.cutmix_alpha"),
)


def check_cached_features(run: Any) -> None:
    """Raises a ValueError that names all fields of a `Config` that `cache_features` forbids."""
    if not run.cache_features:
        return
    check_defaults(run, CHANGING, "`cache_features`, which computes the features of a picture once")
    check_rules(run, None, CACHE_RULES)


CACHE_RULES: tuple[Rule, ...] = (
    (
        ("cache_features", "balance"),
        lambda _, balance: balance != "sampling",
        "features are read once in each epoch, so balance must be none or weights",
    ),
    (
        ("cache_features", "optimizer.freeze"),
        lambda _, freeze: freeze,
        'the first needs frozen layers, such as ["[!h]*"] for all but the head',
    ),
)


def addresses_of(config: Config) -> list[str]:
    """Returns the paths, names or addresses in `model.weights` and `distill.teacher`, if any."""
    return [path for path in (config.model.weights, config.distill.teacher) if path]


def change_addresses(config: Config, change: Callable[[str], str]) -> Config:
    """Returns a configuration with `change` applied to each of `addresses_of`."""
    model, distill = config.model, config.distill
    if model.weights:
        model = dataclasses.replace(model, weights=change(model.weights))
    if distill.teacher:
        distill = dataclasses.replace(distill, teacher=change(distill.teacher))
    return dataclasses.replace(config, model=model, distill=distill)
