"""Draw what a model has learned: `python visualize.py runs/digits --out figures`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["visualize", *sys.argv[1:]]))
