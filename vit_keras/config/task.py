"""What the fields of a run must be for each kind of label."""

from typing import Any

from vit_keras.tasks import KINDS


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
    if run.balance != "none" and run.task == "numbers":
        raise ValueError(f"`balance` must be none with `task` numbers. Received: {run.balance}")
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
    if run.calibrate and (run.task == "numbers" or not run.data.dev_percent):
        raise ValueError(
            "`calibrate` needs classes or labels, and a development split: set "
            f"`data.dev_percent`. Received: task={run.task}, "
            f"data.dev_percent={run.data.dev_percent:g}"
        )
