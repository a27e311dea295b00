"""All results as one page of HTML, which needs no other file."""

import base64
import html
import pathlib
import string
from collections.abc import Mapping, Sequence

from studies.results import Result, format_rows, is_text, remarks, title_of
from vit_keras.support.files import write_text
from vit_keras.support.machine import describe_environment

LEADS = {
    "digits": "This page repeats every experiment behind a table or a figure of arXiv 2010.11929 "
    "on a small scale, with scikit-learn&rsquo;s 1797 handwritten digits, and shows what the paper "
    "prints beside it. Since the data differ, compare the order of the numbers rather than the "
    "numbers. The setup of each experiment is described below its table. Our rows and columns are "
    "tinted.",
    "full": "This page repeats every experiment behind a table or figure of arXiv 2010.11929 with "
    "the paper&rsquo;s own recipes, and shows what the paper prints beside it. Our rows and "
    "columns are tinted.",
}
SCREEN, DPI = 96, 150  # pixels per inch in a browser, and in our pictures
MANY = 10  # a table with so many columns has small type
VERSIONS = ("backend", "keras", "jax", "tensorflow", "torch", "numpy", "python", "platform")

PAGE = string.Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
*, *::before, *::after { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2129; max-width: 68rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .3rem; }
h2 { font-size: 1.25rem; margin-top: 3rem; padding-top: 1rem; border-top: 1px solid #d5d9e0; }
nav { columns: 24rem 2; font-size: .92rem; margin: 1.5rem 0; }
nav a { display: block; color: #2a6fbb; text-decoration: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .55rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #8a8f98; font-weight: 600; white-space: normal; max-width: 9rem;
     vertical-align: bottom; }
td { border-bottom: 1px solid #e6e9ee; }
.small { font-size: .8rem; }
.small th, .small td { padding: .2rem .35rem; }
.small td.text { white-space: normal; }
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
    """Writes one page with all `results`.

    The page embeds the pictures, so that it opens in any browser without other files.

    Args:
        path: The HTML to write. The pictures NAME.png must lie in the same folder.
        results: The results of the studies.
        faults: `{study: why it has no result}`.
        scale: "digits" or "full".

    Raises:
        FileNotFoundError: a picture does not exist. `write_result` writes it.
    """
    machine = describe_environment()
    sections = {result.name: _section(result, path.parent) for result in results}
    sections |= {name: _fault(name, text) for name, text in faults.items()}
    contents = [f'<a href="#{name}">{html.escape(title_of(name))}</a>' for name in sections]
    page = PAGE.substitute(
        title="An Image is Worth 16x16 Words, reproduced",
        lead=LEADS[scale],
        contents="".join(contents),
        sections="\n".join(sections.values()),
        footer=html.escape(", ".join(f"{key} {machine[key]}" for key in VERSIONS)),
    )
    write_text(path, page)


def _section(result, folder):
    title = html.escape(result.title)
    picture = (folder / f"{result.name}.png").read_bytes()
    data = base64.b64encode(picture).decode()
    pixels = int.from_bytes(picture[16:20], "big")  # the width in the PNG's header
    width = round(pixels * SCREEN / DPI)
    texts = "".join(
        f"<dt>{html.escape(label)}:</dt><dd>{html.escape(text)}</dd>"
        for label, text in remarks(result)
    )
    return (
        f'<section id="{result.name}">\n<h2>{title}</h2>\n'
        f'<div class="scroll">{_table(result)}</div>\n'
        f'<figure><img alt="{title}" width="{width}" src="data:image/png;base64,{data}"></figure>\n'
        f"<dl>{texts}</dl>\n</section>"
    )


def _table(result):
    classes = []
    for i, column in enumerate(result.columns):
        names = ["text"] * is_text(result, i) + ["ours"] * column.name.startswith("ours")
        classes.append(f' class="{" ".join(names)}"' if names else "")
    heads = _cells("th", classes, [column.name for column in result.columns])
    body = ""
    for row, texts in zip(result.rows, format_rows(result)):
        tint = ' class="ours"' if row[0] == "ours" else ""
        body += f"<tr{tint}>{_cells('td', classes, texts)}</tr>\n"
    small = ' class="small"' if len(classes) >= MANY else ""
    return f"<table{small}>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"


def _cells(tag, classes, texts):
    return "".join(
        f"<{tag}{attribute}>{html.escape(text)}</{tag}>" for attribute, text in zip(classes, texts)
    )


def _fault(name, text):
    title = html.escape(title_of(name))
    return (
        f'<section id="{name}">\n<h2>{title}</h2>\n'
        f'<p class="fault">Not measured: {html.escape(text)}</p>\n</section>'
    )
