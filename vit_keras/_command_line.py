"""What a command's process does before Keras is imported, and how it ends.

`vit_keras/__init__.py` imports this module first, because a package is imported before its
commands are. The process of a library's user is left as it is.
"""

import atexit
import contextlib
import os
import pathlib
import signal
import sys

from vit_keras import _backend

INTERRUPTED = 128 + signal.SIGINT  # the exit code that a shell reports after Ctrl-C
_ROOT = pathlib.Path(__file__).parents[1]  # of the checkout, where the scripts stand
_exit_code: int | None = None  # None until `vit_keras.commands.main` begins


def _is_command() -> bool:
    """Whether this process runs `vit-keras`, `python -m vit_keras` or a script of the checkout."""
    program = pathlib.Path(sys.argv[0] if sys.argv else "")
    script = program.suffix == ".py" and program.is_file() and program.resolve().parent == _ROOT
    return program.name in ("vit-keras", "vit-keras.exe", "-m") or script


def set_exit_code(code: int) -> int:
    """Notes the code that this process ends with if it is a command's; returns it."""
    global _exit_code
    _exit_code = code
    return code


def _interrupt(*_):
    """Raises KeyboardInterrupt in a command; a second Ctrl-C, or one before, ends the process."""
    if _exit_code in (None, INTERRUPTED):
        os.write(2, b"vit-keras: error: interrupted\n")
        os._exit(INTERRUPTED)
    set_exit_code(INTERRUPTED)
    raise KeyboardInterrupt


def _leave():
    """Ends the process before Python takes its interpreter down.

    Threads of tf.data may still be reading pictures. If one of them then calls Python, the process
    hangs or is aborted.
    """
    if _exit_code is not None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # a reader that has gone
                stream.flush()
        os._exit(_exit_code)


if _is_command():
    atexit.register(_leave)  # the first function is the last to be called
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
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
