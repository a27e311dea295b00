"""`python -m vit_keras.compute B/16 --image-size 224`: what a variant costs."""

import argparse
import sys

from vit_keras.compute import device_days, flops, table, training_exaflops
from vit_keras.compute.training import JFT_IMAGES


def main(given: list[str] | None = None) -> None:
    """Prints the table of a variant, with `--epochs` the cost of training it as well."""
    parser = argparse.ArgumentParser(
        prog="python -m vit_keras.compute", description="Counts what a variant costs."
    )
    parser.add_argument("variant", help="such as B/16, R50+L/32 or R152x2")
    parser.add_argument("--image-size", type=int, nargs="+", default=[224], metavar="PIXELS")
    parser.add_argument("--num-classes", type=int, default=1000, help="of the classifier (1000)")
    parser.add_argument("--norms", action="store_true", help="count normalisation, as fvcore")
    parser.add_argument("--epochs", type=float, help="also the cost of training for so many")
    parser.add_argument("--images", type=float, default=JFT_IMAGES, help="an epoch (303e6: JFT)")
    parser.add_argument("--device-tflops", type=float, help="also the days that a device takes")
    parser.add_argument("--utilisation", type=float, default=1.0, help="share of its rate (1)")
    options = parser.parse_args(given)
    size = options.image_size
    size = size[0] if len(size) == 1 else tuple(size)
    try:
        _report(options, size)
    except ValueError as error:
        sys.exit(f"{parser.prog}: error: {error}")


def _report(options, size):
    classes = options.num_classes
    print(table(flops(options.variant, size, norms=options.norms, num_classes=classes)))
    if options.epochs is None:
        return
    cost = training_exaflops(options.variant, options.images, options.epochs, size, classes)
    print(f"training: {cost:,.1f} exaFLOPs for {options.epochs:g} epochs of {options.images:,.0f}")
    if options.device_tflops is not None:
        days = device_days(cost, options.device_tflops, options.utilisation)
        print(f"one device of {options.device_tflops:g} TFLOP/s: {days:,.1f} days")


if __name__ == "__main__":
    main()
