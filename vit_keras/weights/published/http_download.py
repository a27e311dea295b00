"""Downloads over HTTP into a partial file, with progress, time-outs, retries and resumption."""

import contextlib
import json
import os
import time

CHUNK_BYTES = 2**20
GONE = (404, 410)
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
LONGEST_PAUSE_SECONDS = 8


def download_part(url, part, target, timeout, retries, largest):
    """Downloads `url` into the file `part`, and continues what `part` holds already.

    Args:
        url: The URL.
        part: The partial file.
        target: Where the complete file will be, for messages.
        timeout: The seconds without a byte after which the connection counts as stalled.
        retries: How many times a failed attempt is repeated.
        largest: The most bytes that are taken.

    Raises:
        ValueError: If the server sends more than `largest` bytes; nothing is kept.
        FileNotFoundError: If the server has no such file.
        ConnectionError: If all attempts have failed; `part` is kept for the next call.
    """
    import http.client
    import ssl
    import urllib.error

    reason = None
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(min(2 ** (attempt - 1), LONGEST_PAUSE_SECONDS))
        try:
            reason = _attempt(url, part, timeout, largest)
        except urllib.error.HTTPError as error:
            reason = f"the server answered {error.code} {error.reason}"
            if error.code == 416:  # the server's file ends before this offset: another file
                forget(part)
            elif error.code not in TRANSIENT:
                kind = FileNotFoundError if error.code in GONE else ConnectionError
                raise kind(_failure(url, target, reason)) from error
        except TimeoutError:
            reason = f"the connection stalled: no byte in {timeout:g} s"
        except (urllib.error.URLError, ConnectionError, ssl.SSLError) as error:
            reason = f"no connection ({getattr(error, 'reason', error)})"
        except http.client.HTTPException as error:
            reason = f"the connection broke ({type(error).__name__})"
        if reason is None:
            return
    raise ConnectionError(_failure(url, target, f"{reason}, {retries + 1} attempts"))


def _failure(url, target, reason):
    return (
        f"{url} cannot be downloaded: {reason}. Check the network and the URL in a browser, set "
        "VIT_KERAS_MIRROR to the URL of a mirror (HF_ENDPOINT for huggingface.co), or put the file "
        f"at {target!r}, where it will be used."
    )


def _attempt(url, part, timeout, largest):
    """Tries one connection; returns None if the file is complete, otherwise the reason."""
    import urllib.request

    done, known = _state(part)
    if known.get("size") == done and done:
        return None
    # Without `identity` a server may compress, and offsets would count compressed bytes.
    headers = {"User-Agent": "vit_keras", "Accept-Encoding": "identity"}
    if done:
        headers["Range"] = f"bytes={done}-"
        if known.get("validator"):
            headers["If-Range"] = known["validator"]  # a changed file is sent from its start
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as response:
        if response.status == 206:
            size = _range_size(response, done)
            if size is None or size != (known.get("size") or size):
                forget(part)
                return "the server answered with another range than the requested one"
        else:
            done, size = 0, _length(response)
            _remember(part, size, _validator(response))
        _check_size(url, part, size, largest)
        done = _receive(response, part, done, size, largest)
        _check_size(url, part, done, largest)
    if size is not None and done != size:
        return f"the body ended at {done} of {size} bytes"
    return None


def _check_size(url, part, size, largest):
    if size is not None and size > largest:
        forget(part)
        raise ValueError(
            f"{url} is not the published file: it has more than {largest} bytes, the most that are "
            "taken. Nothing was kept. The server or a proxy sends another file"
        )


def _receive(response, part, done, size, largest):
    """Appends the body to `part` from offset `done`; returns the bytes that `part` then has.

    It ends at the first byte beyond `largest`.
    """
    import keras

    bar = keras.utils.Progbar(size, unit_name="byte")
    with open(part, "r+b" if done else "wb") as file:
        file.truncate(done)
        file.seek(done)
        try:
            while size is None or done < size:
                # `read1` returns what has arrived, which is written even if the connection stalls
                left = largest + 1 - done if size is None else size - done
                chunk = response.read1(max(min(CHUNK_BYTES, left), 0))
                if not chunk:
                    break
                done += file.write(chunk)
                bar.update(done, finalize=done == size)
        finally:
            file.flush()
            os.fsync(file.fileno())
    return done


def _length(response):
    length = response.headers.get("Content-Length", "")
    return int(length) if length.isdigit() else None


def _range_size(response, start):
    """The size of the complete file, from a header such as `Content-Range: bytes 5-9/10`.

    Returns None if the range is another one than from `start` to the end of the file.
    """
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    span, _, size = rest.partition("/")
    first, _, last = span.partition("-")
    if unit != "bytes" or not (first.isdigit() and last.isdigit() and size.isdigit()):
        return None
    return int(size) if (int(first), int(last)) == (start, int(size) - 1) else None


def _validator(response):
    """The value for `If-Range`: a strong entity tag, or the date of the last change."""
    tag = response.headers.get("ETag", "")
    return tag if tag.startswith('"') else response.headers.get("Last-Modified", "")


def _state(part):
    """The bytes that `part` has and the version they belong to; (0, {}) if that is unknown."""
    try:
        with open(f"{part}.json", encoding="utf-8") as file:
            known = json.load(file)
        return os.path.getsize(part), dict(known)
    except (OSError, ValueError, TypeError):
        return 0, {}


def _remember(part, size, validator):
    forget(part)  # what is there belongs to another version
    with open(f"{part}.json", "w", encoding="utf-8") as file:
        json.dump({"size": size, "validator": validator}, file)


def forget(part):
    """Removes a partial file and its record, if they are there."""
    for path in (part, f"{part}.json"):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
