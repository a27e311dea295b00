"""A file of weights: its tensors, its format and the configuration beside it."""

import contextlib
import dataclasses
import functools
import os
import re
import zipfile
from collections.abc import Iterator
from typing import Any, TypedDict

from vit_keras.models.architectures import PUBLISHED_RESIZING, Numerics, check_arguments, class_for
from vit_keras.support import checks as forms
from vit_keras.support.checks import Count, DamagedFile, Labels, Positive, Size
from vit_keras.support.files import is_zip
from vit_keras.weights.containers import READERS, Reader, checks
from vit_keras.weights.containers.keras_h5 import KERAS_CONFIG
from vit_keras.weights.formats import registry
from vit_keras.weights.formats.base import Format
from vit_keras.weights.formats.keras_hub import READ, check_preset
from vit_keras.weights.hub import CONFIG_FILES, FOLDER_FILES, SHARD, local_path, weights_among

OURS = re.compile("encoderblock_|root_block/")  # every model of this package has such a name


class Note(TypedDict):
    """What this package writes into its own files about the model, as JSON."""

    architecture: dict
    numerics: dict


@dataclasses.dataclass
class WeightFile:
    """An open file of weights.

    Attributes:
        path: The path of the file.
        tensors: The reader of its container; see `vit_keras.weights.containers`.
        format: Its row in the table of formats.
        names: `{canonical name: name in the file}`.
        config: The contents of the JSON files beside it, or in a `.keras` file.
        remarks: What the user should know: the set of weights chosen among several, and what is
            left out.
    """

    path: str
    tensors: Reader
    format: Format
    names: dict[str, str]
    config: dict
    remarks: tuple[str, ...] = ()

    @functools.cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the tensors, by canonical name."""
        return {name: self.tensors.shapes[actual] for name, actual in self.names.items()}

    def read(self, name: str):
        """Reads the tensor with a canonical name."""
        return self.tensors.read(self.names[name])

    @functools.cached_property
    def note(self) -> dict:
        """This package's note about the model in files that it wrote; empty for other files.

        Raises:
            DamagedFile: If the note has the wrong form.
        """
        text = self.tensors.note
        return forms.parse_json(text, f"The note in {self.path!r}", Note) if text else {}

    @property
    def called(self) -> str:
        """The project's name for the model, from the configuration or the file's name."""
        keys = ("architecture", "model_type", "_name_or_path", "name")
        said = [self.config[key] for key in keys if isinstance(self.config.get(key), str)]
        folder, name = os.path.split(os.path.abspath(self.path))
        return " ".join([*said, *([os.path.basename(folder)] if said else []), name])

    @functools.cached_property
    def arguments(self) -> dict:
        """The model's arguments, from the file and its configuration.

        Raises:
            ValueError: If the file lacks tensors that every model of the format has.
        """
        with checks.named_errors(self.path):
            if self.format.name == "vit_keras" and not any(map(OURS.match, self.names)):
                raise ValueError(f"it holds a Keras model of another package. {READ}")
            noted = self.note.get("architecture")  # complete: what is absent has its default
            arguments = noted or self.format.infer(self.shapes, self.config)
            check_arguments(arguments)
        return arguments

    @functools.cached_property
    def numerics(self) -> Numerics | None:
        """The numerics of the source, from the note, the configuration, the tensors or the format.

        None if they are unknown, as in this package's own `.weights.h5`. A note's resizing rules
        apply only if they differ from the defaults; otherwise those of the format apply.
        """
        with checks.named_errors(self.path):
            numerics = self.format.numerics(self.shapes, self.config)
            if (fields := self.note.get("numerics")) is None:
                return numerics
            forms.check_annotated(fields, Numerics)
            noted = Numerics.from_json(fields)
        if numerics is None or noted.resizing != PUBLISHED_RESIZING:
            return noted
        return dataclasses.replace(noted, resizing=numerics.resizing)

    @property
    def all_arguments(self) -> dict:
        """`arguments`, and those in `numerics` that determine how the model computes."""
        names = class_for(self.arguments).numerics_fields
        said = {name: getattr(self.numerics, name, None) for name in names}
        return {**self.arguments, **{k: v for k, v in said.items() if v is not None}}

    @property
    def missing(self) -> list[str]:
        """The arguments that a model needs but the file lacks."""
        kind = class_for(self.arguments)
        needed = (*kind.required, *kind.numerics_fields[:1])
        return [name for name in needed if name not in self.all_arguments]


@contextlib.contextmanager
def open_weight_file(
    path: str | os.PathLike, source: str | None = None, which: str | None = None
) -> Iterator[WeightFile]:
    """Opens a file or a folder of weights.

    Args:
        path: The file or folder, or the address of a model on a hub.
        source: The name of its format; None detects the format from the names of the tensors.
        which: As in `weights.load`.

    Yields:
        The `WeightFile`, closed at the end of the `with` statement.

    Raises:
        FileNotFoundError: If there is no such file, or no weights in the folder.
        ValueError: If the file is damaged or has no known format.
        ImportError: If the file needs a package that is not installed.
    """
    path = locate(local_path(path))
    config = read_config(os.path.dirname(path))
    with contextlib.closing(open_tensors(path)) as tensors:
        format_row, names, remarks = registry.choose(tensors.shapes, source, path, which, config)
        config = {**config, KERAS_CONFIG: tensors.config.get("config", {})}
        if held := [name for name in format_row.values if name in names]:
            config["values"] = {name: tensors.read(names[name]) for name in held}
        yield WeightFile(path, tensors, format_row, names, config, tuple(remarks))


def open_tensors(path: str) -> Reader:
    """Opens a file by its suffix or else by its contents; raises ValueError if both are unknown."""
    kind = next((end for end in READERS if path.endswith(end)), None)
    if kind is None and is_zip(path):
        with checks.readable(f"{path!r} is damaged"), zipfile.ZipFile(path) as archive:
            kind = ".npz" if all(name.endswith(".npy") for name in archive.namelist()) else ".pt"
    elif kind is None:
        with open(path, "rb") as file:
            start = file.read(9)
        starts = {b"\x80\x02": ".pt", b"\x89HDF": ".keras", start[:8] + b"{": ".safetensors"}
        kind = next((kind for known, kind in starts.items() if start.startswith(known)), None)
    if kind is None:
        raise ValueError(
            f"Weights are read from {', '.join(READERS)} files. Received: {path!r}. "
            "`vit_keras.runtimes.open` opens exported files"
        )
    return READERS[kind](path)


def locate(path: str) -> str:
    """Returns the path of the weight file at `path`, a file or a folder."""
    if os.path.isfile(path):
        return path
    if os.path.isdir(path):
        names = [name for name in os.listdir(path) if os.path.isfile(os.path.join(path, name))]
        if file := weights_among(names):
            return os.path.join(path, file)
        has_shards = any(map(SHARD.fullmatch, names))
        raise FileNotFoundError(
            f"A folder of weights must hold {' or '.join(FOLDER_FILES)}. Received: {path!r}, "
            f"which has {'shards without their index' if has_shards else 'no weights'}"
        )
    raise FileNotFoundError(f"There is no run or checkpoint at {path!r}.")


def read_config(folder: str) -> dict:
    """Reads a folder's `config.json`, with the other JSON files under their names.

    Returns:
        An empty dictionary if there are no such files.

    Raises:
        DamagedFile: A file is not a JSON object, or has a field of a type that no project writes.
    """
    contents = {}
    for name in CONFIG_FILES:
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            content = forms.read_json(path)
            if "registered_name" in content:
                check_preset(name, content, path)
            if reason := forms.fault_inside(content, Fields, forms.FILLED, ("text_config",)):
                raise DamagedFile(f"{path!r} is damaged: {reason}")
            contents[name] = content
    return merge_configs(contents)


def merge_configs(contents: dict[str, dict]) -> dict:
    """Adds the contents of other files to that of `config.json`, by file name."""
    extra = dict(contents)
    return {**extra.pop("config.json", {}), **extra}


# The fields that affect a model; null fields count as absent.
_NAMES: dict[Any, str] = {
    dict: "model_args model_cfg preprocess_cfg pretrained_cfg vision_config act_kwargs "
    "vision_config_dict vision_cfg norm_kwargs preprocessor image_converter",
    str: "architecture model_type hidden_act pooler_act image_processor_type "
    "feature_extractor_type global_pool act_layer interpolation crop_mode resize_mode "
    "pool_type pooling rope_type pos_embed_interp_mode approximate block_fn",
    tuple[str, ...]: "architectures label_names",
    bool: "do_normalize do_rescale do_center_crop use_gated_mlp use_swiglu_ffn qkv_bias "
    "query_bias key_bias value_bias use_relative_position_bias use_shared_relative_position_bias "
    "use_absolute_position_embeddings no_embed_class pool_include_prefix "
    "use_rot_pos_emb use_post_norm use_post_transformer_norm final_norm "
    "final_ln_after_pool quick_gelu antialias crop_to_aspect_ratio pos_embed_antialias "
    "rope_rotate_half",
    Count: "num_register_tokens resample",
    Size: "num_channels hidden_size num_hidden_layers intermediate_size num_attention_heads "
    "in_chans num_heads head_width attn_pool_num_heads height width shortest_edge",
    Size | list[Size]: "image_size patch_size img_size input_size image_shape ref_feat_shape "
    "rope_ref_feat_shape",
    Size | list[Size] | dict: "size crop_size",
    float: "layer_norm_eps layer_norm_epsilon eps norm_eps layer_scale_init_value rope_grid_offset",
    Positive: "rope_theta rope_temperature crop_pct rescale_factor",
    float | list[float]: "image_mean image_std mean std scale offset",
    Labels: "id2label",
}
_HINTS = {name: kind | None for kind, names in _NAMES.items() for name in names.split()}
Fields = TypedDict("Fields", _HINTS, total=False)  # type: ignore[misc]
