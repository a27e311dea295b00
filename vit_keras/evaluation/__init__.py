"""Evaluation: arrays in, numbers out."""

from vit_keras.evaluation.classification import classify, predict, probabilities, report, table

__all__ = ["classify", "predict", "probabilities", "report", "table"]
