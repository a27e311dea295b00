"""KerasHub's preset folders: which classes are read, their names, groups and JSON files."""

import dataclasses
import re
from collections.abc import Collection
from typing import Any

import keras

from vit_keras.layers.base import QKV_BIASES
from vit_keras.support.annotated import short
from vit_keras.weights.architectures import VisionTransformerArchitecture
from vit_keras.weights.containers.checks import UnreadModel
from vit_keras.weights.formats.base import Numerics
from vit_keras.weights.formats.tensor_names import TensorNames, pairs

READ = (
    "Of KerasHub's classes, the backbones of ViT, DeiT, DINOV2 and DINOV3 and the classifiers of "
    "ViT and DeiT are read; nothing is read of ViTDet and SAM, and the image towers of CLIP and "
    "SigLIP, as models of other families, from the files of timm and Hugging Face"
)


@dataclasses.dataclass(frozen=True)
class Family:
    """One of KerasHub's backbones.

    Attributes:
        name: How the names of its classes begin.
        groups: How Keras begins the names of its groups.
        names: The names of its layers, with ".weight" for "/0" and ".bias" for "/1".
        options: The options of a model that it has a place for.
        biases: Its options that leave out biases.
        epsilon: The field with the epsilon, and its default.
    """

    name: str
    groups: str
    names: TensorNames
    options: tuple[str, ...] = ()
    biases: tuple[str, ...] = ()
    epsilon: tuple[str, float] = ("layer_norm_epsilon", 1e-6)

    def is_in(self, names: Collection[str]) -> bool:
        """Whether a file with these names holds such a backbone."""
        query = self.names.of_block(0, self.names.query)
        return {f"{self.names.patches}/0", f"{query}/0"} <= {*names}

    def object(self, kind: str, fields: dict) -> dict:
        """Returns what a JSON file holds of a class."""
        module = re.sub("(?<=[a-z])[A-Z]", r"_\g<0>", kind).lower()
        return {
            "module": f"keras_hub.src.models.{self.name.lower()}.{self.name.lower()}_{module}",
            "class_name": f"{self.name}{kind}",
            "config": fields,
            "registered_name": f"keras_hub>{self.name}{kind}",
        }


_MHA = (
    "norm_0=ln_1 query=mha/query key=mha/key value=mha/value out=mha/attention_output norm_2=ln_2 "
    "pre_logits=pre_logits head=predictions "
)
VIT_NAMES = TensorNames.of(
    f"{_MHA} patches=vit_patching_and_embedding/patch_embedding cls=vit_patching_and_embedding/0 "
    "positions=vit_patching_and_embedding/position_embedding/0 norm=vit_encoder/ln "
    "block=vit_encoder/transformer_block_{}/ dense_0=mlp/dense_1 dense_1=mlp/dense_2",
    position_axes=2,
    first=1,
)
DEIT_NAMES = TensorNames.of(
    f"{_MHA} patches=deit_patching_and_embedding/patch_embedding cls=deit_patching_and_embedding/0 "
    "dist=deit_patching_and_embedding/1 positions=deit_patching_and_embedding/2 "
    "norm=deit_encoder/ln block=deit_encoder/transformer_block_{}/ dense_0=mlp/dense "
    "dense_1=output_layer/output",
    first=1,
)
_DINO = (
    "patches=embeddings/patch_embeddings/projection cls=embeddings/0 block=encoder/layers_{}/ "
    "norm_0=norm1 scale_0=layer_scale1.weight norm_2=norm2 scale_1=layer_scale2.weight "
    "norm=layernorm head=predictions "
)
DINOV2_NAMES = TensorNames.of(
    f"{_DINO} query=attention/attention/query key=attention/attention/key "
    "value=attention/attention/value out=attention/attention/attention_output dense_0=mlp/fc1 "
    "dense_1=mlp/fc2 packed=mlp/weights_in",
)
DINOV3_NAMES = TensorNames.of(
    f"{_DINO} query=attention/q_proj key=attention/k_proj value=attention/v_proj "
    "out=attention/o_proj gate=mlp/gate_proj dense_0=mlp/up_proj dense_1=mlp/down_proj",
)
INPUTS = ("query", "key", "value")
VIT = Family("ViT", "vi_t", VIT_NAMES, (), ("use_patch_bias", "use_mha_bias", "use_mlp_bias"))
DEIT = Family("DeiT", "dei_t", DEIT_NAMES, ("distillation_token",), ("use_mha_bias",))
OPTIONS = ("layer_scale", "num_registers", "mlp")
DINOV2 = Family("DINOV2", "dinov2", DINOV2_NAMES, (*OPTIONS, "position_cover"))
BIASES = tuple(f"use_{name}_bias" for name in (*INPUTS, "proj", "mlp"))
ROTARY, EPSILON = (*OPTIONS, "qkv_bias", "rope"), ("layer_norm_eps", 1e-5)
DINOV3 = Family("DINOV3", "dinov3", DINOV3_NAMES, ROTARY, BIASES, EPSILON)
FAMILIES = (VIT, DEIT, DINOV2, DINOV3)
# The classes that are read, by the JSON file of a preset that names them.
CLASSES = {
    "config.json": {f"keras_hub>{row.name}Backbone": row for row in FAMILIES},
    "task.json": {f"keras_hub>{row.name}ImageClassifier": row for row in (VIT, DEIT)},
}
BACKBONE = "(?:de|v)it_(?:patching_and_embedding|encoder)|embeddings|encoder|layernorm"
# Keras' numbered names, where they differ from the names of the layers.
_NUMBERED = (
    "vit_patching_and_embedding=layers/vi_t_patching_and_embedding vit_encoder=layers/vi_t_encoder "
    "deit_patching_and_embedding=layers/dei_t_embeddings deit_encoder=layers/dei_t_encoder "
    "embeddings=layers/{}_embedding encoder=layers/{}_encoder layernorm=layers/layer_normalization "
    "ln=layer_norm ln_1=layer_norm_1 ln_2=layer_norm_2 query=query_dense key=key_dense "
    "value=value_dense attention_output=output_dense output=dense q_proj=query_dense "
    "k_proj=key_dense v_proj=value_dense o_proj=output_dense"
)
NUMBERED_NAMES = pairs(_NUMBERED)


def family_in(names: Collection[str]) -> Family:
    """The family whose weights a file holds; ViT where it holds none."""
    return next((row for row in FAMILIES if row.is_in(names)), VIT)


def family_of(arch: VisionTransformerArchitecture) -> Family:
    """The family as which a model is written."""
    if arch.position_embedding == "none" and arch.options.rope is not None:
        return DINOV3
    if arch.options.layer_scale is not None:
        return DINOV2
    return DEIT if "dist" in arch.prefix.names else VIT


def check_class(name: str, content: dict[str, Any], path: str) -> None:
    """Raises UnreadModel for the JSON file of a preset with a class that is not read."""
    said = str(content["registered_name"])
    if said.startswith("keras_hub>") and said not in CLASSES.get(name, [said]):
        raise UnreadModel(f"{READ}. Received: {path!r} of {short(said)}")


def h5_groups(names: list[str], folder: bool) -> dict[str, dict[str, list[tuple[str, str | None]]]]:
    """Returns `{file: {name: [(group, name of its layer), …]}}` with the groups that Keras reads.

    A preset folder has the backbone and the head in two files. A single file with a head nests the
    backbone.
    """
    row, nests = family_in(names), "predictions/0" in names and not folder
    files: dict[str, dict[str, list[tuple[str, str | None]]]] = {}
    for name in names:
        *layers, _ = name.split("/")
        backbone = re.fullmatch(BACKBONE, layers[0])
        groups = [pair for part in layers for pair in _groups(row, part, "pre_logits/0" in names)]
        if backbone and nests:
            groups = [("layers", None), (f"{row.groups}_backbone",) * 2, *groups]
        file = "model.weights.h5" if backbone or not folder else "task.weights.h5"
        files.setdefault(file, {})[name] = groups
    return files


def _groups(row, part, pre_logits):
    """Returns the groups for one part of a name."""
    if match := re.fullmatch(r"(?:transformer_block|layers)_(\d+)", part):
        index = int(match[1]) - row.names.first
        kinds = ("encoder_block", "encoder_layers") if row.names.first else ("layer", "layers")
        key = f"{row.groups}_{kinds[0]}" + (f"_{index}" if index else "")
        return [(kinds[1], None), (key, part)]
    if part in ("pre_logits", "predictions"):
        second = part == "predictions" and pre_logits
        return [("layers", None), ("dense_1" if second else "dense", part)]
    *containers, key = NUMBERED_NAMES.get(part, part).format(row.groups).split("/")
    return [(container, None) for container in containers] + [(key, part)]


def config_files(arch: VisionTransformerArchitecture, numerics: Numerics) -> dict[str, dict]:
    """Returns a preset's JSON files, as `save_to_preset` of KerasHub 0.32 writes them."""
    row = family_of(arch)
    backbone = row.object("Backbone", _backbone(row, arch))
    if not hasattr(keras.activations, arch.classifier_activation or "linear"):
        message = "KerasHub's preset holds one of `keras.activations`. Received: a head with "
        raise ValueError(message + str(arch.classifier_activation))
    metadata = {"keras_version": keras.__version__, "keras_hub_version": "0.32.0", "tasks": []}
    converter = row.object("ImageConverter", _converter(arch, numerics.preprocessing))
    files = {"config.json": backbone, "image_converter.json": converter, "metadata.json": metadata}
    if arch.num_classes is None:
        return files
    metadata["tasks"] = ["ImageClassifier"]
    fields = {"image_converter": converter, "config_file": "preprocessor.json"}
    files["preprocessor.json"] = row.object("ImageClassifierPreprocessor", fields)
    task = {
        "backbone": backbone,
        "preprocessor": files["preprocessor.json"],
        "num_classes": arch.num_classes,
        "pooling": arch.classifier,
        "activation": arch.classifier_activation,
        **({"intermediate_dim": arch.representation_size} if row is VIT else {}),
    }
    return files | {"task.json": row.object("ImageClassifier", task)}


def _backbone(row, arch):
    options, gated = arch.options, arch.options.mlp == "swiglu"
    fields = {
        "image_shape": [*arch.image_size, arch.channels],
        "patch_size": list(arch.patch_size) if row.names.first else arch.patch_size[0],
        "num_layers": arch.num_layers,
        "num_heads": arch.num_heads,
        "hidden_dim": arch.hidden_size,
        "mlp_dim" if row is VIT else "intermediate_dim": arch.mlp_dim,
        **({} if row is DINOV2 else {row.epsilon[0]: arch.layer_norm_epsilon}),
        **({"use_class_token": arch.classifier == "token"} if row is VIT else {}),
    }
    if row.names.first:
        return fields
    fields["layer_scale_init_value"] = options.layer_scale
    fields["num_register_tokens"] = options.num_registers
    if row is DINOV2:
        fields |= {"use_swiglu_ffn": gated, "position_embedding_shape": fields["image_shape"]}
        fields["intermediate_dim"] = arch.mlp_dim * 3 // 2 if gated else arch.mlp_dim
        return fields  # KerasHub takes two thirds of SwiGLU's units
    biased = QKV_BIASES[options.qkv_bias]
    fields |= {f"use_{name}_bias": name in biased for name in INPUTS}
    fields |= {"hidden_activation": "silu" if gated else "gelu", "use_gated_mlp": gated}
    return fields | {"rope_theta": options.rope.base}


def _converter(arch, pixels):
    scale, offset = pixels.rescaling()
    return {
        "image_size": list(arch.image_size),
        "scale": scale[0] if len(scale) == 1 else scale,
        "offset": offset[0] if len(offset) == 1 else offset,
        "interpolation": pixels.interpolation,
        "antialias": pixels.antialias,
        "crop_to_aspect_ratio": pixels.crop_fraction is not None,
    }
