"""The paper's tables and figures as studies: our results beside what the paper prints.

Example:
    folder = pathlib.Path("reproduction")
    lab = Lab(folder, DigitsScale(folder))
    print(as_text(study("table8")(lab)))
"""

from vit_keras.reproduce.digits_scale import DigitsScale
from vit_keras.reproduce.full_scale import FullScale
from vit_keras.reproduce.lab import Lab, Trained, replace_fields
from vit_keras.reproduce.report import write_report
from vit_keras.reproduce.result_files import as_csv, as_markdown, as_text, write_result
from vit_keras.reproduce.results import Column, Mean, Result, published, rows_of, title_of
from vit_keras.reproduce.studies import NAMES, study

__all__ = [
    "NAMES",
    "Column",
    "DigitsScale",
    "FullScale",
    "Lab",
    "Mean",
    "Result",
    "Trained",
    "as_csv",
    "as_markdown",
    "as_text",
    "published",
    "replace_fields",
    "rows_of",
    "study",
    "title_of",
    "write_report",
    "write_result",
]
