"""`vit-keras check`: whether a data set can be trained on, and what may spoil the result."""

import argparse
import difflib
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

from vit_keras import config
from vit_keras.commands import options as shared
from vit_keras.commands.check_report import lines
from vit_keras.config import UsageError

EXAMPLES = (
    "vit-keras check photos                                   # as folder:photos",
    "vit-keras check folder:photos --format json --quick      # counts alone",
    "vit-keras check folder:photos --config finetune/pets --out sheet.png --out report.json",
)
FORMATS = ("text", "json")


class Check(shared.Command):
    """`check` takes the fields of a `Config` besides its own options."""

    def parse(self, arguments: Sequence[str], prog: str) -> Any:
        options, fields = self.parser(prog).parse_known_args(arguments)
        files = [word for name in options.config or () for word in ("--config", name)]
        options.suffixes = {pathlib.Path(path).suffix.lower(): path for path in options.out or ()}
        if set(options.suffixes) - {".png", ".json"}:
            raise UsageError(f"`--out` must end in .png or .json. Received: {options.out}")
        if not 0 <= options.distance <= 16:
            raise UsageError(f"`--distance` must be 0 to 16. Received: {options.distance}")
        dataset = ["--dataset", _dataset_name(options.dataset)]
        try:
            options.run = config.parse_config([*files, *fields, *dataset], prog, default="")
        except UsageError as error:
            raise UsageError(f"{error}{self._nearest(fields, str(error))}") from error
        return options

    def _nearest(self, fields, message):
        """A hint at one of the command's own options, where no field is near."""
        names = [name for name in self.parser("")._option_string_actions if name.startswith("--")]
        wrong = [word for word in fields if word.startswith("--") and word in message]
        near = difflib.get_close_matches(wrong[0], names, n=1, cutoff=0.75) if wrong else []
        return f". Did you mean {near[0]}?" if near and "Did you mean" not in message else ""

    def parser(self, prog):
        parser = super().parser(prog)
        parser.usage = f"{prog} DATASET [options] [--FIELD VALUE ...]"
        return parser


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    names = "folder of pictures, CSV or Parquet table, or a name as in `vit-keras train --dataset`"
    add("dataset", metavar="DATASET", help=names)
    recipe = "recipe or YAML file of the run that is planned; its fields are options too"
    add("--config", action="append", metavar="RECIPE", help=recipe)
    out = "report.json, or sheet.png, which shows the first training images; may be repeated"
    add("--out", action="append", metavar="FILE", help=out)
    add("--format", choices=FORMATS, default="text", metavar="NAME", help="text or json (text)")
    add("--distance", type=int, default=4, metavar="BITS", help="of near-duplicates, 0 to 16 (4)")
    add("--quick", action="store_true", help="count pictures, but do not open them")


def _dataset_name(name):
    """`folder:PATH` or `table:FILE` for a path alone."""
    if os.path.isdir(name):
        return f"folder:{name}"
    return f"table:{name}" if os.path.isfile(name) else name


def run(options: argparse.Namespace) -> None:
    from vit_keras import data, machine
    from vit_keras.files import write_text

    machine.prepare()
    review, dataset = data.Review(), None
    kind, _, path = options.run.dataset.partition(":")
    if kind == "folder" and os.path.isdir(path) and not data.holds_masks(path):
        layout = data.read_layout(path)
        data.review_files(review, layout)
        review.problems += layout.problems
    if not review.problems:
        dataset = _opened(options.run, review)
    if dataset is not None:
        _look(options, dataset, review)
    report = {
        "dataset": options.run.dataset,
        "problems": review.problems,
        "warnings": review.warnings,
        **review.facts,
    }
    text = _json(report)
    print(text if options.format == "json" else "\n".join(lines(report)))
    if ".json" in options.suffixes:
        write_text(options.suffixes[".json"], text)
    if review.problems:
        many = "a problem" if len(review.problems) == 1 else f"{len(review.problems)} problems"
        raise ValueError(f"{options.run.dataset!r} cannot be trained on: it has {many}, see above")
    if ".png" in options.suffixes:
        _draw_sheet(options.run, options.suffixes[".png"])


def _opened(run_config, review):
    """The data set; None, and a problem of the review, if it cannot be opened."""
    from vit_keras import data

    try:
        channels = run_config.model.channels or 3
        return data.load(run_config.dataset, channels, run_config.data, run_config.task)
    except (ValueError, OSError) as error:
        review.problems.append(str(error))
        return None


def _look(options, dataset, review):
    """Adds to the review what the splits and their pictures show."""
    from vit_keras import data, extras

    try:
        splits = data.splits_of_run(dataset, options.run.data)
    except ValueError as error:
        review.problems.append(str(error))
        splits = dataset.splits
    if dataset.held_out_by:
        review.facts["held_out_by"] = dataset.held_out_by
    data.review_labels(review, dataset, splits)
    if dataset.kind == "numbers":
        review.facts["classes"] = list(dataset.class_names)
    else:
        data.review_counts(review, data.count_classes(dataset, splits))
    if options.quick:
        return
    tqdm = extras.require("tqdm", extra="data", purpose="The progress bar").tqdm
    total = sum(map(len, splits.values()))
    looked_at = data.survey_pictures(dataset, splits)
    pictures = list(tqdm(looked_at, total=total, unit=" pictures", disable=None, leave=False))
    data.review_pictures(review, pictures, stop=options.run.data.on_corrupt == "stop")
    data.review_pairs(review, data.find_pairs(pictures, options.distance))


def _draw_sheet(run_config, path):
    from vit_keras import data, experiments
    from vit_keras.files import replacing

    images, targets, class_names, task = experiments.first_training_images(run_config)
    sheet = data.draw_contact_sheet(images, data.captions_of(targets, class_names, task))
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        sheet.save(temporary, format="png")
    print(f"written: {path}")


def _json(report):
    """The report with the first lines of problems and warnings, whose details are beside them."""
    texts = {
        kind: [text.splitlines()[0] for text in report[kind]] for kind in ("problems", "warnings")
    }
    return json.dumps({**report, **texts}, indent=1, ensure_ascii=False)


COMMAND = Check(
    "Say whether a data set can be trained on, and what may spoil the result.",
    EXAMPLES,
    add_options,
    run,
)
