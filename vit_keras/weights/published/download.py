"""Downloads published checkpoints into the Keras cache, where they are used offline.

Files lie in `models/vit_keras` in `$KERAS_HOME` or `~/.keras`, under their publisher's path. A file
put there by hand is used as if it had been downloaded. Three environment variables change the
download:

- `VIT_KERAS_MIRROR`: the URL of a copy of storage.googleapis.com, such as
  `https://mirror.example.org/weights`, which has `vit_models/imagenet21k/ViT-B_16.npz` below it;
- `HF_ENDPOINT`: the URL of a copy of huggingface.co, as for Hugging Face's own packages;
- `VIT_KERAS_TIMEOUT`: the seconds without a byte after which a connection counts as stalled (30).
"""

import contextlib
import dataclasses
import os
import urllib.parse

from vit_keras.file_lock import exclusive_lock
from vit_keras.files import naming, sha256
from vit_keras.weights.published import catalog, http_download, integrity
from vit_keras.weights.published.rows import BASE_URL, HUGGING_FACE

MIRROR, TIMEOUT = "VIT_KERAS_MIRROR", "VIT_KERAS_TIMEOUT"
MIRRORS = {BASE_URL: MIRROR, HUGGING_FACE: "HF_ENDPOINT"}
DEFAULT_TIMEOUT_SECONDS = 30.0
RETRIES = 3


def resolve(variant: str, weights: str) -> str:
    """Returns the path of a published file of weights, which is downloaded if need be.

    Args:
        variant: The name of a variant, such as "B/16".
        weights: The name of published weights, one of `vit_keras.weights.names(variant)`.

    Returns:
        The path in the Keras cache.

    Raises:
        ValueError: If no such weights are published. The message lists the names that are.
        FileNotFoundError, ConnectionError: As in `fetch`.

    Example:
        ```python
        path = vit_keras.weights.resolve("B/16", "augreg-imagenet21k")
        ```
    """
    return fetch(catalog.lookup(variant, weights))


def fetch(row, cache_dir=None, timeout=None, retries=RETRIES) -> str:
    """Downloads a published file unless it is in the cache, and the files that describe it.

    The file gets its name only when it is complete and verified. Its SHA-256 must be the row's; if
    the row has none, the first download is read through, its checksums are compared, its numbers
    must be finite, and its SHA-256 is recorded in a `.sha256` file beside it. Every later use
    compares the file with its SHA-256 again. An interrupted download continues where it ended, and
    one that is larger than the published file is given up.

    Args:
        row: A row of the table, from `vit_keras.weights.lookup`.
        cache_dir: The cache, by default `$KERAS_HOME` or `~/.keras`.
        timeout: The seconds without a byte after which a connection counts as stalled.
        retries: How many times a broken, stalled or refused connection is tried again.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: If the server has no such file.
        ConnectionError: If there is no connection, or none that lasts. What has arrived is kept.
        PermissionError: If the cache cannot be written.
        ValueError: If the file is not the published one, or if an argument or an environment
            variable is wrong.

    Example:
        ```python
        row = vit_keras.weights.lookup("B/16", "augreg-imagenet21k")
        path = vit_keras.weights.fetch(row, cache_dir="/data/keras")
        ```
    """
    for name in row.beside:
        path = f"{row.path.rpartition('/')[0]}/{name}"
        alone = dataclasses.replace(row, path=path, beside=(), sha256=None, size_mib=None)
        fetch(alone, cache_dir, timeout, retries)
    target = cached_path(row, cache_dir)
    timeout, url, part = _timeout(timeout), _url(row), f"{target}.part"
    if retries < 0:
        raise ValueError(f"`retries` must be 0 or more. Received: retries={retries}")
    if not os.path.isfile(target):
        _folder(target)
        waiting = lambda: _say(f"Waiting for the process that downloads {url}")
        with naming(target, part, f"{target}.lock"), exclusive_lock(f"{target}.lock", waiting):
            if not os.path.isfile(target):  # unless the holder of the lock has downloaded it
                _say(f"Downloading {url}")
                largest = integrity.largest(row)
                http_download.download_part(url, part, target, timeout, retries, largest)
                integrity.admit(row, part, target, url)
                return target
    with contextlib.suppress(OSError):
        integrity.remove_remains(target)  # of a process that was killed as it removed them
        if os.path.exists(f"{target}.lock"):
            with exclusive_lock(f"{target}.lock", lambda: None):
                pass
    integrity.check_cached(row, target)  # without the lock: a cache may be read-only
    return target


def cache_folder(cache_dir=None) -> str:
    """The folder of this package in the Keras cache, whether it is there or not."""
    root = cache_dir or os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")
    root = os.path.abspath(os.path.expanduser(os.fspath(root)))
    return os.path.join(root, "models", "vit_keras")


def cached_path(row, cache_dir=None) -> str:
    """The path of the file of `row` in the cache, whether it is there or not."""
    return os.path.join(cache_folder(cache_dir), *row.path.split("/"))


def check_download(path: str) -> None:
    """Compares a file of the cache, which was opened by its path, with its recorded SHA-256.

    Raises:
        ValueError: If the file is not the one that was downloaded.
    """
    in_cache = os.path.realpath(path).startswith(os.path.realpath(cache_folder()) + os.sep)
    expected = integrity.recorded(path) if in_cache and not integrity.was_checked(path) else None
    if expected is not None and (digest := sha256(path)) != expected:
        raise ValueError(
            f"{path!r} is not the file that was downloaded: its SHA-256 was {expected} and is "
            f"{digest}. Remove it, and it will be downloaded again"
        )


def _url(row):
    variable = MIRRORS[row.host]
    mirror = os.environ.get(variable, "").rstrip("/")
    if mirror and urllib.parse.urlsplit(mirror).scheme not in ("http", "https"):
        raise ValueError(
            f"{variable} must be an http:// or https:// URL, the base of a copy of {row.host}. "
            f"Received: {mirror!r}"
        )
    return row.url.replace(row.host, mirror, 1) if mirror else row.url


def _timeout(timeout):
    name = "`timeout`" if timeout is not None else TIMEOUT
    value = os.environ.get(TIMEOUT) or DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"{name} must be a positive number of seconds. Received: {value!r}")
    return seconds


def _folder(target):
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(f"{target}.lock", "ab"):
            pass
    except OSError as error:
        raise PermissionError(
            f"The cache cannot be written: {error}. Set KERAS_HOME to a folder that can be "
            f"written, or put the file at {target!r}, where it will be used."
        ) from error


def _say(message):
    import keras

    if keras.config.is_interactive_logging_enabled():
        print(message, flush=True)
