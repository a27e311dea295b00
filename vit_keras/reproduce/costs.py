"""The compute that a training run took."""

from vit_keras import compute, models


def pretraining_flops(trained) -> float:
    """The floating-point operations of all updates of a run, counted as the paper's Table 6 does.

    Args:
        trained: The run, a `Trained`.
    """
    config = trained.config
    arguments = {"num_classes": len(trained.report["classes"]), "seed": 0}
    model = compute.abstract_model(lambda: models.from_model_config(config.model, **arguments))
    images = config.total_steps * config.batch
    return 1e18 * compute.training_exaflops(model, images)
