"""Find the most similar pictures.

TABLE comes from `vit-keras embed`. Similarity is the cosine of two features, at most 1.
Tables of more than 200,000 x 768 numbers are searched with an index, TABLE.index, which the
first search builds.

examples:
  vit-keras search features.parquet cat.jpg dog.png
  vit-keras search 'a red car' features.parquet --not 'at night' --out page.html    # in words
  vit-keras search features.parquet new --top 8 --out page.html    # a page of the pictures
  vit-keras search features.parquet --rows 0 17 --format jsonl
  vit-keras search features.parquet new --model moved/run --exact --out nearest.csv
  vit-keras search features.parquet --build    # only the index
"""

import contextlib

from vit_keras import data, retrieval
from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("table", "TABLE", "a .parquet file of features; texts before it are queries")
    pictures = "files, folders, patterns, or - for a list of paths on standard input"
    add("pictures", "PICTURE", pictures, nargs="*")
    rows = "rows of the table to search with, counted from 0, in addition to pictures"
    add("--rows", "N", rows, int, nargs="+", default=[])
    absent = "a text that describes what must be absent, in addition to texts; repeatable"
    add("--not", "TEXT", absent, dest="without", action="append", default=[])
    add("--top", "N", "neighbors of each query", shared.count, 5)
    add("--model", "MODEL", "the table's model, if it has been moved")
    _, one = shared.adders(parser.add_mutually_exclusive_group())
    one("--exact", "compare with all rows, without an index")
    one("--build", "build the index again")
    add("--out", "PATH", ".csv, .jsonl, .parquet or .html file instead of standard output")
    shared.add_rows(add, flag)


def run(options: shared.Options) -> None:
    names = [options.table, *options.pictures]
    place = next((i for i, name in enumerate(names) if name.endswith(".parquet")), 0)
    options.texts, options.table, options.pictures = names[:place], names[place], names[place + 1 :]
    if not (options.texts or options.pictures or options.rows or options.build):
        raise UsageError("A search needs texts, pictures, --rows or --build. Received: none")
    if options.without and not options.texts:
        raise UsageError("--not needs a text before TABLE to subtract from. Received: no text")
    form = shared.format_of(options)
    table = retrieval.EmbeddingTable(options.table)
    index = None if options.exact else retrieval.open_index(table, rebuild=options.build)
    if options.build:
        what = f"written: {table.path}.index" if index else "no index: the table is small"
        print(f"{what}, {len(table):,} rows")
    if not (options.rows or options.pictures or options.texts):
        return
    title, folder = f"Nearest pictures in {options.table}", table.description.get("folder", "")
    answers = _answers(options, table, index)
    with shared.output(options.out) as file, contextlib.closing(answers):
        retrieval.write_answers(answers, file, form, title=title, folder=folder)


def _answers(options, table, index):
    """Yields the answers to texts, then rows, then pictures."""
    common = {"count": options.top, "index": index}
    if options.texts:
        words = {"without": options.without, "model": options.model}
        yield from retrieval.search_texts(table, options.texts, **words, **common)
    yield from retrieval.search_rows(table, options.rows, **common)
    if options.pictures:
        embedder = retrieval.open_query_embedder(table, options.model)
        paths = data.expand_pictures(shared.arguments(options.pictures))
        told = {"batch": options.batch, "on_error": shared.on_error(options)}
        yield from retrieval.search_pictures(table, embedder, paths, **told, **common)
