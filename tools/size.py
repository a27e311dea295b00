"""Counts the lines of code of the package's rooms, without docstrings, comments and blank lines.

It also prints how many names the package has at its top, how many files a single other file
imports, and the largest files. It fails above its bounds, which are lowered as the package shrinks.

python -m tools.size
"""

import ast
import io
import operator
import pathlib
import sys
import tokenize

MOST_LINES, MOST_FILES, MOST_NAMES = 25_910, 183, 20
PACKAGE = pathlib.Path(__file__).parents[1] / "vit_keras"
NO_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    tokenize.ENDMARKER,
}


def code_lines(text: str) -> int:
    """The number of lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        has_docstring = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        if has_docstring and ast.get_docstring(node, clean=False) is not None:
            lines.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(lines)


def importers(paths: list[pathlib.Path]) -> dict[str, set[str]]:
    """`{module: the modules that import it}`, imports inside functions included."""
    names = {
        path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in paths
    }
    known = {name.removesuffix(".__init__") for name in names.values()}
    result: dict[str, set[str]] = {name: set() for name in known}
    for path, name in names.items():
        for node in ast.walk(ast.parse(path.read_text())):
            for imported in _imported(node) & known:
                result[imported].add(name.removesuffix(".__init__"))
    return result


def _imported(node) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if isinstance(node, ast.ImportFrom):
        return {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return set()


def main() -> int:
    paths = sorted(PACKAGE.rglob("*.py"))
    counts = {path.relative_to(PACKAGE): code_lines(path.read_text()) for path in paths}
    rooms: dict[str, list[int]] = {}
    for path, count in counts.items():
        rooms.setdefault(path.parts[0], []).append(count)
    for room, lines in sorted(rooms.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(lines):6}  {len(lines):3} files  {room}")
    print(f"{sum(counts.values()):6}  {len(counts):3} files  in all")
    lonely = sum(len(users) == 1 for users in importers(paths).values())
    print(f"{len(rooms):6}  names at the top")
    print(f"{lonely:6}  files with one importer")
    for path in sorted(counts, key=lambda path: -counts[path])[:5]:
        print(f"{counts[path]:6}  {path}")
    sizes = sum(counts.values()), len(counts), len(rooms)
    return 1 if any(map(operator.gt, sizes, (MOST_LINES, MOST_FILES, MOST_NAMES))) else 0


if __name__ == "__main__":
    sys.exit(main())
