"""Reproduce the paper: `KERAS_BACKEND=jax python reproduce.py table8`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
