"""KerasHub's ViT, DeiT, DINOv2 and DINOv3, in presets and `.weights.h5` files.

Biases that an option of a backbone leaves out are read as zeros. A `.weights.h5` without a preset's
JSON files records neither what the classifier reads, nor its activation, nor the epsilon.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np

from vit_keras.layers import Rope
from vit_keras.layers.common import QKV_BIASES, check_choice
from vit_keras.models import Preprocessing
from vit_keras.models.architectures import Numerics, VisionTransformerArchitecture
from vit_keras.support.checks import short
from vit_keras.support.preprocessing import Resizing
from vit_keras.weights.formats import tensor_names
from vit_keras.weights.formats.base import Format, covered_positions, pairs
from vit_keras.weights.formats.dino import IMAGENET
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, PROJECTIONS, Link, TensorNames

READ = (
    "KerasHub's backbones of ViT, DeiT, DINOV2 and DINOV3 and its classifiers of ViT and DeiT can "
    "be read; its ViTDet and SAM cannot. For the image towers of CLIP and SigLIP and for other "
    "families, open the files of timm or Hugging Face"
)


def _snake_case(name):
    return re.sub("(?<=[a-z])[A-Z]", r"_\g<0>", name).lower()


@dataclasses.dataclass(frozen=True)
class Family:
    """One of KerasHub's backbones.

    Attributes:
        name: The prefix of its class names.
        names: The names of its layers, with ".weight" for "/0" and ".bias" for "/1".
        biases: Its options that leave out biases, and patterns for the paths of these biases.
        epsilon: The field with the epsilon, and its default.
    """

    name: str
    names: TensorNames
    biases: Mapping[str, str]
    epsilon: tuple[str, float] = ("layer_norm_epsilon", 1e-6)

    @property
    def groups(self) -> str:
        """The prefix in the names of the groups that Keras writes."""
        return _snake_case(self.name)

    def is_in(self, names: Collection[str]) -> bool:
        """Whether a file with these names holds such a backbone."""
        query = self.names.of_block(0, self.names.query)
        return {f"{self.names.patches}/0", f"{query}/0"} <= {*names}

    def object(self, kind: str, fields: dict) -> dict:
        """Returns the entry for a class in a JSON file."""
        name = self.name.lower()
        return {
            "module": f"keras_hub.src.models.{name}.{name}_{_snake_case(kind)}",
            "class_name": f"{self.name}{kind}",
            "config": fields,
            "registered_name": f"keras_hub>{self.name}{kind}",
        }


_MHA = (
    "norm_0=ln_1 query=mha/query key=mha/key value=mha/value out=mha/attention_output norm_2=ln_2 "
    "head=predictions "
)
VIT_NAMES = TensorNames.of(
    f"{_MHA} patches=vit_patching_and_embedding/patch_embedding cls=vit_patching_and_embedding/0 "
    "positions=vit_patching_and_embedding/position_embedding/0 norm=vit_encoder/ln "
    "block=vit_encoder/transformer_block_{}/ dense_0=mlp/dense_1 dense_1=mlp/dense_2 "
    "pre_logits=pre_logits",
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
    "norm=layernorm "
)
DINOV2_NAMES = TensorNames.of(
    f"{_DINO} query=attention/attention/query key=attention/attention/key "
    "value=attention/attention/value out=attention/attention/attention_output dense_0=mlp/fc1 "
    "dense_1=mlp/fc2 gate=mlp/weights_in",
    spellings=[pairs("dense_0=mlp/weights_in dense_1=mlp/weights_out")],
)
DINOV3_NAMES = TensorNames.of(
    f"{_DINO} query=attention/q_proj key=attention/k_proj value=attention/v_proj "
    "out=attention/o_proj gate=mlp/gate_proj dense_0=mlp/up_proj dense_1=mlp/down_proj",
)
MHA = {"use_mha_bias": "MultiHead.*/bias"}
MLP = {"use_mlp_bias": "MlpBlock_3/.*/bias"}
VIT = Family("ViT", VIT_NAMES, {"use_patch_bias": "embedding/bias", **MHA, **MLP})
DEIT = Family("DeiT", DEIT_NAMES, MHA)
DINOV2 = Family("DINOV2", DINOV2_NAMES, {})
BIASES = {f"use_{name}_bias": f"{name}/bias" for name in PROJECTIONS}
BIASES |= {"use_proj_bias": "out/bias", **MLP}
DINOV3 = Family("DINOV3", DINOV3_NAMES, BIASES, ("layer_norm_eps", 1e-5))
FAMILIES = (VIT, DEIT, DINOV2, DINOV3)
# The classes that are read, by the JSON file of a preset that names them.
CLASSES = {
    "config.json": {f"keras_hub>{row.name}Backbone": row for row in FAMILIES},
    "task.json": {f"keras_hub>{row.name}ImageClassifier": row for row in (VIT, DEIT)},
}
BACKBONE = "(?:de|v)it_(?:patching_and_embedding|encoder)|embeddings|encoder|layernorm"
NUMBERED_NAMES = pairs(
    "vit_patching_and_embedding=layers/vi_t_patching_and_embedding vit_encoder=layers/vi_t_encoder "
    "deit_patching_and_embedding=layers/dei_t_embeddings deit_encoder=layers/dei_t_encoder "
    "embeddings=layers/{}_embedding encoder=layers/{}_encoder layernorm=layers/layer_normalization "
    "ln=layer_norm ln_1=layer_norm_1 ln_2=layer_norm_2 query=query_dense key=key_dense "
    "value=value_dense attention_output=output_dense output=dense q_proj=query_dense "
    "k_proj=key_dense v_proj=value_dense o_proj=output_dense pre_logits=layers/dense "
    "predictions=layers/dense"
)


def family_in(names: Collection[str]) -> Family:
    """The family whose weights a file contains; ViT if it contains none."""
    return next((row for row in FAMILIES if row.is_in(names)), VIT)


def family_of(arch: VisionTransformerArchitecture) -> Family:
    """The family under which a model is written."""
    if arch.position_embedding == "none" and arch.options.rope is not None:
        return DINOV3
    if arch.options.layer_scale is not None:
        return DINOV2
    return DEIT if "dist" in arch.prefix.names else VIT


def check_preset(name: str, content: dict[str, Any], path: str) -> None:
    """Raises ValueError if a preset's JSON file names a class that cannot be read."""
    said = str(content["registered_name"])
    if said.startswith("keras_hub>") and said not in CLASSES.get(name, [said]):
        raise ValueError(f"{READ}. Received: {path!r} with {short(said)}")


def _groups(row, layer, pre_logits):
    """Returns the groups of a layer in Keras' file, joined by "/"."""
    if match := re.fullmatch(r"(?:transformer_block|layers)_(\d+)", layer):
        index = int(match[1]) - row.names.first
        kind = "encoder_layers/{}_encoder_block" if row.names.first else "layers/{}_layer"
        return kind.format(row.groups) + (f"_{index}" if index else "")
    if layer == "predictions" and pre_logits:
        return "layers/dense_1"
    return NUMBERED_NAMES.get(layer, layer).format(row.groups)


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
    biases = QKV_BIASES[options.qkv_bias]
    fields |= {f"use_{name}_bias": name in biases for name in PROJECTIONS}
    fields |= {"hidden_activation": "silu" if gated else "gelu", "use_gated_mlp": gated}
    return fields | {"rope_theta": options.rope.base}


POSITIONS = "posembed_input/pos_embedding"


def _spelled(row, names, registers):
    """The names of the tensors, of the mask token and of the second table of positions.

    The numbers of the variables in DINO's embeddings depend on which ones exist. A mask token and
    DINOv2's second table have no place in a model; their names are "" in files without them.
    """
    if row.names.first:
        return row.names, "", ""
    tables = ["resized", "positions"] if row is DINOV2 else []
    held = [name for name in names or () if re.fullmatch(r"embeddings/\d+", name)]
    extra = 1 + bool(registers) if names is None else len(held) - 1 - len(tables)
    tokens = {0: [], 1: ["registers" if registers else "mask"]}.get(extra, ["mask", "registers"])
    numbers = {name: f"embeddings/{i}" for i, name in enumerate(["cls", *tokens, *tables])}
    changes = {name: numbers.get(name, "") for name in ("positions", "registers")}
    return row.names.replaced(**changes), numbers.get("mask", ""), numbers.get("resized", "")


def _in_keras(row, link):
    """The link to Keras' variable instead of PyTorch's tensor.

    Keras has our layout, but DINOv3's matrices and SwiGLU's fused ones are PyTorch's, transposed.
    """
    path, ends = link.ours[0], {".weight": "/0", ".bias": "/1"}
    link = link.renamed(lambda name: re.sub(r"\.\w+$", lambda end: ends[end[0]], name))
    if not path.endswith(("/kernel", "/bias")):
        return link
    if path.startswith("embedding/") or (row is not DINOV3 and len(link.ours) == 1):
        return tensor_names.single(link.theirs[0], path)
    return Link(link.theirs, link.ours, lambda x: link.read(x.T), lambda *x: (link.write(*x)[0].T,))


def _in_pytorch(shapes):
    """The shapes under their names, and PyTorch's shapes under PyTorch's names."""
    turned = {}
    for name, shape in shapes.items():
        other = name[:-2] + {"/0": ".weight", "/1": ".bias"}.get(name[-2:], name[-2:])
        turned[other] = (*shape[3:1:-1], *shape[:2]) if len(shape) == 4 else shape[::-1]
    return turned | shapes


def _task(config):
    """Returns the arguments of the classifier, or nothing if there is no classifier."""
    task = config.get("task.json")
    return {"pooling": "token", "activation": None, **task.get("config", {})} if task else {}


def _check_reads(poolings, token):
    """Checks that a head reads the class token, or the mean of the patches without one."""
    if others := poolings - {"token" if token else "gap"}:
        raise ValueError(
            "A KerasHub head must read the class token, or the mean of the patches if there is no "
            f"class token. Received: {', '.join(map(repr, others))} with "
            f"use_class_token={token}. Save the backbone alone with "
            "`classifier.backbone.save_to_preset(folder)`"
        )


def _name(activation):
    return activation.get("config") if isinstance(activation, dict) else activation


def _activation(activation):
    """The argument for the activation of the head; empty for logits."""
    is_linear = keras.activations.get(_name(activation)) is keras.activations.linear
    return {} if is_linear else {"classifier_activation": _name(activation)}


def _preprocessing(converter: dict[str, Any] | None, row: Family) -> Preprocessing:
    """Turns `(x · scale + offset - norm_mean) / norm_std` of pixels x in [0, 255] into our form.

    KerasHub 0.18 wrote `norm_*`. Without a converter, the pixels for a ViT are scaled to [-1, 1].
    """
    if converter is None and row is not VIT:
        return IMAGENET
    content = (converter or {"config": {"scale": 1 / 127.5, "offset": -1.0}}).get("config", {})
    if content.get("pad_to_aspect_ratio"):
        raise ValueError("`pad_to_aspect_ratio` of the converter must be false. Received: true")
    absent = {"scale": 1.0, "offset": 0.0, "norm_mean": 0.0, "norm_std": 1.0}
    values = (absent[name] if content.get(name) is None else content[name] for name in absent)
    scale, offset, mean, std = np.broadcast_arrays(*map(np.atleast_1d, values))
    with np.errstate(all="ignore"):  # `Preprocessing` refuses what is not finite
        mean, std = (mean - offset) / (255 * scale), std / (255 * scale)
    return Preprocessing(
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
        interpolation=content.get("interpolation", "bilinear"),
        antialias=content.get("antialias", False),
        crop_fraction=1.0 if content.get("crop_to_aspect_ratio", True) else None,
        rounding="none",
    )


class KerasHub(Format):
    suffixes = (".weights.h5",)
    folder_name = "model.weights.h5"
    head = ("predictions/", "pre_logits/")
    holds_activation = True

    def detect(self, names):
        return family_in(names).is_in(names)

    def canonical(self, name):
        return re.sub(rf"^.*?({BACKBONE})/", r"\1/", name)  # without the backbone's prefix

    def links(self, arch, names, config):
        row = family_of(arch) if names is None else family_in(names)
        fields = config.get("config") or {}
        if "predictions/0" in (names or ()) and arch.num_classes is not None:
            pooling = _task(config).get("pooling", arch.classifier)
            _check_reads({pooling, arch.classifier}, row is not VIT or row.names.cls in names)
        registers = fields.get("num_register_tokens", arch.options.num_registers)
        spelled, mask, table = _spelled(row, names, registers)
        result = [_in_keras(row, link) for link in spelled.links(arch, names)]
        if names is None:
            twice = lambda k: Link((table, *k.theirs), k.ours, k.read, lambda x: 2 * k.write(x))
            blank = np.zeros((1, arch.hidden_size) if table else (1, 1, arch.hidden_size))
            result = [twice(k) if table and k.path == POSITIONS else k for k in result]
            return result + ([tensor_names.constant(mask, blank)] if mask else [])
        for option, pattern in row.biases.items():  # without it, all these biases are left out
            biases = [k for k in result if re.search(pattern, k.path)]
            if not fields.get(option) and names.isdisjoint(k.theirs[0] for k in biases):
                result = [tensor_names.zeros(*k.ours) if k in biases else k for k in result]
        return [*result, tensor_names.unread(filter(None, (mask, table)))]

    def infer(self, shapes, config):
        row, fields, task = family_in(shapes), config.get("config", {}), _task(config)
        second = shapes.get("embeddings/1", ())  # registers, or a mask token of (1, D) or (1, 1, D)
        several = len(second) == 3 and (row is DINOV2 or second[1] > 1)
        registers = fields.get("num_register_tokens", several)
        names, _, resized = _spelled(row, shapes, registers)
        token = row is not VIT or names.cls in shapes
        arguments = names.sizes(_in_pytorch(shapes), "token" if token else "gap")
        if not row.names.first:
            arguments["layer_scale"] = fields.get("layer_scale_init_value", LAYER_SCALE)
        if row is DINOV3:
            activation = "silu" if arguments.get("mlp") == "swiglu" else "gelu"
            said = _name(fields.get("hidden_activation", activation))
            check_choice(said, (activation,), "hidden_activation")
            arguments["rope"] = Rope(base=fields.get("rope_theta", 100.0), centered=True)
            arguments |= {"num_heads": fields["num_heads"]} if "num_heads" in fields else {}
            arguments |= {} if fields else {"layer_norm_epsilon": DINOV3.epsilon[1]}
        else:
            for default in ("position_embedding", "qkv_bias"):
                arguments.pop(default, None)
            arguments["num_heads"] = shapes[f"{names.of_block(0, names.query)}/0"][1]
            arguments |= {"distillation_token": True} if row is DEIT else {}
            arguments |= {"position_cover": "class"} if "num_registers" in arguments else {}
            positions = shapes[resized or names.positions][-2]
            arguments |= covered_positions(arguments, positions, None, ("class",))
        if "predictions/0" in shapes:
            del arguments["classifier"]
            if task:
                _check_reads({task["pooling"]}, token)
                arguments |= {"classifier": task["pooling"], **_activation(task["activation"])}
        if image_shape := fields.get("image_shape"):
            channels_last = image_shape[-1] == arguments["channels"]
            arguments["image_size"] = tuple(image_shape[:2] if channels_last else image_shape[1:])
        return arguments

    def assumption(self, shapes, config, overrides):
        """Describes what is assumed without a preset's JSON files: defaults and a square image."""
        row, unsaid = family_in(shapes), {}
        if "config" not in config:
            assumed = {"layer_norm_epsilon": row.epsilon[1], **self.infer(shapes, config)}
            names = ("layer_norm_epsilon", *(("rope", "mlp") if row is DINOV3 else ("image_size",)))
            unsaid = {name: assumed.get(name) for name in names}
        if "predictions/0" in shapes and not _task(config):
            unsaid["classifier_activation"] = None
        said = [f"{name}={value}" for name, value in unsaid.items() if name not in overrides]
        end = "which the file does not state; pass those that differ"
        return f"a model with {', '.join(said)}, {end}" if said else ""

    def numerics(self, shapes, config):
        named = CLASSES["config.json"].get(str(config.get("registered_name")), VIT)
        row = family_in(shapes) if shapes else named
        backbone, preprocessor = config.get("config"), _task(config).get("preprocessor") or {}
        converter = preprocessor.get("config", {}).get("image_converter")
        default = None if backbone is None and row is not DINOV2 else row.epsilon[1]
        said = backbone or {}
        rule = "bicubic_antialias" if said.get("antialias_in_interpolation") else "bicubic"
        return Numerics(
            layer_norm_epsilon=said.get(row.epsilon[0], default),
            preprocessing=_preprocessing(converter or config.get("image_converter.json"), row),
            resizing=Resizing(rule) if row is DINOV2 else Resizing(),
        )

    def as_read(self, arch):
        """Returns sizes that KerasHub's code rounds or makes square."""
        row = family_of(arch)
        theirs: dict[str, Any] = {}
        if arch.num_classes is None:
            theirs["representation_size"] = None
        if not row.names.first:
            theirs["patch_size"] = (arch.patch_size[0],) * 2
        if row is DINOV2:
            theirs["image_size"] = (arch.image_size[0],) * 2
            unit = 1 if arch.options.mlp == "gelu" else 8
            theirs["mlp_dim"] = -(-arch.mlp_dim // unit) * unit
        return theirs

    def config_files(self, arch, numerics):
        """Returns a preset's JSON files, as `save_to_preset` of KerasHub 0.32 writes them."""
        row = family_of(arch)
        backbone = row.object("Backbone", _backbone(row, arch))
        metadata = {"keras_version": keras.__version__, "keras_hub_version": "0.32.0", "tasks": []}
        pixels = numerics.preprocessing
        scale, offset = (x[0] if len(x) == 1 else x for x in pixels.rescaling())
        fields: dict[str, Any] = {
            "image_size": list(arch.image_size),
            "scale": scale,
            "offset": offset,
            "interpolation": pixels.interpolation,
            "antialias": pixels.antialias,
            "crop_to_aspect_ratio": pixels.crop_fraction is not None,
        }
        converter = row.object("ImageConverter", fields)
        files = {"config.json": backbone, "image_converter.json": converter}
        files["metadata.json"] = metadata
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

    def h5_groups(self, names, folder):
        """Returns `{file: {name: [(group, name of its layer), …]}}`, the groups that Keras reads.

        A folder has the backbone and the head in two files; a file with a head nests the backbone.
        """
        row, nests = family_in(names), "predictions/0" in names and not folder
        files: dict[str, dict[str, list[tuple[str, str | None]]]] = {}
        for name in names:
            layers = name.split("/")[:-1]
            backbone = re.fullmatch(BACKBONE, layers[0])
            groups = [("layers", None), (f"{row.groups}_backbone",) * 2]
            groups = groups if backbone and nests else []
            for layer in layers:
                *outer, key = _groups(row, layer, "pre_logits/0" in names).split("/")
                groups += [*((container, None) for container in outer), (key, layer)]
            file = "model.weights.h5" if backbone or not folder else "task.weights.h5"
            files.setdefault(file, {})[name] = groups
        return files
