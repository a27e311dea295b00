"""The names that files of weights and the JSON files beside them have in a folder."""

import re
from collections.abc import Collection

# The names that weights have in a folder; the first that exists is read.
FOLDER_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "model.weights.h5",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
# Where none of them exists, the only file of one of these kinds is read, unless it is a shard.
OTHER_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
SHARD = re.compile(r".*-\d+-of-\d+\.(safetensors|bin)")
CONFIG_FILES = (
    "config.json",
    "task.json",
    "preprocessor_config.json",
    "open_clip_config.json",
)


def weights_among(names: Collection[str]) -> str | None:
    """The file of weights that is read from a folder with these files; None without one."""
    for name in FOLDER_FILES:
        if name in names:
            return name
    others = [n for n in names if n.endswith(OTHER_SUFFIXES) and not SHARD.fullmatch(n)]
    return others[0] if len(others) == 1 else None
