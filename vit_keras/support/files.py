"""Replaces files and folders in one step: a reader sees either the old or the new one.

Everything is written into a hidden folder beside its destination, flushed to the disk, and renamed.
A lock beside the hidden folder lets one process at a time write there. The remains of a killed
process are removed when the same name is next replaced.

The kernel locks an open file, through `filelock`. A lock ends with its process, however the process
ends, so it is never stale.

Models on hubs have addresses in place of paths: `hf://USER/NAME`, `kaggle://OWNER/MODEL/…` and
`timm/NAME`.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import re
import shutil
import socket
import time
import zipfile
from collections.abc import Iterator
from typing import NamedTuple

PLACEHOLDERS = {  # by the first bytes, in lowercase
    b"version https://git-lfs": "a Git LFS pointer. Run `git lfs pull` in its folder",
    **dict.fromkeys(
        (b"<!doctype html", b"<html", b"<?xml"), "a web page. Download the file itself"
    ),
}

PARTIAL = ".partial-"  # begins the name of a hidden folder
OLD = ".old"  # in a hidden folder, the file or folder being replaced
# Errors of the disk, whatever is written. Libraries in C and Rust pass on only the system's text,
# in their own exceptions.
CAUSES = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EINTR),
    errno.ENOLCK,
)


def is_zip(path: str | os.PathLike) -> bool:
    """Whether a file is a ZIP archive; only opening it shows whether it is damaged."""
    try:
        return zipfile.is_zipfile(path)
    except zipfile.BadZipFile:  # its end says that it has several disks
        return True


@contextlib.contextmanager
def replacing(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary file name; the file written there replaces `path` on exit.

    The temporary file has the name of `path` and lies in a hidden folder beside it, where libraries
    may put their own temporary files. After an error, `path` is unchanged and the hidden folder is
    removed. Other writers of `path` wait. Missing parent folders are created.

    Raises:
        OSError: If `path` is a folder, or the disk cannot hold the file. The error names `path`.

    Example:
        with replacing("model.keras") as temporary:
            model.save(temporary)
    """
    path = pathlib.Path(path).absolute()
    if path.is_dir():  # before a long write that would end in an error without a remedy
        raise IsADirectoryError(f"{str(path)!r} is a folder, not a file. Delete or rename it")
    with reserved(path) as hidden:
        yield str(temporary := hidden / path.name)
        _share(temporary, hidden)
        _flush(temporary)  # otherwise a power failure could leave an empty file under the new name
        os.replace(temporary, path)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes `text` in UTF-8 to `path`, replacing it in one step."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(text)


def read_text(path: str | os.PathLike, remedy: str) -> str:
    """Reads a file in UTF-8, with or without a byte order mark.

    Raises:
        ValueError: If the file is not UTF-8. The message ends with `remedy`.
    """
    with open(path, "rb") as file:
        try:
            return file.read().decode("utf-8-sig")
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r} is damaged ({error}). {remedy}") from error


def read_lines(path: str | os.PathLike, remedy: str) -> list[str]:
    """Returns the nonblank lines of a file, read as in `read_text`; none if there is no file.

    Only line feeds and carriage returns end a line, since names may hold other separators.
    """
    text = read_text(path, remedy) if os.path.isfile(path) else ""
    return [line.strip() for line in text.replace("\r", "\n").split("\n") if line.strip()]


def read_bounded(path: str | os.PathLike, most_bytes: int) -> bytes:
    """Reads a file unless it is too large; refuses pipes and devices, which may never end.

    Raises:
        ValueError: If it is too large or not a regular file. The message gives only the reason.
    """
    if not os.path.isfile(path):
        raise ValueError("it is not a file")
    if (size := os.path.getsize(path)) > most_bytes:
        raise ValueError(f"its {size} bytes are more than {most_bytes}")
    with open(path, "rb") as file:
        return file.read(most_bytes)


def check_arrived(path: str | os.PathLike) -> None:
    """Checks that a file is not a placeholder that a clone or download left for a large file.

    Raises:
        ValueError: If it is. The message names the file and says how to get it.
    """
    with open(path, "rb") as file:
        head = file.read(64).lstrip(b"\xef\xbb\xbf \r\n\t").lower()
    for first, what in PLACEHOLDERS.items():
        if head.startswith(first):
            raise ValueError(f"{os.fspath(path)!r} is {what}")


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file, as 64 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def replacing_folder(folder: str | os.PathLike, keep: bool = False) -> Iterator[pathlib.Path]:
    """Yields a new folder beside `folder`. On exit, it replaces `folder`.

    Missing parent folders are created. After an error, the old folder is unchanged and the new one
    removed. A process that is killed between two renames leaves the old folder under a hidden name:
    the next `replacing_folder` or `recover` puts it back.

    Args:
        folder: The folder.
        keep: Whether to keep files of the old folder that the block does not replace.

    Raises:
        NotADirectoryError: If `folder` is a file.
        OSError: If the disk cannot hold the folder. The error names `folder`.

    Example:
        with replacing_folder("export") as new:
            (new / "labels.txt").write_text("cat")
    """
    folder = pathlib.Path(os.path.realpath(folder))  # keeps a link to a folder
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(
            f"`folder` must be a folder or a new name. Received: {str(folder)!r}, a file. Delete it"
        )
    with reserved(folder) as hidden:
        (new := hidden / folder.name).mkdir()
        yield new
        for path in filter(pathlib.Path.is_file, new.rglob("*")):
            _share(path, hidden)
        if keep and folder.exists():
            _add_missing(folder, new)
        for path in (*filter(pathlib.Path.is_file, sorted(new.rglob("*"))), new):
            _flush(path)
        if folder.exists():
            os.replace(folder, hidden / OLD)
        os.replace(new, folder)
        _flush(folder.parent)


def check_new(folder: str | os.PathLike) -> None:
    """Raises ValueError unless a folder is empty or does not exist, so that nothing is lost."""
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise ValueError(
            f"`folder` must be new or empty. Received: {os.fspath(folder)!r}. Give another name"
        )


def remove_folder(folder: str | os.PathLike) -> None:
    """Deletes `folder` and its contents; it is renamed first, so no reader sees half of it.

    Files that another process has open may stay under a hidden name until `recover`.
    """
    folder = pathlib.Path(folder).absolute()
    with reserved(folder) as hidden:
        os.replace(folder, hidden / folder.name)


def recover(parent: str | os.PathLike) -> None:
    """Removes what killed processes left in `parent`, and restores what they were replacing.

    What a live process is writing is left alone.
    """
    for left in pathlib.Path(parent).absolute().glob(f"{PARTIAL}*"):
        path = left.with_name(left.name.removeprefix(PARTIAL).removesuffix(LOCK))
        with contextlib.suppress(OSError), reserved(path, wait=False):
            pass


@contextlib.contextmanager
def reserved(path: pathlib.Path, wait: bool = True) -> Iterator[pathlib.Path]:
    """Yields an empty hidden folder beside `path`, for this process alone, and removes it later.

    Missing parent folders are created.

    Args:
        path: The file or folder that the block writes.
        wait: As in `exclusive_lock`.

    Raises:
        OSError: If the disk cannot hold the file. The error names `path` instead of hidden names,
            and has the cause's number and text, such as "No space left on device", even if a
            library raised a different error. Errors from other files pass unchanged.
    """
    hidden = path.with_name(PARTIAL + path.name)
    try:
        hidden.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(f"{hidden}{LOCK}", wait):
            _clear(hidden, path)
            try:
                hidden.mkdir(exist_ok=True)
                yield hidden
            finally:
                _clear(hidden, path)
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            names = str(error.filename), str(error.filename2)
            is_ours = any(name.startswith(str(hidden)) for name in names)
            is_ours = is_ours or pathlib.Path(names[0]) in path.parents
            cause = error.errno if is_ours else None
        else:
            reason = f"{error} {error.__context__}"  # torch's error replaces the file's
            cause = next((number for number in CAUSES if os.strerror(number) in reason), None)
        if cause is None:
            raise
        raise OSError(cause, os.strerror(cause), str(path)) from error


def _clear(hidden, path):
    """Removes a hidden folder as far as possible, after undoing an unfinished replacement."""
    if (hidden / OLD).exists() and (hidden / path.name).exists():
        os.replace(hidden / OLD, path)
    shutil.rmtree(hidden, ignore_errors=True)


def _add_missing(folder, new):
    """Adds the files of `folder` that `new` lacks, as links if the file system supports them."""

    def present(where, names):
        place = new / os.path.relpath(where, folder)
        return [name for name in names if name.startswith(PARTIAL) or (place / name).exists()]

    shutil.copytree(folder, new, True, present, _link, dirs_exist_ok=True)


def _link(path, new):
    try:
        os.link(path, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, new, follow_symlinks=False)


def _share(path, hidden):
    """Gives a file the mode of the umask; some libraries make files for one user only."""
    os.chmod(path, hidden.stat().st_mode & 0o666)


def _flush(path):
    """Writes a file's content, or a folder's names, to the disk."""
    if os.name == "nt" and os.path.isdir(path):
        return  # Windows cannot open a folder
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


LOCK = ".lock"


@contextlib.contextmanager
def exclusive_lock(path: str | os.PathLike, wait: bool = True) -> Iterator[None]:
    """Holds the lock of the file at `path` during a `with` block.

    Args:
        path: The lock file, which is made if necessary.
        wait: Whether to wait while another process, or other code in this one, holds the lock.

    Raises:
        TimeoutError: If the lock is held, and `wait` is false.
        OSError: If the lock file cannot be made, or the file system does not support locks.
    """
    import filelock

    with filelock.FileLock(path, blocking=wait, thread_local=False, fallback_to_soft=False):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # Windows cannot remove an open file
                os.remove(path)


@contextlib.contextmanager
def claimed(
    place: pathlib.Path, purpose: str, remedy: str, lock: pathlib.Path | None = None
) -> Iterator[None]:
    """Reserves a folder for this process during a `with` block.

    Args:
        place: The folder, which is made if necessary.
        purpose: The activity of this process there, such as "training".
        remedy: Advice for the message if another process is using the folder.
        lock: The file that names the process; None for `.lock` in the folder.

    Raises:
        ValueError: If another process is using the folder; the message names it.
    """
    lock = lock or place / LOCK
    lock.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(exclusive_lock(lock, wait=False))
        except TimeoutError as error:
            owner = "another process has it"
            with contextlib.suppress(OSError):  # on Windows, a locked file cannot be read
                owner = lock.read_text("utf-8") or owner
            raise ValueError(f"{str(place)!r} is in use: {owner}. {remedy}") from error
        process = f"process {os.getpid()} on {socket.gethostname()}"
        signed = f"{purpose} by {process} since {time.strftime('%Y-%m-%d %H:%M:%S')}"
        with contextlib.suppress(OSError):  # the next write reports a full disk
            lock.write_text(signed, "utf-8")
        yield


def claimed_output(
    path: str | os.PathLike, purpose: str, remedy: str = "Wait until it ends, or give another --out"
) -> contextlib.AbstractContextManager[None]:
    """Like `claimed`, for a file or folder that will be written; `.NAME.lock` lies beside it."""
    path = pathlib.Path(path).absolute()
    return claimed(path, purpose, remedy, path.with_name(f".{path.name}{LOCK}"))


SCHEMES = ("hf://", "kaggle://")
TIMM = "timm/"  # timm's own names for its models, which are at hf://timm
MAIN = "main"
COMMIT = re.compile("[0-9a-f]{40}")
_HF = re.compile(
    r"hf://(?P<repository>\w[\w.-]*/\w[\w.-]*)"
    r"(?:@(?P<revision>refs/(?:pr|convert)/\w+|\w[\w.-]*))?"
    r"(?:/(?P<file>.+))?",
    re.ASCII,
)
_REVISION = re.compile(rf"((?:hf://)?[^/@]+/[^/@]+)@{COMMIT.pattern}(?=/|$)")
_KAGGLE = re.compile(
    r"kaggle://(?P<handle>\w[\w-]*/\w[\w-]*/\w+/\w[\w.-]*)(?:/(?P<version>[1-9]\d*))?", re.ASCII
)


class HubAddress(NamedTuple):
    """A model on the Hugging Face hub.

    Attributes:
        repository: `USER/NAME`.
        revision: A branch, a tag or the hash of a commit.
        file: A file or folder in the repository; empty for the repository itself.
    """

    repository: str
    revision: str = MAIN
    file: str = ""

    def __str__(self):
        revision = "" if self.revision == MAIN else f"@{self.revision}"
        return f"hf://{self.repository}{revision}{self.file and '/'}{self.file}"


def is_address(path: object) -> bool:
    """Whether `path` names a model on a hub rather than a file; existing files count as files."""
    if not isinstance(path, str):
        return False
    return path.startswith(SCHEMES) or (path.startswith(TIMM) and not os.path.exists(path))


def parse_hf(path: str) -> HubAddress:
    """Reads `hf://USER/NAME[@REVISION][/FILE]` or `timm/NAME`.

    Raises:
        ValueError: If it is neither, or if its file lies outside the repository.
    """
    whole = f"hf://{path}" if path.startswith(TIMM) else path
    repository, revision, file = _parts(_HF, whole, "hf://USER/NAME[@REVISION][/FILE]")
    return HubAddress(repository, revision or MAIN, file or "")


def parse_kaggle(path: str) -> tuple[str, str | None]:
    """Reads `kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]`.

    Returns:
        Kaggle's handle without the version, and the version; None for the newest.

    Raises:
        ValueError: If the address has another form.
    """
    return _parts(_KAGGLE, path, "kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]")


def _parts(pattern, path, form):
    """Returns the groups of an address; the last one is a file or a version, if any."""
    match = pattern.fullmatch(path)
    if match is None or not is_plain(match[match.lastindex]):
        raise ValueError(f"The address of a model must be {form}. Received: {path!r}")
    return match.groups()


def without_commit(path: str) -> str:
    """An address without its commit or version; branches and other paths are unchanged.

    Example:
        >>> without_commit("kaggle://keras/vit/keras/vit_base/3")
        'kaggle://keras/vit/keras/vit_base'
    """
    if path.startswith("kaggle://"):
        return f"kaggle://{parse_kaggle(path)[0]}"
    return _REVISION.sub(r"\1", path, count=1) if is_address(path) else path


def is_plain(name: str) -> bool:
    """Whether a file name from a hub stays in its folder on every system."""
    return not {"", ".", ".."} & set(name.split("/")) and re.search(r"[\\:\0-\x1f]", name) is None
