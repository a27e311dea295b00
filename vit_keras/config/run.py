"""The configuration of a run, of its optimizer, and of a sweep."""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any, Literal

from vit_keras.config.base import Count, NotNegative, Positive, Range, Rate, Section, Share, Size
from vit_keras.config.data import AugmentConfig, DataConfig
from vit_keras.config.model import LATER, LaterCount, LaterSize, LoraConfig, ModelConfig, fill
from vit_keras.config.pretext import DistillConfig, PretextConfig
from vit_keras.support.checks import NEEDS, ONE_OF_TWO, Rule, check_defaults, check_rules, needs
from vit_keras.support.tasks import KINDS


@dataclasses.dataclass(frozen=True)
class OptimizerConfig(Section, name="optimizer"):
    """The optimizer and its learning rate.

    Attributes:
        name: adamw, or sgd with momentum
        learning_rate: peak of the schedule, per update
        weight_decay: decoupled decay of kernels, multiplied by the learning rate; big_vision's
            values are not multiplied, so divide them by the base rate
        beta_1: decay of the first moment of adamw
        beta_2: decay of the second moment of adamw
        momentum: momentum of sgd
        decay_type: decay of the learning rate from the warmup to 0 at total_steps; staircase
            divides it by 10 at 30, 60 and 90% of the updates (BiT)
        warmup_steps: updates over which the learning rate grows linearly from 0
        warmup_fraction: the same, as a fraction of all updates; null to use warmup_steps
        grad_norm_clip: largest global norm of the gradients; null for no limit
        momentum_dtype: dtype of sgd's momentum; bfloat16 as published for fine-tuning
        accumulation_steps: number of parts of a batch, computed one after another
        ema_decay: decay of Polyak's average of the weights, 0.9999 in Table 2; null for none
        layer_decay: factor by which learning rates fall from block to block, from the head down;
            null for none
        freeze: names of layers to freeze, with wildcards * and ?; "[!h]*" trains only the head, a
            linear probe
    """

    name: Literal["adamw", "sgd"] = "adamw"
    learning_rate: Positive = 1e-3
    weight_decay: NotNegative = 0.0
    beta_1: Rate = 0.9
    beta_2: Rate = 0.999
    momentum: Rate = 0.9
    decay_type: Literal["cosine", "linear", "staircase"] = "cosine"
    warmup_steps: Count = 0
    warmup_fraction: Rate | None = None
    grad_norm_clip: Positive | None = 1.0
    momentum_dtype: Literal["float32", "bfloat16"] = "float32"
    accumulation_steps: Size = 1
    ema_decay: Annotated[float, Range(above=0, below=1)] | None = None
    layer_decay: Share | None = None
    freeze: tuple[str, ...] = ()

    RULES = (needs("warmup_steps", "warmup_fraction", None),)

    def warmup(self, total_steps: int) -> int:
        """Returns the number of warmup updates in a run of `total_steps` updates."""
        if self.warmup_fraction is None:
            return self.warmup_steps
        return round(self.warmup_fraction * total_steps)


Distribution = Literal["auto", "none", "data_parallel", "model_parallel", "multi_worker"]
Loss = Literal[
    "softmax", "sigmoid", "focal", "logit_adjusted", "mse", "mae", "huber", "pixels", "set"
]


@dataclasses.dataclass(frozen=True)
class GridConfig(Section, name="grid"):
    """The settings of a sweep.

    Attributes:
        learning_rates: rates to try, each on a development split of the training images
        seeds: seeds of the final runs, which use the best learning rate and all training images
        dev_percent: percentage of the training images on which to judge the trials: 10 for Pets and
            Flowers, 2 for CIFAR, 1 for ImageNet
        classifiers: classifiers to try, each with its own learning rate, as in the paper's Figure
            9; empty for the model's classifier alone
    """

    learning_rates: tuple[float, ...] = (0.001, 0.003, 0.01, 0.03)
    seeds: tuple[int, ...] = (0, 1, 2)
    dev_percent: Annotated[float, Range(above=0, below=100)] = 10.0
    classifiers: tuple[Literal["token", "gap", "map"], ...] = ()

    RULES = (("learning_rates", bool, "numbers"), ("seeds", bool, "numbers"))


STEPS = {"total_steps": 10_000, "eval_every": 500, "checkpoint_every": 1_000}
_DIVIDED = (lambda value, by: (value or 0) % by == 0, "the second must divide the first")


def _suits_teacher(teacher, kind, task, loss):
    return not teacher or kind == "features" or (task in ("auto", "classes") and loss != "sigmoid")


_of_objects = lambda crop, task: crop != "objects" or task in ("auto", "boxes")
_of_classes = lambda *values: values != ("sigmoid", "classes", "weights")
RULES: tuple[Rule, ...] = (
    ("folds", lambda folds: folds != 1, "0 or at least 2"),
    (("epochs", "total_steps"), *ONE_OF_TWO),
    (("folds", "sweep"), *ONE_OF_TWO),
    (("batch", "optimizer.accumulation_steps"), *_DIVIDED),
    *(((name, "steps_per_execution"), *_DIVIDED) for name in STEPS),
    needs("label_smoothing", "loss", None, "softmax"),
    (("calibrate", "data.dev_percent"), *NEEDS),
    (("calibrate", "sweep"), ONE_OF_TWO[0], "a sweep's final runs leave no images to calibrate on"),
    (("lora.rank", "model.weights"), *NEEDS),
    (("augment.crop", "task"), _of_objects, "crops of objects need task boxes"),
    (("loss", "task", "balance"), _of_classes, "class weights need a loss other than sigmoid"),
    (
        ("distill.teacher", "distill.kind", "task", "loss"),
        _suits_teacher,
        "probabilities of classes need task classes and loss softmax; for other tasks or losses, "
        "give distill.kind=features, and train the head in a second run",
    ),
    needs("cache_features", "balance", "none", "weights"),  # an epoch reads features once
    (
        ("cache_features", "optimizer.freeze"),
        lambda cached, freeze: not cached or freeze,
        'the first needs frozen layers, such as ["[!h]*"] for all but the head',
    ),
)


@dataclasses.dataclass(frozen=True)
class Config(Section):
    """A training run.

    Attributes:
        name: name of the run, the first part of its default folder
        dataset: data to learn from, such as digits or folder:PATH (docs/data.md)
        batch: images per update
        batch_eval: images per step of an evaluation
        epochs: passes through the training images; null to count updates by total_steps
        total_steps: number of updates; null for 10000, or to follow `epochs`
        eval_every: updates between evaluations on the held-out images; null for 500, or for an
            epoch
        checkpoint_every: updates between checkpoints; null for 1000, or for an epoch
        keep_checkpoints: number of newest checkpoints to keep, in addition to the one with the best
            held-out accuracy
        task: what the labels are; classes (one is right), labels (any number of them), numbers,
            masks, or boxes of objects; auto to follow the data set
        loss: softmax, sigmoid (one for each class), focal or logit_adjusted for classes; sigmoid or
            focal for labels; mse, mae or huber for numbers; pixels for masks; set for boxes; null
            for the first one of the task
        focal_gamma: exponent of the focal loss
        balance: what to do about rare classes or labels: none for nothing; weights, which give all
            classes equal weight in the loss; or sampling, which draws images of all classes equally
            often
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
        shard_state: split the weights, the optimizer's moments and the average of the weights
            across the devices of a distribution, instead of keeping a copy on each (fully sharded
            data parallel); only on JAX
        steps_per_execution: updates that run before control returns to Python
        patience: stop after this many evaluations without a lower held-out loss, and keep the model
            with the best held-out accuracy; null to train to the end and keep the last model
        fewshot_every: evaluations between few-shot evaluations of the features, with 1, 5 and 10
            training images of each class; 0 for none
        cache_features: compute the outputs of the frozen layers once, store them in the run's
            folder, and train the other layers on them
        tracker: experiment tracker to log to, through its own Keras callback
        kernels: implementations to use on CPUs: the fastest ones that a new run measures, recorded
            in its environment.json, or the defaults on every machine
        model: the model
        lora: low-rank adapters to train instead of the model
        pretext: what the run learns instead of labels
        distill: what the run learns from another model
        data: where the images are
        augment: random changes of the training images
        optimizer: the optimizer and its learning rate
        grid: what a sweep tries
    """

    name: str = "run"
    dataset: str = "digits"
    batch: Size = 512
    batch_eval: Size = 512
    epochs: Positive | None = None
    total_steps: LaterCount = LATER
    eval_every: LaterSize = LATER
    checkpoint_every: LaterSize = LATER
    keep_checkpoints: Size = 2
    task: Literal["auto", "classes", "labels", "numbers", "masks", "boxes"] = "auto"
    loss: Loss | None = None
    focal_gamma: NotNegative = 2.0
    balance: Literal["none", "weights", "sampling"] = "none"
    calibrate: bool = False
    label_smoothing: Rate = 0.0
    sweep: bool = False
    folds: Count = 0
    seed: Count = 0
    workdir: str | None = None
    distribution: Distribution = "none"
    model_devices: Size = 2
    shard_state: bool = False
    steps_per_execution: Size = 1
    patience: Size | None = None
    fewshot_every: Count = 0
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

    RULES = RULES

    def __post_init__(self):
        if self.epochs is None:
            fill(self, STEPS)
        super().__post_init__()
        if self.task != "auto":
            losses = KINDS[self.task].losses
            rule = f"{' or '.join(losses)} with `task` {self.task}"
            check_rules(self, None, [("loss", losses.__contains__, rule)])
        for applies, names, where in _excluded(self):
            if applies:
                check_defaults(self, names.split(), where)
        if self.model.is_complete:
            self.model.arguments()
            self.pretext.check(self.model)

    @property
    def learns_labels(self) -> bool:
        """Whether the run trains a head for the labels of its data set."""
        return not self.pretext.is_active and not self.distill.is_of_features

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


# Fields that must keep their defaults in the cases that `_excluded` lists.
LABELS = "loss balance calibrate label_smoothing sweep folds patience"
MIXED = "augment.mixup_alpha augment.cutmix_alpha"
VIEWS = (
    "augment.rotation_degrees augment.scale augment.shift augment.crop augment.randaugment_layers "
    "augment.policy augment.color_jitter augment.erasing"
)
NO_CLASSIFIER = f"{LABELS} {MIXED} model.representation_size lora.rank"
DINO = (
    f"{VIEWS} optimizer.ema_decay optimizer.layer_decay optimizer.freeze "
    "pretext.target pretext.corrupt"
)
ANSWERS = "distill.kind distill.teacher_variant distill.weight distill.temperature"
# These fields change features between epochs, or need the frozen layers again.
CHANGING = (
    "distribution fewshot_every pretext.objective lora.rank distill.teacher model.dropout_rate "
    "model.attention_dropout_rate model.stochastic_depth_rate "
    f"model.patch_keep_rate {VIEWS} {MIXED} augment.flip optimizer.layer_decay"
)
NO_TEXTS = "lora.rank pretext.objective distill.teacher model.head_bias"
NOT_CLASSES = "label_smoothing fewshot_every"
NOT_VECTORS = (
    f"{NOT_CLASSES} {MIXED} balance calibrate distill.teacher cache_features model.labels "
    "augment.randaugment_layers augment.policy augment.erasing"
)
UNUSED = {
    "labels": NOT_CLASSES,
    "numbers": f"{NOT_CLASSES} balance calibrate model.labels",
    "masks": f"{NOT_VECTORS} model.patch_keep_rate",  # each patch has pixels
    "boxes": f"{NOT_VECTORS} augment.rotation_degrees",
}


def _excluded(config: Config) -> tuple[tuple[Any, Any, str], ...]:
    """Returns conditions, the fields that must then keep their defaults, and the reason."""
    pretext, distill, task = config.pretext, config.distill, config.task
    objective, kind = f"`pretext.objective` {pretext.objective}", f"`distill.kind` {distill.kind}"
    return (
        (pretext.is_active, NO_CLASSIFIER, f"{objective}, which trains no classifier"),
        (pretext.is_dino, DINO, f"{objective}, which has its own views and averages"),
        (not distill.teacher, f"{ANSWERS} distill.patches", "no `distill.teacher`"),
        (distill.teacher, "pretext.objective lora.rank", "`distill.teacher`"),
        (distill.kind != "features", "distill.patches", kind),
        (distill.kind != "soft", "distill.temperature", kind),
        (
            distill.is_of_features,
            f"{LABELS} distill.weight model.head_bias",
            f"{kind}, which uses no labels",
        ),
        (distill.patches, "model.patch_keep_rate", "`distill.patches`, which needs all patches"),
        (config.cache_features, CHANGING, "`cache_features`, which computes all features once"),
        (config.model.labels, NO_TEXTS, "`model.labels`"),
        (task in UNUSED, UNUSED.get(task), f"`task` {task}"),
    )


def addresses_of(config: Config) -> list[str]:
    """Returns the paths, names or addresses in `model.weights` and `distill.teacher`, if any."""
    return [path for path in (config.model.weights, config.distill.teacher) if path]


def change_addresses(config: Config, change: Callable[[str], str]) -> Config:
    """Returns a configuration with `change` applied to each of `addresses_of`."""
    changed = lambda path: path and change(path)
    model = dataclasses.replace(config.model, weights=changed(config.model.weights))
    distill = dataclasses.replace(config.distill, teacher=changed(config.distill.teacher))
    return dataclasses.replace(config, model=model, distill=distill)
