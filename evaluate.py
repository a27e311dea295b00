"""Evaluate runs, checkpoints or exported files: `python evaluate.py runs/digits`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
