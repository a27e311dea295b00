"""Writes the examples in percent format as notebooks beside them.

    python -m tools.notebooks

A cell begins with a line `# %%`, or with `# %% [markdown]` for text, whose lines are comments. A
line `# %pip ...` is a comment in the script and a command in the notebook.
"""

import json
import pathlib

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
CELL, TEXT = "# %%", "# %% [markdown]"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def scripts() -> list[pathlib.Path]:
    """The examples that are written in cells."""
    return [path for path in sorted(EXAMPLES.glob("*.py")) if path.read_text().startswith(CELL)]


def notebook(script: pathlib.Path) -> str:
    """Returns the notebook of a script, as the JSON of nbformat 4.5."""
    cells: list[dict] = []
    for line in script.read_text().splitlines():
        if line.startswith(CELL):
            kind = "markdown" if line == TEXT else "code"
            cells.append({"kind": kind, "lines": []})
        else:
            cells[-1]["lines"].append(line)
    rows = [_cell(f"{script.stem}-{number}", **cell) for number, cell in enumerate(cells)]
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    content = {"cells": rows, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(name, kind, lines):
    if kind == "markdown":
        lines = [line.removeprefix("#").removeprefix(" ") for line in lines]
    else:
        lines = [line.removeprefix("# ") if line.startswith("# %pip") else line for line in lines]
    source = "\n".join(lines).strip("\n").splitlines(keepends=True)
    cell = {"cell_type": kind, "id": name, "metadata": {}, "source": source}
    return cell if kind == "markdown" else {**cell, "execution_count": None, "outputs": []}


def main() -> None:
    for script in scripts():
        script.with_suffix(".ipynb").write_text(notebook(script))


if __name__ == "__main__":
    main()
