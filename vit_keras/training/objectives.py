"""The loss and the metrics of a run, for labels, a pretext or a teacher."""

from vit_keras.models import task_of
from vit_keras.training.computed_loss import pretext_metrics
from vit_keras.training.distillation import distillation_loss, distillation_metrics
from vit_keras.training.losses import build_loss
from vit_keras.training.metrics import task_metrics


def run_loss(model, config):
    """Builds the loss that a run's model minimizes, with its teacher's part if it has one."""
    loss = build_loss(config, task_of(model))
    return distillation_loss(config.distill, loss) if config.distill.is_active else loss


def run_metrics(model, config):
    """Makes the metrics that `fit` reports for a run's model."""
    if config.distill.is_active:
        return distillation_metrics(config.distill)
    if config.pretext.is_active:
        return pretext_metrics(config.pretext)
    return task_metrics(task_of(model), model.output.shape[-1])
