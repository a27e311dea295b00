"""Train a Vision Transformer: `KERAS_BACKEND=jax python train.py --config digits`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
