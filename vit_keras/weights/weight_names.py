"""The names that files of weights and the JSON files beside them have in a folder."""

# The names that weights have in a folder; the first that exists is read.
FOLDER_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "model.weights.h5",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
# Where none of them exists, the only file of one of these kinds is read.
OTHER_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
CONFIG_FILES = (
    "config.json",
    "task.json",
    "preprocessor_config.json",
    "open_clip_config.json",
)
