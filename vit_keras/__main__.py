"""`python -m vit_keras COMMAND`, the same as `vit-keras COMMAND`."""

import sys

from vit_keras.commands import main

if __name__ == "__main__":
    sys.exit(main())
