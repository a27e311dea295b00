"""The Vision Transformers of Hugging Face's transformers, with a `model_type` per family.

Files have the names that transformers writes to disk, with or without the prefix of a class with a
head; the in-memory names of transformers 5 are also read. The pooler of a `ViTModel` becomes
`pre_logits`. Text towers, pre-training decoders and mask tokens are left out.
"""

import contextlib
import dataclasses
import re

import numpy as np

from vit_keras.layers.common import WITH_NO_OBJECT, changed_options, check_choice
from vit_keras.models.architectures import Numerics
from vit_keras.support.resizing import resize_relative_table
from vit_keras.weights.formats.base import LEARNED, Format, covered_positions
from vit_keras.weights.formats.huggingface import config as configs
from vit_keras.weights.formats.tensor_names import constant, unchanged, unread, zeros

# The prefixes of backbones in classes with a head.
PREFIX = re.compile(
    r"^((owlvit|owlv2)\.)?((vit|deit|beit|data2vec_vision|ijepa|dinov2|dinov2_with_registers|dinov3_vit|"
    r"vision_model)\.)?(model\.)?"
)
TABLE = "relative_position_bias"
_PROJECTIONS = {
    r"\.attention\.q_proj\.": ".attention.attention.query.",
    r"\.attention\.k_proj\.": ".attention.attention.key.",
    r"\.attention\.v_proj\.": ".attention.attention.value.",
    r"\.attention\.o_proj\.": ".attention.output.dense.",
}
# By the beginning of names in memory: patterns, and their replacements on disk.
IN_MEMORY = {
    "layers.": {
        r"^layers\.": "encoder.layer.",
        **_PROJECTIONS,
        r"\.mlp\.fc1\.": ".intermediate.dense.",
        r"\.mlp\.fc2\.": ".output.dense.",
        rf"^(encoder\.layer\.\d+\.){TABLE}\.": rf"\1attention.attention.{TABLE}.",
    },
    "encoder.layer.": _PROJECTIONS,
    "shared_position_bias.": {r"^shared_position_bias\.": f"encoder.{TABLE}."},
}
INDEX = "relative_position_index"
# The text tower, the pre-training decoder, and computed numbers.
IGNORED = (
    *("text_model.", "text_projection.", "logit_", "decoder.", "lm_head.", f"{INDEX}."),
    *("embeddings.mask_token", "embeddings.position_ids", "rope_embeddings."),
)
HEADS = (
    *("classifier.", "cls_classifier.", "distillation_classifier.", "visual_projection."),
    *("class_labels_classifier.", "bbox_predictor.", "class_head.", "box_head."),
    *("objectness_head.", "layer_norm.", "pooler.dense."),
)


# Fields of DINOv3's configuration, and the paths of the biases that they switch on or off.
BIASES = {"mlp_bias": "MlpBlock_3/.*/bias", "proj_bias": "out/bias"}


def _unused(arch, row, names):
    """Returns the tensors that the class of a file holds but does not use."""
    unused = []
    if str(arch.options.boxes).startswith("texts"):
        unused.append("visual_projection.weight")
    if "classifier.weight" in names:
        prefixes = ["pooler.dense."]
        prefixes += [] if arch.classifier == "map" else ["head."]
        prefixes += [] if arch.options.final_norm else ["post_layernorm."]
        unused += [name for name in names if name.startswith(tuple(prefixes))]
    return unused


def _transposed_table(link, arch, size):
    """Reads BEiT's table like transformers, which swaps its rows and columns and resizes it."""
    if not link.ours[0].endswith("relative_2d/table"):
        return link
    rows, columns = (side // patch for side, patch in zip(size, arch.patch_size))
    turn = lambda table: resize_relative_table(table, (columns, rows), (rows, columns))
    return link.mapped(turn, unchanged)


def _links_to_write(arch, config):
    """Links all variables of a model, and the other tensors that its transformers class needs."""
    kind = configs.tower_config(config).get("model_type")
    row = configs.MODEL_TYPES[kind] if kind else configs.type_for(arch)
    fillers = [constant(name, value) for name, value in row.fillers(arch).items()]
    base = (row.base or f"{row.name}.") if configs.kind_of_head(arch) else ""
    prefixed = lambda name: name if name.startswith(HEADS) else f"{base}{name}"
    return [
        dataclasses.replace(link, theirs=tuple(map(prefixed, link.theirs)))
        for link in [*row.names.links(arch), *fillers]
    ]


NAFLEX = "bilinear_antialias"
PROCESSOR = "preprocessor_config.json"


def _image_size(arguments, row, shapes, fields):
    """Returns the size of images and the tokens that positions cover."""
    tensors, covers = row.names, row.covers
    count = shapes.get(tensors.positions, (0, 0))[-2]  # (N, D) or (1, N, D)
    size = configs.image_size_of(fields)
    if size is None and not tensors.linear_patches and "model_type" in fields:
        with contextlib.suppress(ValueError):
            return covered_positions(arguments, count, row.image_size, covers)
    return covered_positions(arguments, count, size, covers) if count or size else {}


class HuggingFace(Format):
    suffixes = (".safetensors", ".bin")
    folder_name = "model.safetensors"
    head = HEADS
    ignored = IGNORED

    def detect(self, names):
        return configs.is_known(names)

    def wraps(self, names):
        return "layernorm.weight" in names and "pooler.dense.weight" not in names

    def canonical(self, name):
        """Translates a name to the one on disk, without the prefix of a classifier's backbone."""
        # AltCLIP in version 5 has "layer".
        name = PREFIX.sub("", name.replace("vision_model.encoder.layer.", "encoder.layers."))
        for start, patterns in IN_MEMORY.items():
            if name.startswith(start):
                for pattern, new in patterns.items():
                    name = re.sub(pattern, new, name)
                break
        return f"{INDEX}.{name}" if name.endswith(f".{INDEX}") else name

    def links(self, arch, names, config):
        if names is None:
            return _links_to_write(arch, config)
        row, fields = configs.read_config(config, names)
        result = row.names.links(arch, names)
        for field in BIASES.keys() & row.fields:
            if not fields[field]:
                result = [zeros(*k.ours) if re.search(BIASES[field], k.path) else k for k in result]
        rows, columns = configs.image_size_of(fields) or (1, 1)
        if rows != columns:
            result = [_transposed_table(link, arch, (rows, columns)) for link in result]
        if row.names.registers in names and not arch.options.num_registers:
            result.append(constant(row.names.registers, np.zeros((1, 0, arch.hidden_size))))
        return [*result, unread(_unused(arch, row, names))]

    def infer(self, shapes, config):
        row, fields = configs.read_config(config, set(shapes))
        tensors, design = row.names, row.design(set(shapes))
        channels = fields.get("num_channels", 3)
        arguments = tensors.sizes(shapes, design["classifier"], channels=channels) | design
        if tensors.positions and not tensors.relative:  # which only BEiT may lack
            arguments["position_embedding"] = "learned"
        if arguments.get("boxes") in WITH_NO_OBJECT:
            arguments["num_classes"] -= 1
        if arguments["num_classes"] is not None:
            arguments["representation_size"] = None  # a pooler beside a classifier has no effect
        if "model_type" in fields:
            configs.check_sizes(fields, arguments)
            if arguments["representation_size"] is not None:  # `pre_logits` has tanh
                check_choice(fields.get("pooler_act", "tanh"), ("tanh",), "pooler_act")
            arguments |= {"num_heads": fields["num_attention_heads"], **row.arguments(fields)}
        elif "num_attention_heads" in config:
            arguments["num_heads"] = config["num_attention_heads"]
        arguments |= _image_size(arguments, row, shapes, fields)
        arguments = {k: v for k, v in arguments.items() if v != LEARNED.get(k, ...)}
        return changed_options(arguments)

    def numerics(self, shapes, config):
        row, fields = configs.read_config(config, set(shapes))
        return Numerics(
            gelu=configs.gelu_of(fields),
            layer_norm_epsilon=fields["layer_norm_eps"],
            preprocessing=configs.read_processor(config.get(PROCESSOR) or {}, row.processor),
            resizing=row.resizing,
            class_names=configs.class_names_of(fields),
            task=configs.task_of(fields),
        )

    def assumption(self, shapes, config, overrides):
        said = (config.get(PROCESSOR) or {}).get("resample")
        if said in (None, *configs.PIL_RESAMPLE.values()):
            return ""
        return f"a model that resizes with 'bilinear'; {PROCESSOR} has another resample={said}"

    def as_read(self, arch):
        return configs.type_for(arch).as_read(arch)

    def config_files(self, arch, numerics):
        row = configs.type_for(arch, numerics.resizing.positions == NAFLEX)
        pixels = numerics.preprocessing
        processor = configs.write_processor(arch.image_size, arch.channels, pixels, row.processor)
        if row.processor == "Siglip2ImageProcessor":
            processor |= {"patch_size": arch.patch_size[0], "max_num_patches": arch.num_positions}
        return {"config.json": configs.write_config(arch, row, numerics), PROCESSOR: processor}
