"""Fine-tune a checkpoint on VTAB-1k: `python vtab.py ViT-B_16.npz --out vtab`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main(["vtab", *sys.argv[1:]]))
