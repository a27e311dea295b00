"""`python -m vit_keras.weights IN OUT --to timm`: one checkpoint as another project's.

IN and OUT are files or folders; `--to` is a format, or left out for our own `.keras`. What IN does
not say is given by name, such as `--num_heads 12`.
"""

import argparse
import json
import sys

from vit_keras.weights import from_checkpoint, save
from vit_keras.weights.formats.registry import FORMATS


def main(arguments: list[str] | None = None) -> None:
    """Converts; errors of the files go to standard error, with exit status 1."""
    parser = argparse.ArgumentParser(
        prog="python -m vit_keras.weights",
        description="Writes a checkpoint in another format.",
        epilog="Any argument of VisionTransformer that IN does not say: --num_heads 12, "
        "--image_size [224,384].",
    )
    parser.add_argument("input", metavar="IN", help="file or folder of weights")
    parser.add_argument("output", metavar="OUT", help="file, or folder where it has no suffix")
    parser.add_argument("--from", dest="source", choices=FORMATS, help="format of IN; detected")
    parser.add_argument("--to", choices=FORMATS, help="format of OUT; our own .keras by default")
    known, rest = parser.parse_known_args(arguments)
    overrides = _overrides(parser, rest)
    try:
        model = from_checkpoint(known.input, source=known.source, **overrides)
        save(model, known.output, format=known.to)
    except (ValueError, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        sys.exit(1)
    print(f"{known.output}: {model.count_params():,} parameters")


def _overrides(parser, rest):
    """`--name value` pairs, values as JSON where they are."""
    if len(rest) % 2 or not all(name.startswith("--") for name in rest[::2]):
        parser.error(f"overrides are pairs of --name value. Received: {' '.join(rest)}")
    names = (name[2:].replace("-", "_") for name in rest[::2])
    return {name: _value(text) for name, text in zip(names, rest[1::2])}


def _value(text):
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return tuple(value) if isinstance(value, list) else value


if __name__ == "__main__":
    main()
