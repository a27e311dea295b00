"""Published checkpoints in the Keras cache: fetched once, resumed, verified, then used offline.

Files lie in `models/vit_keras` of `$KERAS_HOME`, or of `~/.keras`, under the path that they have at
their publisher; one put there by hand is used as if it had been downloaded. Two environment
variables are read:

- `VIT_KERAS_MIRROR`: the URL of a copy of storage.googleapis.com to download from instead, such as
  `https://mirror.example.org/weights`, which has `vit_models/imagenet21k/ViT-B_16.npz` below it;
- `VIT_KERAS_TIMEOUT`: seconds without a byte after which a connection counts as stalled (30).
"""

import os
import urllib.parse

from vit_keras.weights.published import http_download, integrity, table
from vit_keras.weights.published.file_lock import exclusive_lock

MIRROR, TIMEOUT = "VIT_KERAS_MIRROR", "VIT_KERAS_TIMEOUT"
DEFAULT_TIMEOUT_SECONDS = 30.0
RETRIES = 3


def resolve(variant: str, weights: str) -> str:
    """The path of the published `weights` of `variant`, downloaded if need be.

    Raises ValueError with the names that there are where the table has no such row.
    """
    return fetch(table.lookup(variant, weights))


def fetch(row, cache_dir=None, timeout=None, retries=RETRIES) -> str:
    """Downloads the file of a row of the table unless it is in the cache; returns its path.

    The file appears under its name only when it is whole and verified: its SHA-256 is compared with
    the row's, or else with the one that the first download recorded in a `.sha256` file beside it,
    then and on every use. An interrupted download is taken up where it ended.

    Args:
        row: a `PublishedFile`.
        cache_dir: instead of `$KERAS_HOME` or `~/.keras`.
        timeout: seconds without a byte after which a connection counts as stalled.
        retries: how many times a broken, stalled or refused connection is tried again.

    Raises:
        FileNotFoundError: the server has no such file.
        ConnectionError: no connection, or none that lasts; what has arrived is kept.
        ValueError: the file is not the published one, or an argument or variable is wrong.
    """
    target = cached_path(row, cache_dir)
    timeout, url, part = _timeout(timeout), _url(row), f"{target}.part"
    if retries < 0:
        raise ValueError(f"`retries` must be 0 or more. Received: retries={retries}")
    if not os.path.isfile(target):
        _folder(target)
        with exclusive_lock(
            f"{target}.lock", lambda: _say(f"Waiting for the process that gets {url}")
        ):
            if not os.path.isfile(target):  # else whoever held the lock has downloaded it
                _say(f"Downloading {url}")
                http_download.download_part(url, part, target, timeout, retries)
                integrity.admit(row, part, target, url)
                return target
    integrity.check_cached(row, target)  # without the lock: a cache may be read-only
    return target


def cached_path(row, cache_dir=None) -> str:
    """Where the file of `row` is, or would be, in the cache."""
    root = cache_dir or os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")
    root = os.path.abspath(os.path.expanduser(os.fspath(root)))
    return os.path.join(root, "models", "vit_keras", *row.path.split("/"))


def _url(row):
    mirror = os.environ.get(MIRROR, "").rstrip("/")
    if mirror and urllib.parse.urlsplit(mirror).scheme not in ("http", "https"):
        raise ValueError(
            f"{MIRROR} must be an http:// or https:// URL, the base of a copy of {table.BASE_URL}. "
            f"Received: {mirror!r}"
        )
    return row.url.replace(table.BASE_URL, mirror, 1) if mirror else row.url


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
            f"The cache cannot be written: {error}. Set KERAS_HOME to a folder that can be, "
            f"or put the file at {target!r}, where it is picked up."
        ) from error


def _say(message):
    import keras

    if keras.config.is_interactive_logging_enabled():
        print(message, flush=True)
