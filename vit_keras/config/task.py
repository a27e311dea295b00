"""What the fields of a run must be for each kind of label."""

from typing import Any

from vit_keras.tasks import KINDS

NO_BALANCE = ("numbers", "masks")  # which are not balanced or calibrated


def check_task(run: Any) -> None:
    """Raises ValueError if a field of a run's `Config` does not fit its `task`."""
    losses = KINDS[run.task].losses
    if run.loss is not None and run.loss not in losses:
        raise ValueError(
            f"`loss` must be {' or '.join(losses)} with `task` {run.task}. Received: {run.loss}"
        )
    if run.label_smoothing and run.task != "classes":
        raise ValueError(
            f"`label_smoothing` must be 0 with `task` {run.task}. Received: {run.label_smoothing}"
        )
    if run.balance != "none" and run.task in NO_BALANCE:
        raise ValueError(f"`balance` must be none with `task` {run.task}. Received: {run.balance}")
    if run.loss == "sigmoid" and run.task == "classes" and run.balance == "weights":
        raise ValueError(
            "`balance` weights of classes needs `loss` softmax, focal or logit_adjusted. "
            "Received: loss=sigmoid"
        )
    if run.fewshot_every and run.task != "classes":
        raise ValueError(
            "Few-shot evaluations need classes, so `fewshot_every` must be 0 with `task` "
            f"{run.task}. Received: {run.fewshot_every}"
        )
    if run.calibrate and (run.task in NO_BALANCE or not run.data.dev_percent):
        raise ValueError(
            "`calibrate` needs classes or labels, and a development split: set "
            f"`data.dev_percent`. Received: task={run.task}, "
            f"data.dev_percent={run.data.dev_percent:g}"
        )
    if run.task == "masks":
        _check_masks(run)


def _check_masks(run):
    names = ("randaugment_layers", "policy", "erasing", "mixup_alpha", "cutmix_alpha")
    wrong = [f"augment.{name}" for name in names if getattr(run.augment, name) not in (0, "none")]
    if wrong:
        raise ValueError(
            "RandAugment, other policies, erasing, MixUp and CutMix do not change masks, so they "
            f"must be 0 or none with `task` masks. Received: {', '.join(wrong)}"
        )
    if run.distill.is_active:
        raise ValueError(
            "Distillation learns classes or features, so `distill` must have no teacher with "
            "`task` masks. Received: a teacher"
        )
    if run.cache_features:
        raise ValueError(
            "`cache_features` must be false with `task` masks, whose decoder reads several blocks. "
            "Received: true"
        )
