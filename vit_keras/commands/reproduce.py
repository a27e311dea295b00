"""`vit-keras reproduce`: the paper's tables and figures, ours beside the printed ones."""

import argparse
import pathlib

from vit_keras import extras
from vit_keras.commands import options as shared

PACKAGES = ("jsonargparse", "yaml", "PIL", "sklearn", "matplotlib")
EXAMPLES = (
    "vit-keras reproduce                                      # the names of all studies",
    "vit-keras reproduce table8",
    "vit-keras reproduce all --out reproduction               # and report.html",
    "vit-keras reproduce table5 --scale full --jft folder:my-jft",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="table1 ... figure10, or all")
    parser.add_argument("--list", action="store_true", help="print the names of the studies")
    parser.add_argument(
        "--scale",
        choices=("digits", "full"),
        default="digits",
        help="minutes on handwritten digits, or the paper's recipes (digits)",
    )
    parser.add_argument(
        "--out", default="reproduction", metavar="PATH", help="folder of results (reproduction)"
    )
    parser.add_argument("--steps", type=int, metavar="N", help="digits: updates of each run (400)")
    parser.add_argument("--jft", metavar="NAME", help="full: data set in place of JFT-300M")
    parser.add_argument("--imagenet21k", metavar="NAME", help="full: data set for ImageNet-21k")
    parser.add_argument("--data_dir", metavar="DIR", help="full: folder of TensorFlow Datasets")


def run(options: argparse.Namespace) -> None:
    extras.check(*PACKAGES, extra="train", purpose="Reproducing the paper")
    from vit_keras import reproduce

    if options.list or not options.names:
        for name in reproduce.NAMES:
            print(f"{name:<9} {reproduce.title_of(name).partition('. ')[2]}")
        return
    names = reproduce.NAMES if "all" in options.names else options.names
    studies = {name: reproduce.study(name) for name in names}
    folder = pathlib.Path(options.out)
    lab = reproduce.Lab(folder, _scale(options, folder))
    results, faults = [], {}
    for name, study in studies.items():
        print(reproduce.title_of(name), flush=True)
        try:
            results.append(study(lab))
        except (ValueError, OSError) as error:
            if len(studies) == 1:
                raise
            faults[name] = str(error)
            print(f"  not measured: {error}")
            continue
        files = reproduce.write_result(results[-1], folder)
        print(reproduce.as_text(results[-1]))
        print(f"written: {', '.join(map(str, files))}\n", flush=True)
    if "all" in options.names:
        reproduce.write_report(folder / "report.html", results, faults, lab.scale.name)
        print(f"written: {folder / 'report.html'}")
    if faults:
        raise ValueError(f"{len(faults)} of {len(studies)} have no result: {', '.join(faults)}")


def _scale(options, folder):
    """The scale that the options choose."""
    from vit_keras import reproduce

    if options.scale == "digits":
        return reproduce.DigitsScale(folder, options.steps)
    datasets = {"jft": options.jft, "imagenet21k": options.imagenet21k}
    return reproduce.FullScale(options.data_dir, **datasets)


COMMAND = shared.Command("Reproduce tables and figures of the paper.", EXAMPLES, add_options, run)
