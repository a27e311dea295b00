"""The same picture, the same answer: here, and where other projects read the same files."""

import numpy as np
import pytest

from benchmarks.photographs import photographs
from benchmarks.same_answer import CASES, NEW, compare, exported, is_cut_alike, told
from tests.peers import peer

pytestmark = pytest.mark.once
# Pillow rounds to whole levels after each pass, which docs/same_answer.md measures.
WHOLE, CROPPED = 2e-3, 5e-3
QUICK = [case for case in CASES if case.preprocessing is NEW or case.format == "torchvision"]
OTHERS = [pytest.param(case, marks=pytest.mark.nightly) for case in CASES if case not in QUICK]


def name_of(case):
    return f"{case.format}, {told(case.preprocessing)}"


@pytest.mark.parametrize("case", QUICK + OTHERS, ids=name_of)
def test_photographs_have_the_same_probabilities(case, tmp_path):
    peer({"huggingface": "transformers"}.get(case.format, case.format))
    paths = photographs()
    answers = compare(case, paths, tmp_path)
    assert answers["ours"].std(axis=0).max() > 0.1  # or nothing would be compared
    alike = [is_cut_alike(path, case.preprocessing) for path in paths]
    atol = WHOLE if case.preprocessing.crop_fraction is None else CROPPED
    np.testing.assert_allclose(answers["theirs"][alike], answers["ours"][alike], atol=atol)
    again = answers["ours again"]
    np.testing.assert_allclose(again[alike], answers["ours"][alike], atol=1e-5)
    np.testing.assert_allclose(answers["theirs again"], answers["theirs"], atol=1e-5)


@pytest.mark.nightly
def test_exported_files_give_the_same_probabilities(tmp_path):
    answers = exported(NEW, photographs(), tmp_path)
    ours = answers.pop("ours")
    answers.pop("MediaPipe, whole photographs", None)  # which it resizes without averages
    for name, theirs in answers.items():
        np.testing.assert_allclose(theirs, ours, atol=WHOLE, err_msg=name)
