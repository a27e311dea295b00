"""Changes the part of the patches that training sees in the course of a run."""

import keras

from vit_keras.runs import Run


class PatchKeepRates(keras.callbacks.Callback):
    """Gives the layer `patch_dropout` the rates of `patch_keep_rates`, each for an equal part.

    A rate applies from the first epoch (of `eval_every` updates) that begins in its part of the
    run. This does not depend on whether the run was stopped. Every rate gives another number of
    tokens, so the model compiles once for each.

    Raises:
        ValueError: The model keeps all patches.
    """

    def __init__(self, run: Run):
        super().__init__()
        self.config = run.config

    def rate(self, epoch: int) -> float:
        """Returns the rate of the epoch with this number; the first has the number 0."""
        rates = self.config.patch_keep_rates
        part = epoch * self.config.eval_every * len(rates) // self.config.total_steps
        return rates[min(part, len(rates) - 1)]

    def on_epoch_begin(self, epoch, logs=None):
        if not self.config.patch_keep_rates:
            return
        layers = {layer.name: layer for layer in self.model.layers}
        if "patch_dropout" not in layers:
            raise ValueError(
                "`patch_keep_rates` need a model that drops patches: set `model.patch_keep_rate` "
                f"below 1 as well. Received: {list(self.config.patch_keep_rates)}"
            )
        if layers["patch_dropout"].keep_rate != self.rate(epoch):
            layers["patch_dropout"].keep_rate = self.rate(epoch)
            self.model.make_train_function(force=True)
