"""Reproduces a table or figure of the paper: `KERAS_BACKEND=jax python reproduce.py table8`."""

import argparse
import os
import pathlib
import sys

CONFIGS = pathlib.Path(__file__).parent / "configs"

# As train.py, before torch is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def arguments(given):
    parser = argparse.ArgumentParser(prog="reproduce.py", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="table1 … figure10, or all")
    parser.add_argument("--list", action="store_true", help="print the names and what they are")
    parser.add_argument(
        "--scale",
        choices=("digits", "full"),
        default="digits",
        help="on scikit-learn's digits, in minutes, or by the paper's recipes (digits)",
    )
    parser.add_argument("--out", default="reproduction", help="folder of results and runs")
    parser.add_argument("--steps", type=int, help="digits: updates of a run, for a quick look")
    parser.add_argument("--jft", metavar="DATASET", help="full: what to take for JFT-300M")
    parser.add_argument("--imagenet21k", metavar="DATASET", help="full: what for ImageNet-21k")
    parser.add_argument("--data_dir", help="full: folder of TensorFlow Datasets")
    return parser.parse_args(given)


def main(given=None):
    options = arguments(given)

    from vit_keras import reproduce

    if options.list or not options.names:
        for name in reproduce.NAMES:
            print(f"{name:<9} {reproduce.title_of(name).partition('. ')[2]}")
        return
    names = reproduce.NAMES if "all" in options.names else options.names
    studies = {name: reproduce.study(name) for name in names}

    from train import train_run

    folder = pathlib.Path(options.out)
    lab = reproduce.Lab(folder, setting(options, folder), CONFIGS, train_run)
    results, faults = [], {}
    for name, run in studies.items():
        print(reproduce.title_of(name), flush=True)
        try:
            results.append(run(lab))
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
        reproduce.write_report(folder / "report.html", results, faults, lab.scale)
        print(f"written: {folder / 'report.html'}")
    if faults:
        raise ValueError(f"{len(faults)} of {len(studies)} have no result: {', '.join(faults)}")


def setting(options, folder):
    """What names stand for at a scale."""
    from vit_keras import reproduce

    if options.scale == "digits":
        return reproduce.Digits(folder, CONFIGS, options.steps)
    chosen = {"jft": options.jft, "imagenet21k": options.imagenet21k}
    return reproduce.Full(CONFIGS, options.data_dir, **chosen)


if __name__ == "__main__":
    try:
        main()
    except (ValueError, OSError, FloatingPointError) as error:
        sys.exit(f"reproduce.py: error: {error}")
