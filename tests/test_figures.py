"""Figures of training and evaluation show what they are given."""

import itertools

import numpy as np
import pytest

from vit_keras import data
from vit_keras.support import figures

pytestmark = pytest.mark.once

DOGS = [f"American Staffordshire terrier {i}" for i in range(8)]
CASES = {
    "long names": DOGS,
    "very long names": [f"{name}, also called by another name" for name in DOGS],
    "short names": [str(i) for i in range(10)],
    "many classes": [f"class number {i}" for i in range(30)],
    "breeds of 60 characters": [f"{i:02}{58 * 'w'}" for i in range(37)],
    "a hundred classes": [f"a class with the number {i}" for i in range(100)],
}


@pytest.fixture
def drawn(monkeypatch):
    """Calls a function that draws and returns its figure, laid out but not written."""
    kept = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.append(figure))

    def draw(function, *arguments):
        function(*arguments, "nowhere")
        kept[-1].draw_without_rendering()
        return kept.pop()

    return draw


@pytest.mark.parametrize("names", CASES.values(), ids=CASES)
def test_class_names_stand_apart_in_a_confusion_matrix(drawn, names):
    figure = drawn(figures.confusion, np.eye(len(names), dtype=int), names)
    axis = figure.axes[0]
    for labels in (axis.get_xticklabels(), axis.get_yticklabels()):
        boxes = [label.get_window_extent() for label in labels]
        assert len(boxes) == len(names)
        for one, other in itertools.pairwise(boxes):
            assert not one.overlaps(other)
        for box in boxes:
            assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
            assert figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1
    cell = axis.get_window_extent().width / len(names)
    for count in (text.get_window_extent() for text in axis.texts):
        assert count.height < cell and count.width < cell


def test_a_confusion_matrix_counts_true_classes_down_and_predictions_across(drawn):
    figure = drawn(figures.confusion, [[5, 1], [0, 4]], ["cat", "dog"])
    axis = figure.axes[0]
    counts = {text.get_position(): text.get_text() for text in axis.texts}
    assert counts == {(0, 0): "5", (1, 0): "1", (1, 1): "4"}
    assert axis.get_title() == "90.00 % of 10 images"
    assert [label.get_text() for label in axis.get_xticklabels()] == ["cat", "dog"]


@pytest.mark.parametrize(("count", "has_counts", "has_names"), [(41, 0, 1), (101, 0, 0)])
def test_more_classes_than_fit_have_no_counts_or_no_names(drawn, count, has_counts, has_names):
    names = [f"class {i}" for i in range(count)]
    axis = drawn(figures.confusion, np.eye(count, dtype=int), names).axes[0]
    assert bool(axis.texts) == has_counts
    assert ([label.get_text() for label in axis.get_yticklabels()] == names) == has_names


def test_figures_of_an_evaluation_carry_the_name_of_the_data_set(monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.append(figure))
    figures.confusion([[3, 1], [0, 0]], ["cat", "dog"], "nowhere", "flowers")
    bins = [{"lower": 0, "upper": 1, "accuracy": 0.5, "confidence": 0.6, "images": 4}]
    figures.reliability({"ece": 0.1, "bins": bins}, "nowhere", "flowers")
    titles = [figure.axes[0].get_title() for figure in kept]
    assert titles == [
        "flowers: 75.00 % of 4 images",
        "flowers: expected calibration error 10.00 %",
    ]


@pytest.mark.parametrize(
    ("name", "longest", "expected"),
    [
        ("Staffordshire terrier", 21, "Staffordshire terrier"),
        ("Staffordshire terrier 3", 16, "Staffords…rier 3"),
        ("Staffordshire terrier 4", 16, "Staffords…rier 4"),
        ("abcdef", 4, "ab…f"),
    ],
)
def test_a_long_name_keeps_both_ends(name, longest, expected):
    assert figures.shorten(name, longest) == expected
    assert len(expected) <= longest


def test_a_long_title_is_broken_into_lines_that_fit():
    title = "American Staffordshire bull terrier of the northern kind, number 3  98 %"
    lines = figures.wrap(title, 15).split("\n")
    assert len(lines) <= 3 and max(map(len, lines)) <= 15
    assert lines[0] == "American" and lines[-1].endswith("98 %")
    assert figures.wrap("cat  98 %", 15) == "cat  98 %"


def font_with(folder, characters):
    """Writes a font in which each character is a square of other size, and makes it known."""
    from fontTools.fontBuilder import FontBuilder
    from fontTools.pens.ttGlyphPen import TTGlyphPen
    from matplotlib import font_manager

    names = [".notdef", *(f"glyph{i}" for i in range(len(characters)))]
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(dict(zip(map(ord, characters), names[1:])))
    glyphs = {}
    for side, name in enumerate(names, 2):
        pen = TTGlyphPen(None)
        pen.moveTo((0, 0))
        for corner in ((0, 100 * side), (100 * side, 100 * side), (100 * side, 0)):
            pen.lineTo(corner)
        pen.closePath()
        glyphs[name] = pen.glyph()
    builder.setupGlyf(glyphs)
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": f"Test {folder.name}", "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(folder / "font.ttf")
    font_manager.fontManager.addfont(folder / "font.ttf")
    figures.font_of.cache_clear()
    return str(folder / "font.ttf")


NOWHERE = "\U000f0001\U000f0002"  # for private use: in no font of a machine


def test_a_name_that_no_font_can_draw_is_written_in_escapes(tmp_path):
    with pytest.warns(UserWarning, match="No font on this machine can draw"):
        assert figures.drawable(f"cat {NOWHERE[0]}") == r"cat \U000f0001"
    assert figures.drawable("Käfer … собака") == "Käfer … собака"  # DejaVu Sans has it


def test_a_name_is_drawn_by_the_font_that_has_its_characters(tmp_path, recwarn):
    path = font_with(tmp_path, NOWHERE)
    assert figures.font_of(NOWHERE[1]) == path and figures.drawable(NOWHERE) == NOWHERE
    drawn = []
    for name in NOWHERE:
        figures.confusion([[3, 1], [0, 2]], [name, "$5$"], tmp_path / "a.png")
        drawn.append((tmp_path / "a.png").read_bytes())
    assert drawn[0] != drawn[1]  # two boxes for a missing character would be the same
    assert not [warning for warning in recwarn if "Glyph" in str(warning.message)]


def test_a_contact_sheet_draws_a_caption_by_the_font_that_has_its_characters(tmp_path):
    font_with(tmp_path, NOWHERE)
    image = np.zeros((1, 112, 112, 3), "uint8")
    sheets = [np.asarray(data.draw_contact_sheet(image, [f"{c} 70 %"])) for c in NOWHERE]
    dark = [(sheet[124:] < 128).sum() for sheet in sheets]
    assert dark[0] < dark[1]  # the second square is the larger one
