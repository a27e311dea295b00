"""Predictions, and the numbers that judge them.

The modules behind these names are imported when a name is first used, because an exported file is
answered without Keras.
"""

from typing import TYPE_CHECKING

from vit_keras.lazy_names import lazy_names

if TYPE_CHECKING:
    from vit_keras.evaluation.calibration import fit_temperature, measure_calibration
    from vit_keras.evaluation.callbacks import FewShotCallback, few_shot_callback
    from vit_keras.evaluation.classification import (
        predict,
        probabilities,
        top_k_accuracy,
    )
    from vit_keras.evaluation.fewshot import (
        LeastSquares,
        evaluate_few_shot,
        extract,
        feature_model,
        few_shot,
        few_shot_table,
    )
    from vit_keras.evaluation.file_predictions import FilePrediction, classify, predict_files
    from vit_keras.evaluation.imagenet_real import read_real_labels, real_accuracy
    from vit_keras.evaluation.labels import average_precision, best_thresholds, sigmoid
    from vit_keras.evaluation.mask_prediction import (
        MaskOptions,
        judge_masks,
        predict_mask,
        predict_masks,
    )
    from vit_keras.evaluation.masks import pixel_matrix, report_matrix
    from vit_keras.evaluation.neighbors import evaluate_knn, knn, knn_table, nearest_neighbors
    from vit_keras.evaluation.overlays import draw_mask_sheet, draw_overlay, write_mask
    from vit_keras.evaluation.prediction_formats import PICTURE_PX, write_file_predictions
    from vit_keras.evaluation.predictions import write_predictions
    from vit_keras.evaluation.predictors import Predictor, make_predictor
    from vit_keras.evaluation.reports import (
        draw_report,
        headline,
        main_figure,
        report,
        report_table,
    )
    from vit_keras.evaluation.sources import open_predictor
    from vit_keras.evaluation.summary import evaluate, mean_and_std, summarize, summary_line
    from vit_keras.evaluation.views import with_views

__all__ = [
    "PICTURE_PX",
    "FewShotCallback",
    "FilePrediction",
    "LeastSquares",
    "MaskOptions",
    "Predictor",
    "average_precision",
    "best_thresholds",
    "classify",
    "draw_mask_sheet",
    "draw_overlay",
    "draw_report",
    "evaluate",
    "evaluate_few_shot",
    "evaluate_knn",
    "extract",
    "feature_model",
    "few_shot",
    "few_shot_callback",
    "few_shot_table",
    "fit_temperature",
    "headline",
    "judge_masks",
    "knn",
    "knn_table",
    "main_figure",
    "make_predictor",
    "mean_and_std",
    "measure_calibration",
    "nearest_neighbors",
    "open_predictor",
    "pixel_matrix",
    "predict",
    "predict_files",
    "predict_mask",
    "predict_masks",
    "probabilities",
    "read_real_labels",
    "real_accuracy",
    "report",
    "report_matrix",
    "report_table",
    "sigmoid",
    "summarize",
    "summary_line",
    "top_k_accuracy",
    "with_views",
    "write_file_predictions",
    "write_mask",
    "write_predictions",
]

_NAMES = {
    "calibration": ("fit_temperature", "measure_calibration"),
    "callbacks": ("FewShotCallback", "few_shot_callback"),
    "classification": ("predict", "probabilities", "top_k_accuracy"),
    "fewshot": (
        "LeastSquares",
        "evaluate_few_shot",
        "extract",
        "feature_model",
        "few_shot",
        "few_shot_table",
    ),
    "file_predictions": ("FilePrediction", "classify", "predict_files"),
    "imagenet_real": ("read_real_labels", "real_accuracy"),
    "labels": ("average_precision", "best_thresholds", "sigmoid"),
    "mask_prediction": ("MaskOptions", "judge_masks", "predict_mask", "predict_masks"),
    "masks": ("pixel_matrix", "report_matrix"),
    "neighbors": ("evaluate_knn", "knn", "knn_table", "nearest_neighbors"),
    "overlays": ("draw_mask_sheet", "draw_overlay", "write_mask"),
    "prediction_formats": ("PICTURE_PX", "write_file_predictions"),
    "predictions": ("write_predictions",),
    "predictors": ("Predictor", "make_predictor"),
    "reports": ("draw_report", "headline", "main_figure", "report", "report_table"),
    "sources": ("open_predictor",),
    "summary": ("evaluate", "mean_and_std", "summarize", "summary_line"),
    "views": ("with_views",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__getattr__ = lazy_names(__name__, {k: f"{__name__}.{home}:{k}" for k, home in _HOMES.items()})
