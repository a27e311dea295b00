"""The names of transformers' ViT, DeiT, BEiT, ViTMAE, ViT-MSN and I-JEPA."""

import dataclasses

from vit_keras.weights.formats.huggingface.model_type import ANY, COMMON, ModelType
from vit_keras.weights.formats.tensor_names import LAYER_SCALE, TensorNames

NAMES = TensorNames.of(
    "patches=embeddings.patch_embeddings.projection cls=embeddings.cls_token "
    "positions=embeddings.position_embeddings block=encoder.layer.{}. norm_0=layernorm_before "
    "query=attention.attention.query key=attention.attention.key "
    "value=attention.attention.value out=attention.output.dense norm_2=layernorm_after "
    "dense_0=intermediate.dense dense_1=output.dense norm=layernorm pre_logits=pooler.dense "
    "head=classifier",
)
DEIT = dataclasses.replace(NAMES, dist="embeddings.distillation_token")
TEACHER = {"head": "cls_classifier", "head_dist": "distillation_classifier"}
TABLE = "relative_position_bias.relative_position_bias_table"
BEIT = dataclasses.replace(
    NAMES,
    scale_0="lambda_1",
    scale_1="lambda_2",
    relative=f"attention.attention.{TABLE}",
    shared_relative=f"encoder.{TABLE}",
    pooled_norm="pooler.layernorm",
    pre_logits="",
)
BOXES = {"head_mlp_{}": "class_labels_classifier", "head_boxes_mlp_{}": "bbox_predictor"}
YOLOS = dataclasses.replace(
    NAMES,
    registers="embeddings.detection_tokens",
    positions_of_blocks="encoder.mid_position_embeddings",
    registers_last=True,
    head="class_labels_classifier.layers.2",
    boxes={
        (ours.removesuffix("_mlp_{}") if i == 2 else ours.format(i)): f"{theirs}.layers.{i}"
        for ours, theirs in BOXES.items()
        for i in range(3)
    },
)
FIRST = ("encoder.layer.0.layernorm_before.weight",)
FIELDS = {**COMMON, "layer_norm_eps": 1e-12}


def _biased(fields):
    return {"qkv_bias": "all" if fields["qkv_bias"] else "none"}


def _write_biased(arch):
    return {"qkv_bias": arch.options.qkv_bias == "all"}


def _yolos(names):
    detects = f"{YOLOS.head}.weight" in names
    return {"classifier": "token", "boxes": "tokens" if detects else None}


def _yolos_says(fields):
    at = {"position_embedding_at": "every"} if fields["use_mid_position_embeddings"] else {}
    return {**_biased(fields), **at}


def _write_yolos(arch):
    """Returns the special fields, after checking that transformers computes with such sizes."""
    (height, width), (side, other) = arch.image_size, arch.patch_size
    every = arch.position_embedding_at == "every"
    is_whole = height * width // side**2 == arch.grid[0] * arch.grid[1]
    pooler = arch.representation_size in (None, arch.hidden_size)
    if side != other or not pooler or (every and (arch.num_layers == 1 or not is_whole)):
        raise ValueError(
            "transformers' YOLOS has square patches, a pooler as wide as the tokens and, with "
            "position_embedding_at='every', several blocks and images of whole patches. Received: "
            f"patch_size={arch.patch_size}, image_size={arch.image_size}, "
            f"num_layers={arch.num_layers}, representation_size={arch.representation_size}"
        )
    return {
        **_write_biased(arch),
        "image_size": list(arch.image_size),
        "num_detection_tokens": arch.options.num_registers,
        "use_mid_position_embeddings": every,
    }


def _deit(names):
    if f"{TEACHER['head']}.weight" in names:
        return {"classifier": "distilled"}
    return {"classifier": "token", "distillation_token": True}


def _deit_spelling(row, names):
    teacher = f"{TEACHER['head']}.weight" in names
    return dataclasses.replace(row, **TEACHER) if teacher else row


def _beit(names):
    """The mean is normalized in the pooler; without a pooler, there is no normalization."""
    if f"{BEIT.pooled_norm}.weight" in names:
        return {"classifier": "gap_norm", "class_token": True}
    if f"{BEIT.norm}.weight" in names:
        return {"classifier": "token"}
    return {"classifier": "gap", "class_token": True, "final_norm": False}


def _beit_says(fields):
    relative = fields["use_relative_position_bias"] or fields["use_shared_relative_position_bias"]
    kinds = ["learned"] if fields["use_absolute_position_embeddings"] else []
    kinds += ["relative_2d"] if relative else []
    return {
        "qkv_bias": "qv",
        "position_embedding": "_".join(kinds) or "none",
        "layer_scale": LAYER_SCALE if fields["layer_scale_init_value"] > 0 else None,
    }


def _beit_spelling(row, names):
    """Returns the tables of blocks, the shared table, or both, which are then added."""
    in_blocks = row.of_block(0, row.relative) in names
    changes = {"relative": row.relative if in_blocks else ""}
    if row.shared_relative not in names:
        changes["shared_relative"] = ""
    return dataclasses.replace(row, **changes) if in_blocks or row.shared_relative in names else row


def _write_beit(arch):
    return {
        "use_relative_position_bias": arch.position_embedding.endswith("relative_2d"),
        "use_shared_relative_position_bias": False,
        "use_absolute_position_embeddings": arch.position_embedding.startswith("learned"),
        "use_mask_token": False,
        "use_mean_pooling": arch.classifier == "gap_norm",
        "layer_scale_init_value": arch.options.layer_scale or 0.0,
        "drop_path_rate": 0.0,
    }


VIT = ModelType(
    name="vit",
    marks=FIRST,
    names=NAMES,
    classes={("token", ""): "ViTModel", ("token", "classifier"): "ViTForImageClassification"},
    fields=FIELDS,
    design=lambda names: {"classifier": "token"},
    says=_biased,
    holds={"qkv_bias": ("all", "none")},
    processor="ViTImageProcessor",
    base="vit.",
    write=_write_biased,
)
TYPES = (
    dataclasses.replace(
        VIT,
        name="yolos",
        marks=(*FIRST, YOLOS.registers),
        names=YOLOS,
        classes={("token", ""): "YolosModel", ("token", "classifier"): "YolosForObjectDetection"},
        fields={**FIELDS, "use_mid_position_embeddings": True},
        design=_yolos,
        says=_yolos_says,
        holds={**VIT.holds, "num_registers": ANY, "boxes": (None, "tokens")},
        needs=("num_registers",),
        processor="YolosImageProcessor",
        outside=("class_labels_classifier.", "bbox_predictor."),
        write=_write_yolos,
    ),
    dataclasses.replace(
        VIT,
        name="deit",
        marks=(*FIRST, DEIT.dist),
        names=DEIT,
        classes={
            ("token", ""): "DeiTModel",
            ("token", "classifier"): "DeiTForImageClassification",
            ("distilled", "classifier"): "DeiTForImageClassificationWithTeacher",
        },
        design=_deit,
        holds={**VIT.holds, "distillation_token": ANY},
        processor="DeiTImageProcessor",
        base="deit.",
        outside=("classifier.", "cls_classifier.", "distillation_classifier."),
        spelling=_deit_spelling,
    ),
    dataclasses.replace(
        VIT,
        name="beit",
        marks=(*FIRST, BEIT.of_block(0, BEIT.scale_0)),
        names=BEIT,
        classes={
            ("token", ""): "BeitModel",
            ("gap_norm", ""): "BeitModel",
            ("token", "classifier"): "BeitForImageClassification",
            ("gap_norm", "classifier"): "BeitForImageClassification",
        },
        fields={
            **FIELDS,
            "use_relative_position_bias": False,
            "use_shared_relative_position_bias": False,
            "use_absolute_position_embeddings": False,
            "layer_scale_init_value": 0.1,
        },
        design=_beit,
        says=_beit_says,
        holds={"qkv_bias": ("qv",), "layer_scale": ANY, "class_token": ANY},
        positions=("relative_2d", "learned", "learned_relative_2d", "none"),
        rule=lambda f: (
            "bicubic" if f["use_absolute_position_embeddings"] else "bilinear_half_pixel"
        ),
        processor="BeitImageProcessor",
        base="beit.",
        square=True,
        spelling=_beit_spelling,
        write=_write_beit,
    ),
    VIT,
    dataclasses.replace(
        VIT,
        name="ijepa",
        classes={("gap", ""): "IJepaModel", ("gap", "classifier"): "IJepaForImageClassification"},
        design=lambda names: {"classifier": "gap"},
        base="ijepa.",
    ),
    dataclasses.replace(VIT, name="vit_mae", classes={}),
    dataclasses.replace(
        VIT,
        name="vit_msn",
        fields={**FIELDS, "layer_norm_eps": 1e-6},
        classes={
            ("token", ""): "ViTMSNModel",
            ("token", "classifier"): "ViTMSNForImageClassification",
        },
    ),
)
