"""Models of the Hugging Face hub and of Kaggle, downloaded by the hubs' own packages.

The files lie in these packages' caches, where they are used offline: `HF_HUB_CACHE`, `HF_ENDPOINT`,
`HF_TOKEN` and `HF_HUB_OFFLINE` count for the one, `KAGGLEHUB_CACHE` and Kaggle's credentials for
the other. Only configurations and weights are downloaded, under names that this module chooses.
"""

import contextlib
import dataclasses
import hashlib
import os
import pathlib
import re
from typing import Any

from vit_keras import extras
from vit_keras.files import sha256, write_text
from vit_keras.hub_address import (
    COMMIT,
    MAIN,
    TIMM,
    HubAddress,
    is_address,
    is_plain,
    parse_hf,
    parse_kaggle,
)
from vit_keras.weights.containers import DamagedFile
from vit_keras.weights.containers.sharded import shards_of
from vit_keras.weights.containers.tensor_hashes import some
from vit_keras.weights.hub_errors import hub_error, reason_of, status_of
from vit_keras.weights.kaggle import kaggle_folder
from vit_keras.weights.published import integrity
from vit_keras.weights.weight_names import CONFIG_FILES, FOLDER_FILES, weights_among

SHA256 = re.compile("[0-9a-f]{64}")
PURPOSE = "Reading models of the Hugging Face hub"


def local_path(path: str | os.PathLike) -> str:
    """The path of a file or folder of weights, which is downloaded if it is on a hub.

    Args:
        path: A path, which is returned as it is; or `hf://USER/NAME[@REVISION][/FILE]`,
            `timm/NAME`, or `kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]`.

    Returns:
        The path of a local file or folder.

    Raises:
        FileNotFoundError: The hub has no such model or file, or offline, the cache has none.
        PermissionError: The hub wants a token, or the acceptance of a license.
        ConnectionError: There is no connection, and the cache does not hold the model.
        ValueError: The address is none, or a downloaded file is damaged.
        ImportError: The hub's package is not installed.

    Example:
        ```python
        folder = vit_keras.weights.local_path("hf://google/vit-base-patch16-224")
        ```
    """
    path = os.fspath(path)
    if not is_address(path):
        return path
    return kaggle_folder(path) if path.startswith("kaggle://") else _hf_path(parse_hf(path))


def pinned_address(path: str) -> str:
    """The address of a model at the commit, or of the version, that is the newest now.

    The model is downloaded as by `local_path`. What names a commit, a branch, a tag or a version
    already is returned as it is, and so is a path.

    Raises:
        OSError, ValueError, ImportError: As `local_path`.

    Example:
        ```python
        vit_keras.weights.pinned_address("hf://google/vit-base-patch16-224")  # ...-224@3f49326e...
        ```
    """
    if not is_address(path):
        return path
    if path.startswith("kaggle://"):
        version = parse_kaggle(path)[1]
        return path if version else f"{path}/{os.path.basename(kaggle_folder(path))}"
    address = parse_hf(path)
    if address.revision != MAIN:
        return path
    commit = next(filter(COMMIT.fullmatch, reversed(pathlib.Path(_hf_path(address)).parts)))
    pinned = str(dataclasses.replace(address, revision=commit))
    return pinned.removeprefix("hf://") if path.startswith(TIMM) else pinned


def _hf_path(address):
    hub = extras.require("huggingface_hub", extra="hub", purpose=PURPOSE)
    errors = extras.require("huggingface_hub.errors", extra="hub", purpose=PURPOSE)
    try:
        info = hub.HfApi().model_info(address.repository, revision=address.revision)
    except (errors.HTTPError, errors.OfflineModeIsEnabled) as error:
        answered = (status_of(error) or 500) < 500
        path = None if answered else _cached(hub, address)
        if path is None:
            raise failure(address, error) from error
        return path
    named = COMMIT.fullmatch(address.revision)
    if not COMMIT.fullmatch(info.sha or "") or (named and info.sha != address.revision):
        rule = "that commit" if named else "a commit of 40 digits"
        raise ValueError(f"{address} must be {rule}. Received: {info.sha!r}")
    names = [file.rfilename for file in info.siblings or ()]
    files = _choose(address, names)
    try:
        path = _download(hub, address, info.sha, files, names)
    except (errors.HTTPError, errors.FileMetadataError, OSError) as error:
        raise failure(address, error) from error
    _remember(hub, address, info.sha)
    return path if address.file in names else os.path.dirname(path)


def _download(hub, address, commit, files, names):
    """Downloads files, and shards if the last is an index; returns the path of the last."""
    path = [_file(hub, address, commit, name) for name in files][-1]
    folder = os.path.dirname(files[-1])
    shards = [f"{folder}/{name}".lstrip("/") for name in shards_of(path)]
    if absent := [name for name in shards if name not in names]:
        raise DamagedFile(
            f"{address} must hold the shards that its {files[-1]} names. Missing: {some(absent)}"
        )
    for name in shards:
        _file(hub, address, commit, name)
    return path


def _choose(address: HubAddress, names: list[str]) -> list[str]:
    """The files to download: configurations, and at the end the weights."""
    if address.file in names:
        folder, file = os.path.split(address.file)
        weights = [address.file]
    else:
        folder = address.file
        inside = [name for name in names if is_plain(name) and os.path.dirname(name) == folder]
        file = weights_among([os.path.basename(name) for name in inside]) or ""
        weights = [f"{folder}/{file}".lstrip("/")] if file else []
    if not weights:
        raise FileNotFoundError(
            f"{address} must hold {', '.join(FOLDER_FILES)}, or one file of weights of another "
            f"name. Received: {', '.join(sorted(names)[:20]) or 'nothing'}. Name a file as "
            f"hf://{address.repository}/FILE"
        )
    beside = [f"{folder}/{name}".lstrip("/") for name in (*CONFIG_FILES, "labels.txt")]
    return [*(name for name in beside if name in names and name != weights[0]), *weights]


def _file(hub, address, commit, name):
    """Downloads a file of a commit unless it is in the cache, and compares it with its hash."""
    path = hub.try_to_load_from_cache(address.repository, name, revision=commit)
    if isinstance(path, str):
        _verify(path, address)
        return path
    url = hub.hf_hub_url(address.repository, name, revision=commit)
    said = hub.get_hf_file_metadata(url)  # whose words become names of files in the cache
    if said.commit_hash != commit or not _is_hash(said.etag or ""):
        raise ValueError(
            f"The server of {address} must name the commit {commit} and the hash of {name!r}. "
            f"Received: commit {said.commit_hash!r}, hash {said.etag!r}"
        )
    path = hub.hf_hub_download(address.repository, name, revision=commit)
    try:
        _verify(path, address)
    except ValueError:
        for place in {os.path.realpath(path), path}:
            with contextlib.suppress(OSError):
                os.remove(place)
        raise
    return path


def _cached(hub, address: HubAddress) -> str | None:
    """The path of a model in the cache, complete as it was downloaded; None if it is not there."""
    folder = f"{address.file}/" if address.file else ""
    named = [address.file] if os.path.splitext(address.file)[1] else []
    for name in (*named, *(folder + name for name in (*FOLDER_FILES, CONFIG_FILES[0]))):
        path: Any = hub.try_to_load_from_cache(address.repository, name, revision=address.revision)
        if not isinstance(path, str):
            continue
        beside = os.path.dirname(path)
        weights = os.path.basename(path) if named else weights_among(os.listdir(beside))
        if weights is None:
            return None  # the download was cut short
        for file in os.listdir(beside):
            if os.path.isfile(os.path.join(beside, file)):
                _verify(os.path.join(beside, file), address)
        shards = shards_of(os.path.join(beside, weights))
        if not all(os.path.isfile(os.path.join(beside, name)) for name in shards):
            return None
        return path if named else beside
    return None


def _verify(path, address):
    """Compares a file with the hash that the cache calls it by, if it is called so."""
    expected = os.path.basename(os.path.realpath(path))
    if not _is_hash(expected) or integrity.was_checked(path):
        return
    digest = sha256(path) if SHA256.fullmatch(expected) else _git_hash(path)
    if digest != expected:
        raise ValueError(
            f"{path!r} is not the file that {address} names: its hash is {digest}, and the hub's "
            f"is {expected}. Remove {os.path.realpath(path)!r}, and it will be downloaded again"
        )
    integrity.mark_checked(path)


def _is_hash(text):
    return bool(SHA256.fullmatch(text) or COMMIT.fullmatch(text))


def _git_hash(path):
    """What git calls a file's content; the hub calls small files so."""
    digest = hashlib.sha1(b"blob %d\0" % os.path.getsize(path), usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(2**20):
            digest.update(chunk)
    return digest.hexdigest()


def _remember(hub, address, commit):
    """Records which commit a branch named, as the hub's package does, for use offline."""
    if address.revision == commit:
        return
    storage = f"models--{address.repository.replace('/', '--')}"
    path = os.path.join(hub.constants.HF_HUB_CACHE, storage, "refs", address.revision)
    with contextlib.suppress(OSError):  # a cache may be read-only
        os.makedirs(os.path.dirname(path), exist_ok=True)
        write_text(path, commit)


def failure(address: HubAddress, error: Exception) -> OSError:
    """The error for a user: what the hub answered, and what to do."""
    page = f"huggingface.co/{address.repository}"
    return hub_error(
        error,
        missing=f"There is no {address} on the hub, or it is private (404). Check the user, the "
        "name, the revision and the file, or run `hf auth login`",
        refused=f"{address} wants a token (the hub answered {status_of(error)}): check the name, "
        f"accept the license at {page} if it asks for one, and run `hf auth login` or set HF_TOKEN",
        unreachable=f"{address} is not in the cache and cannot be downloaded: {reason_of(error)}. "
        "Check the network, and that HF_HUB_OFFLINE is not set; or download the folder elsewhere "
        "and give its path",
    )
