"""Average the weights of fine-tuned models into one model.

examples:
  vit-keras soup runs/a runs/b runs/c --out soup.keras
  vit-keras soup runs/sweep --greedy --out soup.keras      # the trials of a sweep
  vit-keras soup a.keras b.keras --greedy --dataset folder:photos --split val --out soup.keras
"""

import json
import pathlib

from vit_keras.commands import options as shared
from vit_keras.support.command_line import UsageError


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    text = "runs, sweeps or checkpoints that were fine-tuned from the same weights"
    add("models", "MODEL", text, nargs="+")
    add("--out", "PATH", "the .keras file to write", shared.ending(".keras"), required=True)
    flag("--greedy", "leave out the models that lower the accuracy on the development split")
    shared.add_dataset(add)
    split = "split to choose on, unseen in training (the runs' development split)"
    add("--split", None, split)
    add("--batch_eval", "N", "images per step", shared.count, 256)


def run(options: shared.Options) -> None:
    from vit_keras import experiments, weights
    from vit_keras.support.files import claimed_output, write_text

    names = ("dataset", "split", "data_dir", "label_columns")
    known = {name: value for name in names if (value := getattr(options, name))}
    if known and not options.greedy:
        raise UsageError(f"`--{next(iter(known))}` needs `--greedy`; a plain mean uses no pictures")
    judge, log = None, pathlib.Path(options.out).with_suffix(".json")
    with claimed_output(options.out, "a soup"):
        if options.greedy:
            judge = experiments.development_judge(options.models, batch=options.batch_eval, **known)
        model, rows = experiments.make_soup(options.models, judge)
        weights.save_model(model, options.out)
        write_text(log, json.dumps(rows, indent=1))
    print("\n".join(map(_line, rows)))
    used = sum(row["used"] for row in rows)
    print(f"{options.out}: the mean of {used} of {len(rows)} models; {log} lists them")


def _line(row):
    if "score" not in row:
        return row["model"]
    verdict = "used" if row["used"] else "left out"
    return (
        f"{row['model']}: {row['score']:.4f} alone, {row['soup_score']:.4f} in the mean, {verdict}"
    )
