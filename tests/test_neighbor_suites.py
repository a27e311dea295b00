"""The command that counts neighbors' suites reads pytest's reports."""

import xml.etree.ElementTree as ElementTree

import pytest

from benchmarks.neighbor_suites import SUITES, count
from tests.helpers import ROOT

pytestmark = pytest.mark.once

REPORT = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"><skipped message="no package"/></testcase>
<testcase name="c"><properties>
<property name="refused" value="`x` must be even. Received: x=3"/></properties></testcase>
<testcase name="d"><properties>
<property name="refused" value="`x` must be even. Received: x=5"/></properties></testcase>
</testsuite></testsuites>"""


def test_cases_and_reasons_are_counted():
    cases, reasons = count(ElementTree.fromstring(REPORT))
    assert cases == {"tried": 4, "passed": 1, "skipped": 1, "refused": 2}
    assert reasons == {"`x` must be even.": 2}


def test_every_suite_has_its_files_and_its_row_on_the_page():
    page = (ROOT / "docs" / "neighbors.md").read_text()
    for name, suite in SUITES.items():
        assert all((ROOT / file).is_file() for file in suite.files)
        for backend in suite.backends:
            assert f"| {name} | {backend} |" in page
