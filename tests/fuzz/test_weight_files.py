"""Damaged and crafted files of weights are refused by name, or say what they said before.

`python -m tests.fuzz.count` does the same with thousands of files, in processes that may crash.
"""

import pytest
from hypothesis import given, strategies

from tests.fuzz import subjects
from tests.fuzz.cases import Case, Cases
from tests.fuzz.crafted_torch import trap
from tests.fuzz.outcomes import FINE, WRONG, judge
from tests.fuzz.strategies import damages, fixed, shares

pytest.importorskip("torch")
pytestmark = [pytest.mark.once]


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return Cases(tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_damage_is_refused_or_has_no_effect(cases, name):
    subject = subjects.SUBJECTS[name]
    folder, right, _ = cases.prepared(name)
    place = cases.folder / "damaged"
    accepted = FINE if subject.checked else (*FINE, WRONG)

    @fixed(6)
    @given(damages, shares)
    def check(damage, share):
        subjects.copied(folder, place)
        path = place / subject.path
        files = sorted(path.iterdir()) if path.is_dir() else [path]
        file = files[int(share * len(files))]
        file.write_bytes(damage(file.read_bytes()))
        outcome, message = judge(subject.open, path, right)
        assert outcome in accepted, f"{outcome}: {message}"
        assert not trap(path).exists()

    check()


@pytest.mark.parametrize("name", subjects.SUBJECTS)
def test_crafted_files_are_refused_or_have_no_effect(cases, name):
    crafts = cases.prepared(name)[2]

    @fixed(12)
    @given(strategies.integers(0, len(crafts) - 1))
    def check(number):
        verdict = cases.judge(Case(name, "crafted", number))
        assert verdict.outcome in FINE, f"{crafts[number].name}: {verdict}"

    check()
