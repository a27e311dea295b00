"""What looks on while `model.fit` trains: progress, records, checkpoints, pictures."""

from vit_keras.training.callbacks.continuation import Continuation
from vit_keras.training.callbacks.dropping import PatchKeepRates
from vit_keras.training.callbacks.evaluation import EvaluateAverage, Patience
from vit_keras.training.callbacks.keeping import Checkpoints
from vit_keras.training.callbacks.recording import Recorder
from vit_keras.training.callbacks.steps import CallbackList, Progress, StepCounter, StopOnNonFinite
from vit_keras.training.callbacks.tracking import tracker
from vit_keras.training.callbacks.watching import TensorBoard

__all__ = [
    "CallbackList",
    "Checkpoints",
    "Continuation",
    "EvaluateAverage",
    "PatchKeepRates",
    "Patience",
    "Progress",
    "Recorder",
    "StepCounter",
    "StopOnNonFinite",
    "TensorBoard",
    "tracker",
]
