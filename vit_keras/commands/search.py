"""`vit-keras search`: the pictures of a table of features that are most like others."""

import argparse
import contextlib
import itertools
import pathlib

from vit_keras.commands import options as shared
from vit_keras.commands import streams
from vit_keras.config import UsageError

FORMATS = ("table", "csv", "jsonl", "parquet", "html")
EXAMPLES = (
    "vit-keras search features.parquet cat.jpg dog.png",
    "vit-keras search features.parquet new --top 8 --out page.html    # a page of the pictures",
    "vit-keras search features.parquet --rows 0 17 --format jsonl",
    "vit-keras search features.parquet new --model moved/run --exact --out nearest.csv",
    "vit-keras search features.parquet --build    # the index alone",
)
NOTE = (
    "TABLE comes from `vit-keras embed`. Similarity is the cosine of two features, at most 1.\n"
    "Tables of 10 000 rows and more are searched by an index, TABLE.index, which the first search\n"
    "builds and measures."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("table", metavar="TABLE", help="a .parquet file of features")
    pictures = "files, folders, patterns, or - for a list of paths on standard input"
    add("pictures", nargs="*", metavar="PICTURE", help=pictures)
    rows = "rows of the table to search for, from 0, besides pictures"
    add("--rows", type=int, nargs="+", default=[], metavar="N", help=rows)
    add("--top", type=shared.count, default=5, metavar="N", help="most neighbors of each (5)")
    add("--model", metavar="MODEL", help="the model of the table, if it is no longer in its place")
    add("--exact", action="store_true", help="compare with all rows, without an index")
    add("--build", action="store_true", help="build the index again")
    shared.add_out(parser, ".csv, .jsonl, .parquet or .html file instead of standard output")
    formats = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]} (by --out, table)"
    add("--format", choices=FORMATS, metavar="NAME", help=formats)
    add("--batch", type=shared.count, default=32, metavar="N", help="pictures per step (32)")
    skip = "report an unreadable picture in its row instead of stopping"
    add("--skip_unreadable", action="store_true", help=skip)


def run(options: argparse.Namespace) -> None:
    from vit_keras import machine, retrieval

    form = _check(options)
    machine.prepare()
    table = retrieval.EmbeddingTable(options.table)
    retrieval.check_searchable(table)
    index = None if options.exact else retrieval.open_index(table, rebuild=options.build)
    if options.build:
        print(_described(table, index))
    if not options.rows and not options.pictures:
        return
    with contextlib.ExitStack() as stack:
        answers = iter(retrieval.search_rows(table, options.rows, count=options.top, index=index))
        if options.pictures:
            answers = itertools.chain(answers, _of_pictures(options, table, index, stack))
        file = stack.enter_context(streams.output(options.out))
        retrieval.write_answers(
            answers,
            file,
            form,
            title=f"Nearest pictures in {options.table}",
            folder=table.description.get("folder", ""),
        )


def _of_pictures(options, table, index, stack):
    from vit_keras import data, retrieval

    answers = retrieval.search_pictures(
        table,
        retrieval.open_query_embedder(table, options.model),
        data.expand_pictures(streams.arguments(options.pictures)),
        count=options.top,
        index=index,
        batch=options.batch,
        on_error="skip" if options.skip_unreadable else "raise",
    )
    return stack.enter_context(contextlib.closing(answers))


def _check(options: argparse.Namespace) -> str:
    """Checks the options, and returns the format."""
    if not (options.pictures or options.rows or options.build):
        raise UsageError("a search needs pictures, --rows or --build. Received: none of them")
    if options.build and options.exact:
        raise UsageError("--exact uses no index. Received: --exact and --build")
    suffix = pathlib.Path(options.out).suffix[1:].lower() if options.out else "table"
    form = options.format or suffix
    if form not in FORMATS:
        raise UsageError(
            "--out must end in .csv, .jsonl, .parquet or .html, or --format be given. "
            f"Received: {options.out}"
        )
    if form == "parquet" and not options.out:
        raise UsageError("--format parquet needs --out, because Parquet is no text")
    return form


def _described(table, index) -> str:
    """What was built, in one line."""
    if index is None:
        return f"no index: {len(table):,} rows are compared one by one"
    about = index.about
    recalls = ", ".join(f"{100 * share:.1f} % with {n}" for n, share in about["recall"].items())
    chosen = about["expansion"] or "none: all rows are compared"
    return f"written: {table.path}.index; neighbors found: {recalls} candidates; chosen: {chosen}"


COMMAND = shared.Command("Find the most similar pictures.", EXAMPLES, add_options, run, NOTE)
