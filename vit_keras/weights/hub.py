"""Downloads models from the Hugging Face Hub and from Kaggle with the hubs' own packages.

The files are kept in these packages' caches, which also work offline. `HF_HUB_CACHE`,
`HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE` control the first package, and `KAGGLEHUB_CACHE` and
Kaggle's credentials the second. From the Hugging Face Hub, only configurations and weights are
downloaded.
"""

import contextlib
import hashlib
import os
import pathlib
import re
from collections.abc import Collection

from vit_keras.support import extras, files
from vit_keras.support.checks import listed
from vit_keras.weights.containers import DamagedFile, read_index
from vit_keras.weights.containers.checks import reason_of

HASH = re.compile("[0-9a-f]{64}|[0-9a-f]{40}")  # SHA-256 of large files, git's hash of others


def local_path(path: str | os.PathLike) -> str:
    """Returns the path of a file or folder of weights; downloads it if it is on a hub.

    Args:
        path: A path, which is returned unchanged; or `hf://USER/NAME[@REVISION][/FILE]`,
            `timm/NAME`, or `kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]`.

    Returns:
        The path of a local file or folder.

    Raises:
        FileNotFoundError: The hub (or, offline, the cache) has no such model or file.
        PermissionError: The hub requires a token, or the acceptance of a license.
        ConnectionError: There is no connection, and the model is not in the cache.
        ValueError: The address is not valid, or a downloaded file is damaged.
        ImportError: The hub's package is not installed.

    Example:
        ```python
        folder = vit_keras.weights.local_path("hf://google/vit-base-patch16-224")
        ```
    """
    path = os.fspath(path)
    if not files.is_address(path):
        return path
    return _kaggle_folder(path) if path.startswith("kaggle://") else _hf_path(files.parse_hf(path))


def pinned_address(path: str) -> str:
    """Returns the address of a model at the newest commit or version.

    This does not download the model; `local_path` does. Addresses with a commit, a branch, a tag
    or a version, and paths, are returned unchanged.

    Raises:
        OSError, ValueError, ImportError: As for `local_path`.

    Example:
        ```python
        vit_keras.weights.pinned_address("hf://google/vit-base-patch16-224")  # ...-224@3f49326e...
        ```
    """
    if not files.is_address(path):
        return path
    if path.startswith("kaggle://"):
        version = files.parse_kaggle(path)[1]
        return path if version else f"{path}/{os.path.basename(_kaggle_folder(path))}"
    address = files.parse_hf(path)
    if address.revision != files.MAIN:
        return path
    commit = next(filter(files.COMMIT.fullmatch, reversed(pathlib.Path(_hf_path(address)).parts)))
    pinned = str(address._replace(revision=commit))
    return pinned.removeprefix("hf://") if path.startswith(files.TIMM) else pinned


def _hf_path(address):
    hub, errors = map(extras.require, ("huggingface_hub", "huggingface_hub.errors"))
    broken = (errors.HTTPError, errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError)
    try:
        info = hub.HfApi().model_info(address.repository, revision=address.revision)
        is_right = address.revision == info.sha or not files.COMMIT.fullmatch(address.revision)
        if not (is_right and files.COMMIT.fullmatch(info.sha or "")):
            raise ValueError(f"The hub must give the commit of {address}. Received: {info.sha!r}")
        names = [file.rfilename for file in info.siblings or ()]
        return _download(hub, address, info.sha, names)
    except (*broken, errors.FileMetadataError) as error:
        page = f"huggingface.co/{address.repository}"
        login = f"accept the license at {page} if it asks for one, and run `hf auth login`"
        missing = "Check the revision and the file, or run `hf auth login`"
        told = _failure(address, error, missing, f"{login} or set HF_TOKEN")
        if not isinstance(told, ConnectionError):
            raise told from error
        where = {"revision": address.revision, "local_files_only": True}
        try:
            folder = pathlib.Path(hub.snapshot_download(address.repository, **where))
            held = filter(pathlib.Path.is_file, folder.rglob("*"))
            names = [path.relative_to(folder).as_posix() for path in held]
            return _download(hub, address, None, names)
        except FileNotFoundError:
            raise told from error


def _download(hub, address, commit, names):
    """Downloads the files of a model, the weights last; returns the path of the file or folder.

    Without a commit, they must be in the cache.
    """
    *configs, weights = _choose(address, names)
    for name in configs:
        _file(hub, address, commit, name)
    path = _file(hub, address, commit, weights)
    beside = sorted({*read_index(path).values()})
    shards = [f"{os.path.dirname(weights)}/{name}".lstrip("/") for name in beside]
    if commit and (absent := [name for name in shards if name not in names]):
        raise DamagedFile(f"{address} lacks shards that its {weights} names: {listed(absent)}")
    for name in shards:
        _file(hub, address, commit, name)
    return path if address.file in names else os.path.dirname(path)


def _choose(address: files.HubAddress, names: list[str]) -> list[str]:
    """Returns the files to download: the configurations, then the weights."""
    folder, weights = os.path.split(address.file) if address.file in names else (address.file, None)
    paths = map(os.path.split, filter(files.is_plain, names))
    weights = weights or weights_among([name for place, name in paths if place == folder])
    if weights is None:
        raise FileNotFoundError(
            f"{address} must hold one of {', '.join(FOLDER_FILES)}, or exactly one other file of "
            f"weights. Received: {', '.join(sorted(names)[:20]) or 'nothing'}. Name a file as "
            f"hf://{address.repository}/FILE"
        )
    beside = [name for name in (*CONFIG_FILES, "labels.txt") if name != weights]
    read = [f"{folder}/{name}".lstrip("/") for name in (*beside, weights)]
    return [name for name in read if name in names]


def _file(hub, address, commit, name):
    """Downloads a file of a commit unless it is in the cache, and checks its hash."""
    cached = hub.try_to_load_from_cache(address.repository, name, revision=commit)
    if commit and not isinstance(cached, str):
        url = hub.hf_hub_url(address.repository, name, revision=commit)
        said = hub.get_hf_file_metadata(url)  # its values become file names in the cache
        if said.commit_hash != commit or not HASH.fullmatch(said.etag or ""):
            raise ValueError(
                f"The server of {address} must name the commit {commit} and the hash of {name!r}. "
                f"Received: commit {said.commit_hash!r}, hash {said.etag!r}"
            )
    # By revision, not by commit, so that the cache records the commit of a branch.
    where = {"revision": address.revision, "local_files_only": commit is None}
    path = hub.hf_hub_download(address.repository, name, **where)
    if commit not in (None, *pathlib.Path(path).parts):
        raise ConnectionError(f"{address} changed during the download. Try again")
    blob = os.path.realpath(path)  # whose name in the cache is its hash
    expected = os.path.basename(blob)
    if not HASH.fullmatch(expected):  # the cache is on a file system without links
        return path
    if (digest := _digest(blob, len(expected))) != expected:
        with contextlib.suppress(OSError):  # Windows cannot remove an open file
            os.remove(blob)
        raise DamagedFile(
            f"{path!r} is not the file that {address} names: its hash is {digest}, but the hub's "
            f"is {expected}. It was removed, and will be downloaded again next time"
        )
    return path


def _digest(path, digits):
    """Returns the SHA-256 of a file, or git's hash of 40 digits."""
    if digits == 64:
        return files.sha256(path)
    content = pathlib.Path(path).read_bytes()  # of a small file
    start = b"blob %d\0" % len(content)
    return hashlib.sha1(start + content, usedforsecurity=False).hexdigest()


def _kaggle_folder(address: str) -> str:
    """Returns the folder of a Keras preset, from kagglehub's cache or from Kaggle."""
    handle, version = files.parse_kaggle(address)
    packages = ("kagglehub", "kagglehub.config", "kagglehub.exceptions")
    hub, config, errors = map(extras.require, packages)
    try:
        return hub.model_download(f"{handle}/{version}" if version else handle)
    except (OSError, errors.UnauthenticatedError, errors.DataCorruptionError) as error:
        page = "kaggle.com/models/" + "/".join(handle.split("/")[:2])
        login = f"accept its license at {page}, and run kagglehub.login() or set KAGGLE_API_TOKEN"
        told = _failure(address, error, f"Choose a variation and a version at {page}", login)
        folder = pathlib.Path(config.get_cache_folder(), "models", handle)
        whole = [int(p.stem) for p in folder.glob("*.complete") if p.stem.isdecimal()]
        if version or not whole or not isinstance(told, ConnectionError):
            raise told from error
        return str(folder / str(max(whole)))


def _failure(address, error, missing, refused) -> OSError:
    """Makes a FileNotFoundError, a PermissionError or a ConnectionError."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status == 404:
        return FileNotFoundError(f"There is no {address} on the hub, or it is private. {missing}")
    if status in (401, 403) or type(error).__name__ == "UnauthenticatedError":  # of kagglehub
        return PermissionError(f"{address} requires a token (the hub answered {status}): {refused}")
    return ConnectionError(
        f"{address} is not in the cache and cannot be downloaded: {reason_of(error)}. Check the "
        "network, and that HF_HUB_OFFLINE is not set; or download the folder elsewhere and give "
        "its path"
    )


# The names of weights in a folder; the first that exists is read.
FOLDER_FILES = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json", "model.weights.h5"),
    *("open_clip_model.safetensors", "open_clip_pytorch_model.bin"),
)
# If none of them exists, the only file of one of these kinds is read, unless it is a shard.
OTHER_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".pth.tar")
SHARD = re.compile(r".*-\d+-of-\d+\.(safetensors|bin)")
CONFIG_FILES = (
    *("config.json", "task.json", "image_converter.json"),
    *("preprocessor_config.json", "open_clip_config.json"),
)


def weights_among(names: Collection[str]) -> str | None:
    """Returns the file of weights to read from a folder with these files; None without one."""
    others = [n for n in names if n.endswith(OTHER_SUFFIXES) and not SHARD.fullmatch(n)]
    only = others[0] if len(others) == 1 else None
    return next((name for name in FOLDER_FILES if name in names), only)
