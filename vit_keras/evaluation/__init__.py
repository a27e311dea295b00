"""Evaluation: arrays in, numbers out."""

from vit_keras.evaluation.calibration import calibration
from vit_keras.evaluation.callbacks import FewShot, few_shot_callback
from vit_keras.evaluation.classification import (
    classify,
    predict,
    probabilities,
    report,
    table,
    top_k_accuracy,
)
from vit_keras.evaluation.fewshot import (
    LeastSquares,
    extract,
    features_of,
    few_shot,
    few_shot_of,
    few_shot_table,
)
from vit_keras.evaluation.predictions import write_predictions
from vit_keras.evaluation.predictors import Predictor, of_model, open_predictor
from vit_keras.evaluation.real import read_real, real_accuracy
from vit_keras.evaluation.summary import evaluate, headline, line, mean_and_std, summarise

__all__ = [
    "FewShot",
    "LeastSquares",
    "Predictor",
    "calibration",
    "classify",
    "evaluate",
    "extract",
    "features_of",
    "few_shot",
    "few_shot_callback",
    "few_shot_of",
    "few_shot_table",
    "headline",
    "line",
    "mean_and_std",
    "of_model",
    "open_predictor",
    "predict",
    "probabilities",
    "read_real",
    "real_accuracy",
    "report",
    "summarise",
    "table",
    "top_k_accuracy",
    "write_predictions",
]
