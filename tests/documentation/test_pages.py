"""Every block of code on the pages runs, every command line parses, and quoted lines are there."""

import ast
import builtins
import collections
import json
import re

import keras
import pytest

from tests.documentation.blocks import ELSEWHERE, PAGES, blocks_of
from tests.helpers import ROOT, run_script

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
OF_BACKENDS = [block for block in BLOCKS if block.backend]
QUOTED = [block for block in BLOCKS if block.note.startswith("from ")]


def results(folder, *pages, **variables):
    target = folder / "results.json"
    arguments = ["-m", "tests.documentation.run_blocks", target, *pages]
    run_script(*arguments, backend="torch", timeout=900, **variables)
    return json.loads(target.read_text())


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    return results(tmp_path_factory.mktemp("pages"))


@pytest.mark.on("torch")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(counted, page):
    assert not counted[page]["errors"], "\n".join(counted[page]["errors"])


@pytest.mark.on("torch")
def test_no_block_is_left_out(counted):
    sums = collections.Counter()
    for counts in counted.values():
        sums.update({name: n for name, n in counts.items() if name != "errors"})
    kinds = collections.Counter(block.kind for block in BLOCKS if not block.is_text)
    later = [block for block in BLOCKS if block.note == "nightly"]
    others = [block for block in OF_BACKENDS if block.backend != "torch"]
    elsewhere = [b for b in BLOCKS if b.page in ELSEWHERE and b.kind == "python"]
    assert sums["run"] == kinds["python"] - len(later) - len(others) - len(elsewhere)
    assert kinds.keys() == {"python", "shell", "console"}
    assert sums["commands"] == sum(
        len(list(block.commands())) for block in BLOCKS if block.kind in ("shell", "console")
    )
    assert sums["commands run"] > 15


@pytest.mark.on("torch")
@pytest.mark.nightly
def test_long_blocks_run_at_night(tmp_path):
    pages = sorted({block.page for block in BLOCKS if block.note == "nightly"})
    ran = results(tmp_path, *pages, NIGHTLY="1")
    assert not [error for page in pages for error in ran[page]["errors"]]


@pytest.mark.parametrize("block", OF_BACKENDS, ids=lambda block: f"{block.backend}-{block.line}")
def test_a_block_of_one_backend_runs_there(block):
    if block.backend != keras.backend.backend():
        assert block.backend in ("jax", "tensorflow", "torch")
        return
    exec(compile(block.text, block.page, "exec"), {})


@pytest.mark.once
@pytest.mark.parametrize("block", QUOTED, ids=lambda block: f"{block.page}:{block.line}")
def test_quoted_lines_stand_in_the_file_in_this_order(block):
    source = (ROOT / block.note.removeprefix("from ")).read_text()
    lines = [line.strip() for line in source.splitlines()]
    place = 0
    excerpt = block.text.removeprefix(f"# excerpt of {block.note.removeprefix('from ')}\n")
    assert excerpt != block.text, "the first line must name the file"
    for piece in re.split(r"^# \.\.\.\n", excerpt, flags=re.MULTILINE):
        quoted = [line.strip() for line in piece.strip().splitlines()]
        places = range(place, len(lines) - len(quoted) + 1)
        matches = [i for i in places if lines[i : i + len(quoted)] == quoted]
        assert matches, f"{block.note} has no lines\n{piece}"
        place = matches[0] + len(quoted)


@pytest.mark.once
def test_blocks_that_other_tests_run_are_named_there():
    for page, files in ELSEWHERE.items():
        assert all(page.lower() in (ROOT / file).read_text().lower() for file in files)


def undefined(code):
    """Names that code uses and does not define."""
    known, used = {*dir(builtins), "__name__"}, set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(x.asname or x.name).partition(".")[0] for x in node.names}
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.ExceptHandler):
            known.add(node.name)
    return used - known


@pytest.mark.once
@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/")])
def test_a_block_defines_its_names_or_says_what_precedes_it(page):
    blocks = [block for block in blocks_of(page) if block.kind == "python"]
    for block in blocks:
        says = block.text.startswith(("# after the ", "# excerpt of "))
        assert says or not undefined(block.text), f"{page}:{block.line}"
    assert not (blocks and blocks[0].text.startswith("# after the ")), "no block precedes it"
