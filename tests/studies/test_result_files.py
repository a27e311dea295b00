"""The files of a result contain its values and open without other files."""

import base64
import csv
import html.parser
import io
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from studies import table3
from studies.plots import bars, lines, side_by_side
from studies.report import write_report
from studies.results import Column, Mean, Result, as_csv, as_markdown, as_text, write_result
from vit_keras.support.figures import new_figure, save_figure

pytestmark = pytest.mark.once


def draw(path):
    figure, axes = new_figure(2, 1)
    axes[0, 0].plot([1, 3, 2])
    save_figure(figure, path)


@pytest.fixture
def result():
    columns = Column("source"), Column("a < b"), Column("count", ",d"), Column("accuracy", ".2f")
    rows = [
        ["ours", "1-D & more", 12345, Mean(61.3819, 0.456)],
        ["paper", "none", None, Mean(59.1)],
    ]
    return Result("table8", columns, rows, draw, "ours < paper.", "fewer images.")


def test_csv_has_all_digits_and_the_standard_deviations(result):
    header, *rows = csv.reader(io.StringIO(as_csv(result)))
    assert header == ["source", "a < b", "count", "accuracy", "accuracy std"]
    assert rows[0] == ["ours", "1-D & more", "12345", "61.3819", "0.456"]
    assert rows[1] == ["paper", "none", "", "59.1", ""]


def test_markdown_has_the_table_and_the_remarks(result):
    lines = as_markdown(result).splitlines()
    table = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|"
    ]
    assert table == [
        ["source", "a < b", "count", "accuracy"],
        ["---", "---", "--:", "--:"],
        ["ours", "1-D & more", "12,345", "61.38 ± 0.46"],
        ["paper", "none", "-", "59.10"],
    ]
    assert lines[0] == "## Table 8. Position embeddings"
    assert "Ours: ours < paper." in lines and "Setup: fewer images." in lines
    assert "![Table 8. Position embeddings](table8.png)" in lines


class Page(html.parser.HTMLParser):
    """Collects the cells, images and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.images, self.text, self.open = [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.cells.append([])
        if tag in ("td", "th"):
            self.cells[-1].append("")
        if tag == "img":
            self.images.append(dict(attributes)["src"])
        if tag not in ("img", "meta"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1][-1] += data


def test_the_report_needs_no_other_file(result, tmp_path):
    files = write_result(result, tmp_path)
    assert [path.name for path in files] == ["table8.csv", "table8.png", "table8.md"]
    report = tmp_path / "report.html"
    write_report(report, [result], {"table2": "no <data> here"}, "digits")
    page = Page(report.read_text())
    assert page.open == []
    assert page.cells == [
        ["source", "a < b", "count", "accuracy"],
        ["ours", "1-D & more", "12,345", "61.38 ± 0.46"],
        ["paper", "none", "-", "59.10"],
    ]
    (source,) = page.images
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == files[1].read_bytes()
    assert "Not measured: no <data> here" in page.text and 'src="http' not in report.read_text()


PROBE = """<script>
const boxes = [...document.querySelectorAll(".scroll")];
document.body.dataset.widths = boxes.map(box => `${box.scrollWidth}/${box.clientWidth}`).join(" ");
</script></body>"""


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_the_widest_table_fits_a_window_of_1200_pixels(tmp_path):
    write_result(table3.run(None), tmp_path)
    report = tmp_path / "report.html"
    write_report(report, [table3.run(None)], {}, "full")
    report.write_text(report.read_text().replace("</body>", PROBE))
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", report.as_uri()]
    page = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    needed, visible = map(int, re.search(r'data-widths="(\d+)/(\d+)"', page).groups())
    assert 900 < visible < 1200 and needed <= visible


def test_columns_of_a_terminal_table_are_aligned(result):
    header, first, second, *_ = as_text(result).splitlines()
    assert header.index("accuracy") + len("accuracy") == len(first) == len(second)
    assert first.index("12,345") + 6 == header.index("count") + 5


def test_a_row_must_have_a_value_for_each_column():
    with pytest.raises(ValueError, match=r"one value for each of 2 columns\. Received: \[1\]"):
        Result("table8", (Column("a"), Column("b")), [[1]], draw, "")


def test_a_mean_has_the_standard_deviation_of_a_sample():
    mean = Mean.of([1.0, 2.0, 6.0])
    assert mean == (3.0, pytest.approx(np.std([1, 2, 6], ddof=1)))
    assert f"{mean:.1f}" == "3.0 ± 2.6" and f"{Mean.of([2.0]):.1f}" == "2.0"


def test_pictures_are_drawn_and_joined(tmp_path):
    series = {"ViT": {"a": Mean(1.0, 0.1), "b": None}, "BiT": {"a": 2.0, "b": 3.0}}
    bars({"ours": series, "paper": {"": {"a": 0.5}}}, "accuracy", tmp_path / "bars.png")
    curves = {"ViT-B": {1: 2.0, 10: Mean(3.0, 0.2)}, "ViT-L": {1: None, 10: 4.0}}
    lines({"ours": curves}, ("x", "y"), tmp_path / "lines.png")
    paths = [tmp_path / "bars.png", tmp_path / "lines.png"]
    side_by_side(paths, tmp_path / "both.png")
    sizes = [Image.open(path).size for path in paths]
    both = np.asarray(Image.open(tmp_path / "both.png"))
    assert both.shape == (max(h for _, h in sizes), sum(w for w, _ in sizes), 3)
    offset = (both.shape[0] - sizes[0][1]) // 2
    left = both[offset : offset + sizes[0][1], : sizes[0][0]]
    np.testing.assert_array_equal(left, np.asarray(Image.open(paths[0]).convert("RGB")))
