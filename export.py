"""Export a model for servers and phones: `python export.py runs/digits --format onnx`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["export", *sys.argv[1:]]))
