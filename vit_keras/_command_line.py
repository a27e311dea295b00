"""What a command sets before Keras and its backend are imported; a library user's process is left.

`vit_keras/__init__.py` imports this module first, because a package is imported before its
commands are.
"""

import os
import pathlib
import sys

from vit_keras import _backend

_ROOT = pathlib.Path(__file__).parents[1]  # of the checkout, where the scripts stand


def _is_command() -> bool:
    """Whether this process runs `vit-keras`, `python -m vit_keras` or a script of the checkout."""
    program = pathlib.Path(sys.argv[0] if sys.argv else "")
    script = program.suffix == ".py" and program.is_file() and program.resolve().parent == _ROOT
    return program.name in ("vit-keras", "vit-keras.exe", "-m") or script


if _is_command():
    # TensorFlow and XLA then log errors alone.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # torch's threads spin while they wait for each other: where other work shares the cores, a step
    # of a small model took 1545 ms instead of 61. torch reads this as it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    _backend.choose()
except ImportError as error:
    if _is_command():
        sys.exit(f"vit-keras: error: {error}")  # exit code 1
    raise
