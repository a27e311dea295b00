"""The paper's tables and figures as commands: ours beside what it prints."""

from vit_keras.reproduce.full import Full
from vit_keras.reproduce.lab import Lab, Trained, changed
from vit_keras.reproduce.report import write_report
from vit_keras.reproduce.result_files import as_csv, as_markdown, as_text, write_result
from vit_keras.reproduce.results import Column, Mean, Result, published, rows_of, title_of
from vit_keras.reproduce.small import Digits
from vit_keras.reproduce.studies import NAMES, study

__all__ = [
    "NAMES",
    "Column",
    "Digits",
    "Full",
    "Lab",
    "Mean",
    "Result",
    "Trained",
    "as_csv",
    "as_markdown",
    "as_text",
    "changed",
    "published",
    "rows_of",
    "study",
    "title_of",
    "write_report",
    "write_result",
]
