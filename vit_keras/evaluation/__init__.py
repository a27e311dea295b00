"""Predictions, and the metrics that judge them.

A module is imported when one of its names is first used, so exported files run without Keras.
"""

# ruff: noqa: F401
from typing import TYPE_CHECKING

from vit_keras.support.extras import typed_names

if TYPE_CHECKING:
    from vit_keras.evaluation.box_prediction import (
        best_box_thresholds,
        certain,
        draw_boxes,
        errors_of,
        predict_boxes,
        predict_split,
        report_boxes,
    )
    from vit_keras.evaluation.conformal import (
        abstains,
        fit_floors,
        fit_quantiles,
        intervals,
        measure_coverage,
        possible_answers,
    )
    from vit_keras.evaluation.file_predictions import (
        FilePrediction,
        classify,
        predict_files,
        with_views,
    )
    from vit_keras.evaluation.label_issues import (
        LabelIssue,
        cross_validated_probabilities,
        early_features,
        find_label_issues,
        suspicion,
    )
    from vit_keras.evaluation.mask_prediction import (
        TileOptions,
        draw_overlay,
        predict_mask,
        predict_masks,
        write_mask,
    )
    from vit_keras.evaluation.metrics import (
        best_thresholds,
        fit_temperature,
        measure_calibration,
        read_real_labels,
        real_accuracy,
    )
    from vit_keras.evaluation.output_files import (
        PICTURE_PX,
        write_file_predictions,
        write_predictions,
    )
    from vit_keras.evaluation.predictors import (
        Predictor,
        make_predictor,
        open_predictor,
        predict,
        probabilities,
        sigmoid,
    )
    from vit_keras.evaluation.probes import (
        FewShotCallback,
        LeastSquares,
        evaluate_few_shot,
        evaluate_knn,
        feature_model,
        few_shot,
        few_shot_table,
        knn,
        knn_table,
        nearest_neighbors,
        retrieval_recall,
    )
    from vit_keras.evaluation.reports import (
        draw_report,
        evaluate,
        headline,
        main_figure,
        mean_and_std,
        report,
        report_table,
        summarize,
        summary_line,
    )

__getattr__, __all__ = typed_names(__name__)
