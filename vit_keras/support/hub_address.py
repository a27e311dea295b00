"""Addresses of models on hubs: `hf://USER/NAME`, `kaggle://OWNER/MODEL/…`, and `timm/NAME`."""

import dataclasses
import os
import re

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


@dataclasses.dataclass(frozen=True)
class HubAddress:
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
    match = _HF.fullmatch(f"hf://{path}" if path.startswith(TIMM) else path)
    if match is None or not is_plain(match["file"] or "file"):
        raise ValueError(
            "The address of a model on the Hugging Face hub must be "
            f"hf://USER/NAME[@REVISION][/FILE]. Received: {path!r}"
        )
    return HubAddress(match["repository"], match["revision"] or MAIN, match["file"] or "")


def parse_kaggle(path: str) -> tuple[str, int | None]:
    """Reads `kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]`.

    Returns:
        Kaggle's handle without the version, and the version; None for the newest.

    Raises:
        ValueError: If it is not such an address.
    """
    match = _KAGGLE.fullmatch(path)
    if match is None:
        raise ValueError(
            "The address of a model on Kaggle must be "
            f"kaggle://OWNER/MODEL/FRAMEWORK/VARIATION[/VERSION]. Received: {path!r}"
        )
    return match["handle"], int(match["version"]) if match["version"] else None


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
