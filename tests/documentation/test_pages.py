"""Every block of code on the pages runs, every command line parses, and quoted lines are there."""

import json
import re
import subprocess
import sys

import keras
import pytest

from tests.documentation.blocks import PAGES, blocks_of
from tests.helpers import ROOT, run_script

BLOCKS = [block for page in PAGES for block in blocks_of(page)]
OF_BACKENDS = [block for block in BLOCKS if block.backend]
QUOTED = [block for block in BLOCKS if block.note.startswith("from ")]


def errors(folder, *pages, **variables):
    target = folder / "errors.json"
    arguments = ["-m", "tests.documentation.run_blocks", target, *pages]
    run_script(*arguments, backend="torch", timeout=900, **variables)
    return json.loads(target.read_text())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return errors(tmp_path_factory.mktemp("pages"))


@pytest.mark.on("torch")
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(found, page):
    assert not found[page], "\n".join(found[page])


@pytest.mark.on("torch")
@pytest.mark.nightly
def test_long_blocks_run_at_night(tmp_path):
    pages = sorted({block.page for block in BLOCKS if block.note == "nightly"})
    assert not any(errors(tmp_path, *pages, NIGHTLY="1").values())


@pytest.mark.parametrize("block", OF_BACKENDS, ids=lambda block: f"{block.backend}-{block.line}")
def test_a_block_of_one_backend_runs_there(block):
    if block.backend == keras.backend.backend():
        exec(compile(block.text, block.page, "exec"), {})


@pytest.mark.once
@pytest.mark.parametrize("block", QUOTED, ids=lambda block: f"{block.page}:{block.line}")
def test_quoted_lines_stand_in_the_file_in_this_order(block):
    file = block.note.removeprefix("from ")
    lines = [line.strip() for line in (ROOT / file).read_text().splitlines()]
    assert block.text.startswith(f"# excerpt of {file}\n")
    excerpt = block.text.partition("\n")[2]
    for piece in re.split(r"^# \.\.\.\n", excerpt, flags=re.MULTILINE):
        quoted = [line.strip() for line in piece.strip().splitlines()]
        starts = range(len(lines) - len(quoted) + 1)
        first = next((i for i in starts if lines[i : i + len(quoted)] == quoted), None)
        assert first is not None, f"{file} has no lines\n{piece}"
        lines = lines[first + len(quoted) :]


@pytest.mark.once
def test_a_block_defines_its_names_or_says_what_precedes_it(tmp_path):
    for block in BLOCKS:
        alone = not block.text.startswith(("# after the ", "# excerpt of "))
        if block.kind == "python" and block.page.startswith("docs/") and alone:
            name = f"{block.page.replace('/', '_')}_{block.line}.py"
            (tmp_path / name).write_text(block.text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
