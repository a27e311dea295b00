"""Writes the table in docs/recipes.md from the heads of the files in `configs`.

    python -m tools.recipe_table

A head says what a recipe does, and states its command, its cost and its result.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
CONFIGS = ROOT / "configs"
PAGE = ROOT / "docs" / "recipes.md"
TABLE = re.compile(r"(<!-- recipes (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = re.compile(r"\A(?:#.*\n)+")


def head_of(path: pathlib.Path) -> dict[str, str]:
    """Returns what a recipe's head says: "what", "command", "cost" and "result"."""
    lines = [line[1:] for line in HEAD.match(path.read_text(encoding="utf-8"))[0].splitlines()]
    what, command, rest = [], [], []
    for line in lines:
        place = command if line.startswith("   ") and not rest else rest if command else what
        place.append(line.strip())
    text = " ".join(filter(None, rest))
    cost, _, result = re.split(r"((?:^|(?<=\. ))Result)", text, maxsplit=1)
    result = re.sub(r"^ (?:in the paper|of its authors|as published)", lambda m: m[0][1:], result)
    return {
        "what": " ".join(filter(None, what)),
        "command": ", then ".join(f"`{line}`" for line in _commands(command)),
        "cost": re.sub(r"^Cost(?: of a run)?: ", "", cost).strip(),
        "result": result.removeprefix(": "),
    }


def _commands(lines):
    """The command lines, each whole and without the choice of a backend."""
    text = " ".join(line.removesuffix("\\").strip() for line in lines if line)
    return re.split(r" (?=python )", re.sub(r"KERAS_BACKEND=\w+ ", "", text))


def names(folder: str) -> list[str]:
    """The names of the recipes in a folder of `configs`; "." for those beside the folders."""
    paths = sorted((CONFIGS / folder).glob("*.yaml"))
    return [path.relative_to(CONFIGS).with_suffix("").as_posix() for path in paths]


def table(folder: str) -> str:
    """The table of a folder's recipes; those that differ in their names alone are one row."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name in names(folder):
        head = head_of(CONFIGS / f"{name}.yaml")
        options = re.sub(rf"^`python train.py --config {name} ?(.*`)$", r"`\1", head["command"])
        result = re.sub(r"docs/(\w+)\.md", r"[\1](\1.md)", head["result"])
        cells = head["what"].rstrip(":"), options.replace("``", ""), head["cost"], result
        own = rf"(?<=[/']){name.rpartition('/')[2]}(?=['`])"
        rows.setdefault(tuple(re.sub(own, "NAME", cell) for cell in cells), []).append(name)
    lines = ["| recipe | what it does | options | cost | result |", "|---|---|---|---|---|"]
    for cells, same in rows.items():
        if len(same) == 1:
            cells = [cell.replace("NAME", same[0].rpartition("/")[2]) for cell in cells]
        cells = [", ".join(f"`{name}`" for name in same), *cells]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def filled(text: str) -> str:
    """Returns the page with its tables as the heads have them."""
    return TABLE.sub(lambda match: f"{match[1]}{table(match[2])}{match[3]}", text)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
