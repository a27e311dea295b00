"""Reproduce the paper: `KERAS_BACKEND=jax python reproduce.py table8`."""

import sys

from studies.command import main

if __name__ == "__main__":
    sys.exit(main())
