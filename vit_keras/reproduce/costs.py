"""What the training of a run costs."""

from vit_keras import compute, models


def pretraining_flops(trained) -> float:
    """Floating-point operations of a run's updates: Table 6's convention."""
    config = trained.config
    arguments = {"num_classes": len(trained.report["classes"]), "seed": 0}
    model = compute.abstract_model(lambda: models.from_model_config(config.model, **arguments))
    images = config.total_steps * config.batch
    return 1e18 * compute.training_exaflops(model, images)
