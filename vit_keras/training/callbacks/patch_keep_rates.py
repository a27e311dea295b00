"""The part of the patches that training sees, over a run."""

import keras


class PatchKeepRates(keras.callbacks.Callback):
    """Gives `patch_dropout` the rates of `patch_keep_rates`, one for each equal part of a run.

    A rate holds from the first epoch (`eval_every` updates) that begins in its part, whenever the
    run was stopped. Another number of tokens is another program: each rate compiles once. Raises
    ValueError where the model keeps all patches.
    """

    def __init__(self, config):
        super().__init__()
        self.rates, self.total_steps = config.patch_keep_rates, config.total_steps
        self.eval_every = config.eval_every

    def rate(self, epoch: int) -> float:
        """Of the epoch that begins after `epoch` others."""
        part = epoch * self.eval_every * len(self.rates) // self.total_steps
        return self.rates[min(part, len(self.rates) - 1)]

    def on_epoch_begin(self, epoch, logs=None):
        if not self.rates:
            return
        layers = {layer.name: layer for layer in self.model.layers}
        if "patch_dropout" not in layers:
            raise ValueError(
                "`patch_keep_rates` are of a model that drops patches: give also "
                f"`model.patch_keep_rate`, below 1. Received: {list(self.rates)}"
            )
        if layers["patch_dropout"].keep_rate != self.rate(epoch):
            layers["patch_dropout"].keep_rate = self.rate(epoch)
            self.model.make_train_function(force=True)
