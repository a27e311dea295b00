"""Callbacks of `model.fit`: counting, records, checkpoints, progress, early stopping."""

from vit_keras.training.callbacks.evaluate_average import EvaluateAverage
from vit_keras.training.callbacks.evaluate_labels import EvaluateLabels
from vit_keras.training.callbacks.fit_state import RestoreFitState
from vit_keras.training.callbacks.patch_keep_rates import PatchKeepRates
from vit_keras.training.callbacks.patience import Patience
from vit_keras.training.callbacks.progress import Progress
from vit_keras.training.callbacks.recorder import Recorder
from vit_keras.training.callbacks.state_saver import StateSaver
from vit_keras.training.callbacks.steps import CallbackList, StepCounter
from vit_keras.training.callbacks.stop_on_nonfinite import StopOnNonFinite
from vit_keras.training.callbacks.tensorboard import TensorBoard, tensorboard_callbacks
from vit_keras.training.callbacks.trackers import tracker_callbacks

__all__ = [
    "CallbackList",
    "EvaluateAverage",
    "EvaluateLabels",
    "PatchKeepRates",
    "Patience",
    "Progress",
    "Recorder",
    "RestoreFitState",
    "StateSaver",
    "StepCounter",
    "StopOnNonFinite",
    "TensorBoard",
    "tensorboard_callbacks",
    "tracker_callbacks",
]
