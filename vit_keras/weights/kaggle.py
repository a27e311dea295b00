"""Keras' presets on Kaggle, downloaded by kagglehub into its cache."""

import os

from vit_keras import extras
from vit_keras.hub_address import parse_kaggle
from vit_keras.weights.hub_errors import hub_error, reason_of, status_of

PURPOSE = "Reading models of Kaggle"
CONFIG, WEIGHTS = "config.json", "model.weights.h5"
MAY_BE_ABSENT = ("task.json", "preprocessor.json", "task.weights.h5")


def kaggle_folder(address: str) -> str:
    """The folder of a preset of Keras, which is downloaded unless it is in kagglehub's cache.

    Raises:
        FileNotFoundError: Kaggle has no such model.
        PermissionError: Kaggle wants credentials, or consent to a license.
        ConnectionError: There is no connection, and the cache does not hold the model.
    """
    handle, version = parse_kaggle(address)
    extras.check("kagglehub", extra="hub", purpose=PURPOSE)
    if version and _is_complete(handle, version):
        return _folder(handle, version)
    try:
        config = _download(address, f"{handle}/{version}" if version else handle, CONFIG)
    except ConnectionError:
        cached = [number for number in _cached_versions(handle) if _is_complete(handle, number)]
        if version or not cached:
            raise
        return _folder(handle, max(cached))
    folder = os.path.dirname(config)
    handle = f"{handle}/{os.path.basename(folder)}"
    for name in MAY_BE_ABSENT:
        _download_if_there(address, handle, name)
    _download(address, handle, WEIGHTS)  # the last, so that a folder with weights has all
    return folder


def _download(address, handle, name):
    hub = extras.require("kagglehub", extra="hub", purpose=PURPOSE)
    errors = extras.require("kagglehub.exceptions", extra="hub", purpose=PURPOSE)
    try:
        return hub.model_download(handle, path=name)
    except (OSError, errors.UnauthenticatedError, errors.DataCorruptionError) as error:
        raise _failure(address, error) from error


def _download_if_there(address, handle, name):
    try:
        _download(address, handle, name)
    except FileNotFoundError:
        return


def _failure(address, error):
    page = "kaggle.com/models/" + "/".join(address.removeprefix("kaggle://").split("/")[:2])
    return hub_error(
        error,
        missing=f"There is no {address} on Kaggle (404). Choose a variation and a version at "
        f"{page}",
        refused=f"{address} wants credentials (Kaggle answered {status_of(error)}): accept its "
        f"license at {page} if it asks for one, and run kagglehub.login() or set KAGGLE_API_TOKEN",
        unreachable=f"{address} is not in the cache and cannot be downloaded: {reason_of(error)}. "
        "Check the network, or download the folder elsewhere and give its path",
    )


def _folder(handle, version):
    config = extras.require("kagglehub.config", extra="hub", purpose=PURPOSE)
    return os.path.join(config.get_cache_folder(), "models", *handle.split("/"), str(version))


def _cached_versions(handle):
    parent = os.path.dirname(_folder(handle, 0))
    names = os.listdir(parent) if os.path.isdir(parent) else []
    return [int(name) for name in names if name.isdecimal()]


def _is_complete(handle, version):
    """Whether kagglehub has finished the download of the weights, alone or with all files."""
    folder = _folder(handle, version)
    parent = os.path.dirname(folder)
    alone = os.path.join(parent, ".complete", str(version), f"{WEIGHTS}.complete")
    marked = os.path.isfile(alone) or os.path.isfile(f"{folder}.complete")
    return marked and all(os.path.isfile(os.path.join(folder, name)) for name in (CONFIG, WEIGHTS))
