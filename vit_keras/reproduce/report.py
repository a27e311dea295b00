"""All results as one page of HTML that needs nothing beside it."""

import base64
import html
import pathlib
import string
from collections.abc import Mapping, Sequence

from vit_keras.files import write_text
from vit_keras.reproduce.result_files import is_text, remarks, shown
from vit_keras.reproduce.results import Result, title_of
from vit_keras.runs import environment

LEADS = {
    "digits": "Every table and figure of arXiv 2010.11929 that an experiment stands behind, run in "
    "small on scikit-learn&rsquo;s 1797 handwritten digits, beside what the paper prints. Numbers "
    "of the two are of different data: it is their order that compares. What was made smaller "
    "stands below each table. Columns and rows of ours are tinted.",
    "full": "Every table and figure of arXiv 2010.11929 that an experiment stands behind, by the "
    "paper&rsquo;s own recipes, beside what it prints.",
}
SCREEN, DPI = 96, 150  # pixels an inch of a browser, and of our pictures
MADE_WITH = ("backend", "keras", "jax", "tensorflow", "torch", "numpy", "python", "platform")

PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2129; max-width: 68rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; }
h2 { font-size: 1.25rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid #d5d9e0; }
nav { columns: 2; font-size: .92rem; margin: 1.5rem 0; }
nav a { display: block; color: #2a6fbb; text-decoration: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .55rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #8a8f98; font-weight: 600; white-space: normal; max-width: 9rem;
     vertical-align: bottom; }
td { border-bottom: 1px solid #e6e9ee; }
.text { text-align: left; }
.ours { background: #eef4fb; }
figure { margin: 1.2rem 0; text-align: center; }
img { max-width: 100%; height: auto; }
dt { font-weight: 600; float: left; clear: left; margin-right: .5rem; }
dd { margin: 0 0 .35rem 0; }
.fault { background: #fdf3e7; padding: .6rem .9rem; white-space: pre-wrap; }
footer { margin-top: 3rem; color: #5b616b; font-size: .85rem; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$lead</p>
<nav>$contents</nav>
$sections
<footer>$footer</footer>
</body>
</html>
""")


def write_report(
    path: pathlib.Path,
    results: Sequence[Result],
    faults: Mapping[str, str],
    scale: str,
) -> None:
    """Writes one page with all `results`, whose pictures lie beside it, and `faults` by study.

    The pictures become data URIs: the file opens anywhere, alone.
    """
    machine = environment()
    sections = {result.name: _section(result, path.parent) for result in results}
    sections |= {name: _fault(name, text) for name, text in faults.items()}
    contents = [f'<a href="#{name}">{html.escape(title_of(name))}</a>' for name in sections]
    page = PAGE.substitute(
        title="An Image is Worth 16x16 Words, reproduced",
        lead=LEADS[scale],
        contents="".join(contents),
        sections="\n".join(sections.values()),
        footer=html.escape(", ".join(f"{key} {machine[key]}" for key in MADE_WITH)),
    )
    write_text(path, page)


def _section(result, folder):
    title = html.escape(result.title)
    picture = (folder / f"{result.name}.png").read_bytes()
    data = base64.b64encode(picture).decode()
    width = round(int.from_bytes(picture[16:20], "big") * SCREEN / DPI)  # a PNG's first field
    said = "".join(
        f"<dt>{html.escape(label)}:</dt><dd>{html.escape(text)}</dd>"
        for label, text in remarks(result)
    )
    return (
        f'<section id="{result.name}">\n<h2>{title}</h2>\n'
        f'<div class="scroll">{_table(result)}</div>\n'
        f'<figure><img alt="{title}" width="{width}" src="data:image/png;base64,{data}"></figure>\n'
        f"<dl>{said}</dl>\n</section>"
    )


def _table(result):
    classes = []
    for i, column in enumerate(result.columns):
        names = ["text"] * is_text(result, i) + ["ours"] * column.name.startswith("ours")
        classes.append(f' class="{" ".join(names)}"' if names else "")
    heads = _cells("th", classes, [column.name for column in result.columns])
    body = ""
    for row in result.rows:
        texts = [shown(value, column.form) for value, column in zip(row, result.columns)]
        tint = ' class="ours"' if row[0] == "ours" else ""
        body += f"<tr{tint}>{_cells('td', classes, texts)}</tr>\n"
    return f"<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _cells(tag, classes, texts):
    return "".join(
        f"<{tag}{kind}>{html.escape(text)}</{tag}>" for kind, text in zip(classes, texts)
    )


def _fault(name, text):
    title = html.escape(title_of(name))
    return (
        f'<section id="{name}">\n<h2>{title}</h2>\n'
        f'<p class="fault">Not measured: {html.escape(text)}</p>\n</section>'
    )
