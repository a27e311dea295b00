"""Errors that name the file that they are about."""

import contextlib
import os
from collections.abc import Iterator

from vit_keras.weights.containers.checks import DamagedFile, UnreadModel

# What parsers and constructors raise for content of another form than they know.
FORM = (TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)


@contextlib.contextmanager
def named_errors(path: str | os.PathLike) -> Iterator[None]:
    """Raises errors of content, in the `with` statement, as `DamagedFile` that names the file.

    An `UnreadModel` stays one, and names the file as well.
    """
    name = os.fspath(path)
    try:
        yield
    except DamagedFile:
        raise
    except UnreadModel as error:
        raise UnreadModel(f"{name!r}: {error}") from error
    except ValueError as error:
        message = str(error)
        is_plain = not isinstance(error, UnicodeError)
        if is_plain and name in message:
            raise
        raise DamagedFile(f"{name!r}: {message}") from error
    except FORM as error:
        raise DamagedFile(
            f"{name!r} or a file beside it has a field of another type than projects write "
            f"({type(error).__name__}: {error})"
        ) from error
