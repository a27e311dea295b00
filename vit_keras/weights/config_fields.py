"""The types that fields of other projects' JSON have, wherever in a file they stand.

A field that is not in the table has no effect on a model.
"""

from collections.abc import Callable
from typing import Any

from vit_keras.annotated import is_int, is_number, is_text, short
from vit_keras.weights.containers.checks import DamagedFile

Kind = tuple[str, Callable[[Any], bool]]  # in words, and what holds of a value


def _several(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether something holds of a value, or of each item of a list that is not empty."""
    return lambda value: (
        holds(value) or (isinstance(value, list) and bool(value) and all(map(holds, value)))
    )


def _is_size(value: Any) -> bool:
    return is_int(value) and value > 0


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _are_labels(value: Any) -> bool:
    """Whether a value is `{number of a class: its name}`."""
    return _is_object(value) and all(
        key.isdecimal() and is_text(name) for key, name in value.items()
    )


OBJECT: Kind = ("an object", _is_object)
TEXT: Kind = ("a text", is_text)
FLAG: Kind = ("true or false", lambda value: isinstance(value, bool))
COUNT: Kind = ("a whole number of at least 0", lambda value: is_int(value) and value >= 0)
SIZE: Kind = ("a whole number of at least 1", _is_size)
SIZES: Kind = ("a whole number of at least 1, or a list of them", _several(_is_size))
SIDES: Kind = (
    "a whole number of at least 1, a list of them, or an object",
    lambda value: _is_object(value) or _several(_is_size)(value),
)
NUMBER: Kind = ("a finite number", is_number)
POSITIVE: Kind = ("a finite number above 0", lambda value: is_number(value) and value > 0)
NUMBERS: Kind = ("a finite number, or a list of them", _several(is_number))
TEXTS: Kind = (
    "a list of texts",
    lambda value: isinstance(value, list) and all(map(is_text, value)),
)

FIELDS: dict[str, Kind] = {
    **dict.fromkeys(("model_args", "model_cfg", "preprocess_cfg", "pretrained_cfg"), OBJECT),
    **dict.fromkeys(("vision_config", "vision_config_dict", "vision_cfg", "act_kwargs"), OBJECT),
    **dict.fromkeys(("norm_kwargs", "preprocessor", "image_converter"), OBJECT),
    **dict.fromkeys(("architecture", "model_type", "hidden_act", "pooler_act"), TEXT),
    **dict.fromkeys(("image_processor_type", "feature_extractor_type"), TEXT),
    **dict.fromkeys(("global_pool", "act_layer", "interpolation", "crop_mode"), TEXT),
    **dict.fromkeys(("resize_mode", "pool_type", "pooling", "rope_type"), TEXT),
    **dict.fromkeys(("pos_embed_interp_mode", "approximate", "block_fn"), TEXT),
    **dict.fromkeys(("architectures", "label_names"), TEXTS),
    "id2label": ("an object of texts, by numbers of classes", _are_labels),
    **dict.fromkeys(("do_normalize", "do_center_crop", "use_gated_mlp", "use_swiglu_ffn"), FLAG),
    **dict.fromkeys(("qkv_bias", "query_bias", "key_bias", "value_bias"), FLAG),
    **dict.fromkeys(("use_relative_position_bias", "use_shared_relative_position_bias"), FLAG),
    **dict.fromkeys(("use_absolute_position_embeddings", "no_embed_class"), FLAG),
    **dict.fromkeys(("pool_include_prefix", "use_rot_pos_emb", "use_post_norm"), FLAG),
    **dict.fromkeys(("use_post_transformer_norm", "final_norm", "final_ln_after_pool"), FLAG),
    **dict.fromkeys(("quick_gelu", "antialias", "crop_to_aspect_ratio"), FLAG),
    **dict.fromkeys(("pos_embed_antialias", "rope_rotate_half"), FLAG),
    **dict.fromkeys(("num_register_tokens", "resample"), COUNT),
    **dict.fromkeys(("num_channels", "hidden_size", "num_hidden_layers"), SIZE),
    **dict.fromkeys(("intermediate_size", "num_attention_heads", "in_chans"), SIZE),
    **dict.fromkeys(("num_heads", "head_width", "attn_pool_num_heads"), SIZE),
    **dict.fromkeys(("height", "width", "shortest_edge"), SIZE),
    **dict.fromkeys(("image_size", "patch_size", "img_size", "input_size"), SIZES),
    **dict.fromkeys(("image_shape", "ref_feat_shape", "rope_ref_feat_shape"), SIZES),
    **dict.fromkeys(("size", "crop_size"), SIDES),
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon", "eps", "norm_eps"), NUMBER),
    **dict.fromkeys(("layer_scale_init_value", "rope_grid_offset"), NUMBER),
    **dict.fromkeys(("rope_theta", "rope_temperature", "crop_pct"), POSITIVE),
    **dict.fromkeys(("image_mean", "image_std", "mean", "std", "scale", "offset"), NUMBERS),
}


def check_fields(content: Any, path: str) -> None:
    """Checks the fields of a JSON file; a field that is null counts as absent.

    Raises:
        DamagedFile: The file holds no object, or a field has another type than projects write.
    """
    if not isinstance(content, dict):
        raise DamagedFile(f"{path!r} must hold a JSON object. Received: {type(content).__name__}")
    for field, value in content.items():
        what, holds = FIELDS.get(field, ("", None))
        if value is not None and holds is not None and not holds(value):
            raise DamagedFile(f"`{field}` in {path!r} must be {what}. Received: {short(value)}")
        if isinstance(value, dict):
            check_fields(value, path)
