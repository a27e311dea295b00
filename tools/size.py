"""Counts the lines of code of the package's rooms, without docstrings, comments and blank lines.

python -m tools.size
"""

import ast
import io
import pathlib
import tokenize

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


def main():
    rooms: dict[str, list[int]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0]
        rooms.setdefault(room, []).append(code_lines(path.read_text()))
    for room, counts in sorted(rooms.items(), key=lambda item: -sum(item[1])):
        print(f"{sum(counts):6}  {len(counts):3} files  {room}")
    every = [count for counts in rooms.values() for count in counts]
    print(f"{sum(every):6}  {len(every):3} files  vit_keras")


if __name__ == "__main__":
    main()
