"""Prepares a command's process before Keras is imported, and ends it.

`vit_keras/__init__.py` imports this module first, because a package is imported before its
commands. The process of a library user is not changed.
"""

import atexit
import contextlib
import gc
import importlib.abc
import importlib.machinery
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import unicodedata
import warnings
from collections.abc import Sequence
from ctypes import CDLL
from typing import Any

from vit_keras.support import extras

INTERRUPTED = 128 + signal.SIGINT  # the exit code that a shell reports after Ctrl-C
# TensorFlow logs these lines when it is imported, whatever level the environment sets.
_GREETING = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog|I\d{4} [\d:.]+ |INFO: Created Tensor"
)
_M_ARENA_MAX = -8  # of glibc's malloc.h
OPTIONAL = ("matplotlib", "pandas", "sklearn")  # packages that Keras imports if installed
_ROOT = pathlib.Path(__file__).parents[2]  # of the checkout, which holds the scripts
_exit_code: int | None = None  # None until `vit_keras.commands.main` begins


class UsageError(ValueError):
    """A command line or a configuration file that cannot be read as options.

    Example:
        >>> vit_keras.config.parse_config(["--lr", "0.01"])
        Traceback (most recent call last):
            ...
        UsageError: unrecognized arguments: --lr. Did you mean --optimizer.learning_rate?
    """


def is_command() -> bool:
    """Whether this process runs `vit-keras`, `python -m vit_keras` or a script of the checkout."""
    program = pathlib.Path(sys.argv[0] if sys.argv else "")
    script = program.suffix == ".py" and program.is_file() and program.resolve().parent == _ROOT
    python = sys.orig_argv  # while a package is imported for -m, sys.argv does not name it
    module = program.name == "-m" and python[python.index("-m") + 1] == "vit_keras"
    return program.name in ("vit-keras", "vit-keras.exe") or module or script


def spelled(command: str) -> str:
    """The form in which a user of this interpreter writes a `vit-keras` command line."""
    program = shutil.which("vit-keras")
    if program and os.path.samefile(os.path.dirname(program), os.path.dirname(sys.executable)):
        return command
    return command.replace("vit-keras", f"{shlex.quote(sys.executable)} -m vit_keras", 1)


def _show_warning(message, category, filename, lineno, file=None, line=None):
    """Prints this package's warnings on one line; hides others, which users cannot act on."""
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") == "warnings":
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").startswith("vit_keras"):
        print(f"vit-keras: warning: {visible(' '.join(str(message).split()))}", file=sys.stderr)


class _Inside(importlib.abc.MetaPathFinder):
    """Imports a package inside a context, such as `without_greetings`."""

    def __init__(self, package, context):
        self.package, self.context = package, context

    def find_spec(self, fullname, path, target=None):
        if fullname != self.package:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_inside(module):
                with self.context():
                    execute(module)

            setattr(spec.loader, "exec_module", execute_inside)  # noqa: B010 - no method's place
        return spec


@contextlib.contextmanager
def without_optional():
    """Keeps Keras from importing optional packages, which would take a second or two.

    Keras imports them for its plots, its scikit-learn wrappers, tables as inputs, and Orbax
    checkpoints, which no command uses. They can still be imported after the block.
    """
    names = {*OPTIONAL} if extras.backend_name() == "jax" else {*OPTIONAL, "jax"}
    names -= sys.modules.keys()
    hidden: dict[str, Any] = dict.fromkeys(names)  # a name whose module is None cannot be imported
    sys.modules |= hidden
    gc.disable()  # an import creates few objects that can be collected
    try:
        yield
    finally:
        gc.enable()
        for name in hidden:
            del sys.modules[name]


@contextlib.contextmanager
def without_greetings():
    """Suppresses TensorFlow's greetings, and prints all other output at the end of the block."""
    sys.stderr.flush()
    with tempfile.TemporaryFile() as written, os.fdopen(os.dup(2), "wb") as stderr:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr.fileno(), 2)
            written.seek(0)
            stderr.writelines(line for line in written if not _GREETING.match(line))


def quiet() -> contextlib.AbstractContextManager:
    """`without_greetings` in a command; does nothing in a library user's process."""
    return without_greetings() if is_command() else contextlib.nullcontext()


def set_exit_code(code: int) -> int:
    """Stores the exit code that this process will use if it is a command; returns the code."""
    global _exit_code
    _exit_code = code
    return code


def _interrupt(*_):
    """Raises KeyboardInterrupt in a command; an early or a second Ctrl-C ends the process."""
    if _exit_code in (None, INTERRUPTED):
        os.write(2, b"vit-keras: error: interrupted\n")
        os._exit(INTERRUPTED)
    set_exit_code(INTERRUPTED)
    raise KeyboardInterrupt


def _interrupt_again(unraisable):
    """Repeats a Ctrl-C that arrived where Python ignores errors, such as in garbage collection.

    Args:
        unraisable: The error that Python ignores; other errors are printed.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        set_exit_code(1)
        repeated = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
        repeated.daemon = True
        repeated.start()
    else:
        sys.__unraisablehook__(unraisable)


def _leave():
    """Ends the process before Python shuts down its interpreter.

    Threads, including TensorFlow's, may still be reading pictures. If one of TensorFlow's threads
    then calls Python, the process hangs or is aborted.
    """
    if _exit_code is not None:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # the reader may be gone
                stream.flush()
        os._exit(_exit_code)


if is_command():
    atexit.register(_leave)  # registered first, called last
    if not sys.warnoptions:  # PYTHONWARNINGS and -W request Python's own format
        warnings.showwarning = _show_warning
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _interrupt_again
    # TensorFlow and XLA then log only errors, unless the user sets 0 to see everything. JAX sets 1
    # when it is imported, and child processes inherit it: TensorFlow then logs failures in its
    # threads.
    if os.environ.get("TF_CPP_MIN_LOG_LEVEL") != "0":
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        sys.meta_path.insert(0, _Inside("tensorflow", without_greetings))
    sys.meta_path.insert(0, _Inside("keras", without_optional))
    # torch's threads spin while they wait for each other. When other processes shared the cores, a
    # step of a small model took 1545 ms instead of 61. torch reads this variable when it is
    # imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

try:
    extras.choose_backend()
except ImportError:
    if not is_command():  # a command can answer an exported file without a backend
        raise
# With glibc, all threads then allocate from one heap. XLA allocates a step's memory in one of its
# threads, and a thread's heap, which it gets when the backend is imported, cannot keep it. See
# `machine.keep_memory`. Not with torch, whose threads would wait for each other.
if is_command() and extras.backend_name() != "torch":
    with contextlib.suppress(OSError, AttributeError):
        CDLL("libc.so.6").mallopt(_M_ARENA_MAX, 1)


def visible(text: object) -> str:
    r"""Returns a text whose control characters are written as escapes.

    The names of classes and tensors come from files that anyone may have written. On a terminal,
    control characters would move the cursor, and right-to-left marks would reorder the text.

    Args:
        text: A text, which may have line breaks and tabs, or any object with a text form.

    Returns:
        The text, with the same lines.

    Example:
        >>> visible("cat\x1b[2J")
        'cat\\x1b[2J'
    """
    return "".join(c if _is_harmless(c) else ascii(c)[1:-1] for c in str(text))


def on_one_line(name: object) -> str:
    r"""Returns a name as `visible` does, but also escapes line breaks and tabs.

    Example:
        >>> on_one_line("cat\n.jpg")
        'cat\\n.jpg'
    """
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """Returns rows of texts as lines: the first `left` columns left-aligned, the others right.

    Example:
        >>> aligned([["class", "images"], ["cat", "12"]])
        ['class  images', 'cat        12']
    """
    widths = [max(map(len, column)) for column in zip(*rows)]
    sides = "<" * left + ">" * (len(widths) - left)
    form = "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths))
    return [form.format(*row) for row in rows]


def visible_json(content: Any, indent: int | None = None) -> str:
    r"""Returns JSON in UTF-8 whose control characters are written as JSON's escapes.

    Example:
        >>> visible_json(["c\u00e2t\x9b2J"])
        '["cât\\u009b2J"]'
    """
    text = json.dumps(content, indent=indent, ensure_ascii=False)
    return "".join(c if _is_harmless(c) else json.dumps(c)[1:-1] for c in text)


def _is_harmless(character):
    spaces = unicodedata.category(character) == "Zs"
    return character.isprintable() or character in "\n\t" or spaces
