"""Uploads a folder to the Hugging Face Hub in one commit."""

import os

from vit_keras.support import extras
from vit_keras.support.hub_address import MAIN, HubAddress, parse_hf
from vit_keras.weights.hub import REFUSED, reason_of, status_of

PURPOSE = "Uploading to the Hugging Face hub"


def repository_of(address: str) -> str:
    """Returns `USER/NAME` from `hf://USER/NAME`.

    Raises:
        ValueError: The address is not valid, or names a revision or a file.
    """
    target = parse_hf(address)
    if target != HubAddress(target.repository):
        raise ValueError(
            f"A model is uploaded to hf://USER/NAME, branch {MAIN}. Received: {address!r}"
        )
    return target.repository


def check_token() -> None:
    """Checks that the Hub's package is installed and has a token.

    Raises:
        PermissionError: There is no token.
        ImportError: The Hub's package is not installed.
    """
    hub = extras.require("huggingface_hub", extra="hub", purpose=PURPOSE)
    if not hub.get_token():
        raise PermissionError(
            "An upload needs a token that may write. Run `hf auth login`, or set HF_TOKEN"
        )


def upload(folder: str | os.PathLike, repository: str, private: bool = False) -> str:
    """Uploads a folder to a repository in one commit; creates the repository if necessary.

    Args:
        folder: The folder.
        repository: `USER/NAME`.
        private: Whether the repository must be private; a public one is refused.

    Returns:
        The URL of the commit.

    Raises:
        PermissionError: There is no token, or it may not write to the repository.
        ValueError: `private` is true, but the repository is public.
        ConnectionError: The Hub cannot be reached, or did not accept the commit.

    Example:
        ```python
        upload("pets", "ann/pets", private=True)
        ```
    """
    check_token()
    hub = extras.require("huggingface_hub", extra="hub", purpose=PURPOSE)
    errors = extras.require("huggingface_hub.errors", extra="hub", purpose=PURPOSE)
    api = hub.HfApi()
    try:
        if private and api.repo_exists(repository) and not api.model_info(repository).private:
            raise ValueError(
                f"hf://{repository} is public, so nothing was uploaded. Make it private in its "
                "settings, or give another name"
            )
        api.create_repo(repository, private=private, exist_ok=True)
        done = api.upload_folder(
            repo_id=repository, folder_path=folder, commit_message="Upload a run of vit_keras"
        )
    except (errors.HTTPError, errors.OfflineModeIsEnabled) as error:
        raise _failure(repository, error) from error
    return done.commit_url


def _failure(repository, error):
    status = status_of(error)
    if status in REFUSED:
        return PermissionError(
            f"The token may not write to hf://{repository} (the hub answered {status}). Check the "
            "user or organization, and give a token with write access: `hf auth login` or HF_TOKEN"
        )
    if status in (409, 412):
        return ConnectionError(
            f"hf://{repository} was changed by another upload meanwhile (the hub answered "
            f"{status}), and nothing was added. Run the command again"
        )
    return ConnectionError(
        f"hf://{repository} did not take the upload: {reason_of(error)}. Check the network, and "
        "that HF_HUB_OFFLINE is not set, and run the command again"
    )
