"""Reproduce tables and figures of the paper.

examples:
  python reproduce.py                                      # the names of all studies
  python reproduce.py table8
  python reproduce.py all --out reproduction               # and report.html
  python reproduce.py table5 --scale full --jft folder:my-jft
"""

import pathlib
import sys

import studies
from vit_keras import commands
from vit_keras.commands import options as shared

PROGRAM = "reproduce.py"


def main() -> int:
    """Runs the command line of this process, prints its errors, and returns the exit code."""
    return commands.exit_code(PROGRAM, lambda: commands.run_command(COMMAND, sys.argv[1:], PROGRAM))


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("names", "NAME", "table1 ... figure10, or all", nargs="*")
    flag("--list", "print the names of the studies")
    scale = "minutes on handwritten digits, or the paper's recipes"
    add("--scale", None, scale, default="digits", choices=("digits", "full"))
    add("--out", "PATH", "folder of results", default="reproduction")
    add("--steps", "N", "digits: updates of each run (400)", int)
    add("--jft", "NAME", "full: data set in place of JFT-300M")
    add("--imagenet21k", "NAME", "full: data set for ImageNet-21k")
    add("--data_dir", "DIR", "full: folder of TensorFlow Datasets")


def run(options: shared.Options) -> None:
    from studies.lab import Lab
    from studies.report import write_report
    from studies.results import as_text, title_of, write_result

    if options.list or not options.names:
        for name in studies.NAMES:
            print(f"{name:<9} {title_of(name).partition('. ')[2]}")
        return
    names = studies.NAMES if "all" in options.names else options.names
    chosen = {name: studies.study(name) for name in names}
    folder = pathlib.Path(options.out)
    lab = Lab(folder, _scale(options, folder))
    results, faults = [], {}
    for name, study in chosen.items():
        print(title_of(name), flush=True)
        try:
            results.append(study(lab))
        except (ValueError, OSError) as error:
            if len(chosen) == 1:
                raise
            faults[name] = str(error)
            print(f"  not measured: {error}")
            continue
        files = write_result(results[-1], folder)
        print(as_text(results[-1]))
        print(f"written: {', '.join(map(str, files))}\n", flush=True)
    if "all" in options.names:
        write_report(folder / "report.html", results, faults, lab.scale.name)
        print(f"written: {folder / 'report.html'}")
    if faults:
        raise ValueError(f"{len(faults)} of {len(chosen)} have no result: {', '.join(faults)}")


def _scale(options, folder):
    """The scale that the options choose."""
    from studies.digits_scale import DigitsScale
    from studies.full_scale import FullScale

    if options.scale == "digits":
        return DigitsScale(folder, options.steps)
    datasets = {"jft": options.jft, "imagenet21k": options.imagenet21k}
    return FullScale(options.data_dir, **datasets)


COMMAND = sys.modules[__name__]
