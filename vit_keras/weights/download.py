"""Downloads published checkpoints into a cache, from which they also work offline.

The files of the Hugging Face hub go to its cache, as in `vit_keras.weights.hub`. Google's are
stored in `models/vit_keras` in `$KERAS_HOME` or `~/.keras`, under their publisher's path. A file
put there by hand is used as if it had been downloaded. `keras.utils.get_file` accepts bodies of any
size, has no timeout, and writes under the final name, so this module does not use it. Two
environment variables change the download:

- `VIT_KERAS_MIRROR`: the URL of a copy of storage.googleapis.com, such as
  `https://mirror.example.org/weights`, which has `vit_models/imagenet21k/ViT-B_16.npz` below it;
- `VIT_KERAS_TIMEOUT`: the seconds without a byte after which a connection counts as stalled (by
  default, 30).
"""

import contextlib
import http.client
import os
import pathlib
import ssl
import time
import urllib.error
import urllib.request

import keras

from vit_keras.support.files import recover, reserved
from vit_keras.weights.containers.archives import NpzTensors
from vit_keras.weights.containers.checks import check_tensors
from vit_keras.weights.hub import local_path
from vit_keras.weights.published import BASE_URL, HUGGING_FACE, lookup

MIRROR, TIMEOUT = "VIT_KERAS_MIRROR", "VIT_KERAS_TIMEOUT"
DEFAULT_TIMEOUT_SECONDS = 30.0
RETRIES = 3
CHUNK_BYTES = 2**20
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
BROKEN = (urllib.error.URLError, ConnectionError, TimeoutError, ssl.SSLError)
SIZE_TOLERANCE = 0.02  # published sizes are rounded to MiB
LARGEST_BYTES = 2**34  # of a file of unpublished size: twice the largest one, in float32


def resolve(variant: str, weights: str) -> str:
    """Returns the path of a published file of weights; downloads it if necessary.

    Args:
        variant: The name of a variant, such as "B/16".
        weights: The name of published weights, one of `vit_keras.weights.names(variant)`.

    Returns:
        The path in the cache.

    Raises:
        ValueError: If no such weights are published. The message lists the published names.
        FileNotFoundError, ConnectionError: As in `fetch`.

    Example:
        ```python
        path = vit_keras.weights.resolve("B/16", "augreg-imagenet21k")
        ```
    """
    return fetch(lookup(variant, weights))


def fetch(row, cache_dir=None, timeout=None, retries=RETRIES) -> str:
    """Downloads a published file unless it is in the cache.

    A file of the Hugging Face hub is downloaded by `local_path`, with the configurations beside it;
    the other arguments are for Google's files. A file gets its name only once it is complete and
    verified: its size must be the published one, its checksums right, and its numbers finite. After
    a broken connection, the download continues where it stopped. A download that exceeds the
    published size is aborted.

    Args:
        row: A row of the table, from `vit_keras.weights.lookup`.
        cache_dir: The cache, by default `$KERAS_HOME` or `~/.keras`.
        timeout: The seconds without a byte after which a connection counts as stalled.
        retries: The number of retries of a broken, stalled or refused connection.

    Returns:
        The path of the file.

    Raises:
        FileNotFoundError: If the server has no such file.
        ConnectionError: If there is no stable connection.
        OSError: If the cache cannot be written.
        ValueError: If the file is not the published one.
        ImportError: If the hub's package is not installed.

    Example:
        ```python
        row = vit_keras.weights.lookup("B/16", "augreg-imagenet21k")
        path = vit_keras.weights.fetch(row, cache_dir="/data/keras")
        ```
    """
    if row.host == HUGGING_FACE:
        return local_path(f"hf://{row.path.replace('/resolve/main/', '/')}")
    root = cache_dir or os.environ.get("KERAS_HOME") or os.path.join("~", ".keras")
    root = pathlib.Path(root).expanduser().absolute()
    target, url = root.joinpath("models", "vit_keras", row.path), row.url
    if mirror := os.environ.get(MIRROR, "").rstrip("/"):
        url = url.replace(BASE_URL, mirror, 1)
    recover(target.parent)
    if not target.is_file():
        with reserved(target) as hidden:
            if not target.is_file():  # unless another process has just downloaded it
                if keras.config.is_interactive_logging_enabled():
                    print(f"Downloading {url}", flush=True)
                timeout = float(timeout or os.environ.get(TIMEOUT) or DEFAULT_TIMEOUT_SECONDS)
                part = hidden / target.name
                most = int((row.size_mib or 0) * (1 + SIZE_TOLERANCE) * 2**20) or LARGEST_BYTES
                _download(url, part, target, timeout, retries, most)
                try:
                    _check_size(row, part)
                    with contextlib.closing(NpzTensors(str(part))) as tensors:
                        check_tensors(tensors)
                except ValueError as error:
                    raise ValueError(
                        f"{url} is not the published file: {error}. The download was removed. If "
                        "this persists, the server or a proxy is sending another file"
                    ) from error
                os.replace(part, target)
    _check_size(row, target)
    return str(target)


def _download(url, part, target, timeout, retries, most):
    """Downloads `url` into the file `part`; `target` is for messages, `most` is the limit in bytes.

    After a broken connection, only the missing bytes are requested. The checksums in the file show
    whether it has changed in between.
    """
    kind: type[OSError] = ConnectionError
    # Without `identity`, a server may compress, and offsets would count compressed bytes.
    headers = {"User-Agent": "vit_keras", "Accept-Encoding": "identity"}
    with open(part, "wb") as file:
        for attempt in range(retries + 1):
            time.sleep(min(2**attempt // 2, 8))
            missing = {"Range": f"bytes={done}-"} if (done := file.tell()) else {}
            try:
                request = urllib.request.Request(url, headers=headers | missing)
                with urllib.request.urlopen(request, timeout=timeout) as response:
                    return _receive(url, response, file, most)
            except urllib.error.HTTPError as error:
                fault = f"the server answered {error.code} {error.reason}"
                if done and error.code == 416:  # the file has become shorter: from the beginning
                    file.seek(0)
                    file.truncate()
                elif error.code not in TRANSIENT:
                    kind = FileNotFoundError if error.code in (404, 410) else kind
                    break
            except (*BROKEN, http.client.HTTPException) as error:
                reason = getattr(error, "reason", error)
                fault = f"{reason or type(error).__name__}, {attempt + 1} attempts"
    raise kind(
        f"{url} cannot be downloaded: {fault}. Check the network and the URL in a browser, set "
        "VIT_KERAS_MIRROR to the URL of a mirror, or put the file "
        f"at {str(target)!r}, where it will be used."
    )


def _receive(url, response, file, most):
    """Writes a body to an open file: all of it, or the bytes that the file lacks."""
    if response.status != 206:  # the whole file, which may have changed
        file.seek(0)
        file.truncate()
    done = file.tell()
    if not response.headers.get("Content-Range", f"bytes {done}-").startswith(f"bytes {done}-"):
        raise ConnectionError(f"the range does not begin at {done}")
    size = None if response.length is None else done + response.length
    bar = keras.utils.Progbar(size, unit_name="byte")
    # `read1` returns received bytes, which are written even if the connection stalls
    while max(done, size or 0) <= most and (chunk := response.read1(CHUNK_BYTES)):
        done += file.write(chunk)
        bar.update(done, finalize=done == size)
    if max(done, size or 0) > most:
        raise ValueError(
            f"{url} is not the published file: it has more than {most} bytes, the limit. "
            "Nothing was kept. The server or a proxy is sending another file"
        )
    if size not in (None, done):
        raise ConnectionError(f"the body ended at {done} of {size} bytes")
    file.flush()
    os.fsync(file.fileno())


def _check_size(row, path):
    size_mib, published = os.path.getsize(path) / 2**20, row.size_mib
    if published and abs(size_mib / published - 1) > SIZE_TOLERANCE:
        raise ValueError(
            f"{str(path)!r} has {size_mib:.3g} MiB, but the published file has {published} MiB. "
            "Remove it, and it will be downloaded again"
        )
