"""timm's architectures against timm itself, both ways; its files that are bare or nearly right."""

import dataclasses
import functools
import importlib
import json
import re
import shutil
from typing import Any

import numpy as np
import pytest

import vit_keras
from tests.designs import images_for, random_design
from tests.helpers import GOLDEN, assert_close, weights_by_path
from tests.peers import peer
from tests.weights.builds import arrays_of, assert_equal_weights, build, channels_first
from vit_keras import weights
from vit_keras.models import with_image_size
from vit_keras.weights.formats.timm.architectures import license_of, timm_arguments

pytestmark = pytest.mark.on("torch")
SMALL: dict[str, Any] = {"embed_dim": 16, "num_heads": 2, "depth": 2, "num_classes": 3}
SMALL |= {"patch_size": 4, "img_size": (12, 20)}
REFERENCE = {"ref_feat_shape": (4, 3)}
NAFLEX = {"pos_embed_grid_size": (3, 5), "img_size": None}
# One architecture of each kind, with what it changes of the small model.
CASES = {
    "vit_base_patch16_224": {"in_chans": 1, "num_classes": 0},
    "vit_base_patch16_gap_224": {"patch_size": (4, 2)},  # no class token, as I-JEPA
    "vit_base_patch8_224": {"global_pool": "avg"},  # fine-tuned MAE
    "deit3_small_patch16_224": {},
    "deit_tiny_distilled_patch16_224": {},
    "vit_small_patch14_dinov2": {"global_pool": "avg", "fc_norm": False},
    "vit_giant_patch14_reg4_dinov2": {"mlp_ratio": 5.5},
    "vit_small_patch16_dinov3": {"global_pool": "token"},
    "vit_small_plus_patch16_dinov3": {"num_classes": 0},
    "eva02_small_patch14_336": REFERENCE,
    "eva02_base_patch14_448": {**REFERENCE, "num_classes": 0},
    "eva_giant_patch14_224": {},
    "beit_base_patch16_224": {},
    "beitv2_base_patch16_224": {"use_abs_pos_emb": True},
    "beit3_base_patch16_224": {},
    "vit_base_patch32_clip_224": {"num_classes": 0},
    "vit_base_patch16_clip_quickgelu_224": {"global_pool": "avg"},
    "vit_base_patch16_siglip_224": {"img_size": (14, 21)},  # pixels that fill no patch
    "vit_base_patch32_siglip_256": {},  # tanh GELU
    "vit_betwixt_patch16_reg4_gap_256": {},
    "vit_so150m_patch16_reg4_map_256": {"num_classes": 0},
    "test_vit3": {},  # its pool reads registers too
    "vit_base_patch16_rope_reg1_gap_256": REFERENCE,
    "vit_base_patch16_rope_ape_224": {},
    "vit_base_patch16_rope_mixed_224": {},
    "vit_pe_core_base_patch16_224": {**REFERENCE, "mlp_ratio": 3, "attn_pool_num_heads": 4},
    "vit_pe_lang_large_patch14_448": REFERENCE,
    "vit_pe_spatial_base_patch16_512": {**REFERENCE, "num_classes": 0},
    "vit_base_patch16_xp_224": {},
    "vit_pwee_patch16_reg1_gap_256": {"qk_norm": True},
    "flexivit_small": {},
    "vit_base_patch16_radio_v3": {},  # positions with aligned corners
    "vit_so400m_patch16_radio_v4": {},
    "naflexvit_base_patch16_siglip": NAFLEX,
    "naflexvit_base_patch16_gap": {**NAFLEX, "class_token": True},
}


def randomized(model):
    """Random weights; the embeddings are small, so that a normalization's epsilon shows."""
    import torch

    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, value in model.named_parameters():
            scale = re.search(r"norm\w*\.weight$|gamma", name)
            spread = 0.02 if re.search("token|pos_embed|proj|embeds", name) else 0.3
            noise = torch.randn(value.shape, generator=generator)
            value.copy_((1.0 if scale else 0.0) + spread * noise)
    return model.eval()


def run(model, images):
    return model(channels_first(images)).detach().numpy()


def make(folder, name, **changes):
    """A model of timm with random weights, saved by timm's own code."""
    timm, hub = peer("timm"), importlib.import_module("timm.models._hub")
    arguments = {**SMALL, **changes}
    model = randomized(timm.create_model(name, **arguments))
    known = {"num_classes": arguments["num_classes"]}
    hub.save_for_hf(model, folder, model_config=known, safe_serialization=True)
    return model


def loaded(folder, name, changes):
    """The model of another size into which timm loads the weights in a folder."""
    config = json.loads((folder / "config.json").read_text())
    source = {**config["pretrained_cfg"], "file": str(folder / "model.safetensors")}
    source |= {"url": "", "hf_hub_id": None, "num_classes": config["num_classes"]}
    source["input_size"] = (changes.get("in_chans", 3), *config["model_args"]["img_size"])
    arguments = {**SMALL, **changes, "pretrained": True, "pretrained_cfg": source}
    return peer("timm").create_model(name, **arguments).eval()


def read_back(folder):
    """The model that timm builds of a folder, whose names and shapes must be exactly its own."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text())
    arguments = {**config["model_args"], "num_classes": config["num_classes"]}
    model = peer("timm").create_model(config["architecture"], **arguments).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    return model


@pytest.mark.filterwarnings("ignore:torch.searchsorted", "ignore:Using a non-tuple sequence")
@pytest.mark.parametrize("name", CASES)
def test_model_computes_as_timm_and_goes_back(rng, tmp_path, recwarn, name):
    theirs = make(tmp_path / "theirs", name, **CASES[name])
    size = {**SMALL, **CASES[name]}["img_size"] or (12, 20)
    channels = CASES[name].get("in_chans", 3)
    images = rng.normal(size=(2, *size, channels)).astype("float32")
    expected = run(theirs, images)
    model = vit_keras.open(tmp_path / "theirs")
    assert_close(model.predict_on_batch(images), expected)
    weights.save(model, tmp_path / "ours", format="timm")
    assert not [w for w in recwarn if "computes with" in str(w.message)]
    again = read_back(tmp_path / "ours")
    assert_close(run(again, images), expected)
    if not name.endswith("patch16_gap"):  # a table that timm's ordinary class resizes alike
        before, after = theirs.state_dict(), again.state_dict()
        assert before.keys() == after.keys()
        assert all(before[key].equal(after[key]) for key in before)
    larger = (22, 17) if "siglip_224" in name else (20, 16)
    images = rng.normal(size=(2, *larger, channels)).astype("float32")
    if name.startswith("beit"):  # timm loads tables of square grids alone
        theirs.set_input_size(img_size=larger)
    elif hasattr(theirs, "set_input_size"):  # NaFlexVit takes any
        theirs = loaded(tmp_path / "theirs", name, {**CASES[name], "img_size": larger})
    resized = with_image_size(model, larger)
    assert_close(resized.predict_on_batch(images), run(theirs, images))


RESIZED = [  # an architecture, its images, and the images and patches of ours
    ("vit_base_patch16_224", (12, 12), (36, 24), 4),
    ("vit_huge_patch16_radio_v4", (24, 24), (12, 12), (6, 3)),
    ("flexivit_base", (12, 12), (36, 24), 4),
    ("eva02_small_patch14_336", (24, 24), (12, 12), (6, 3)),
]


@pytest.mark.parametrize(("name", "size", "image_size", "patch_size"), RESIZED)
def test_files_of_other_sizes_are_loaded_as_by_timm(
    rng, tmp_path, name, size, image_size, patch_size
):
    make(tmp_path, name, img_size=size)
    images = rng.normal(size=(2, *image_size, 3)).astype("float32")
    theirs = loaded(tmp_path, name, {"img_size": image_size, "patch_size": patch_size})
    model = vit_keras.open(tmp_path, image_size=image_size, patch_size=patch_size)
    assert_close(model.predict_on_batch(images), run(theirs, images))


def entry_points(module):
    """`{architecture: arguments}` that timm's entry points in a module hand to their class."""
    timm, source = peer("timm"), importlib.import_module(f"timm.models.{module}")
    creators = [
        name for name in dir(source) if re.match("_create_(vision|eva|beit|deit|nafl)", name)
    ]
    entries: dict[str, dict] = {}

    def record(variant, *_, **arguments):
        entries[variant] = arguments

    with pytest.MonkeyPatch.context() as patch:
        for name in creators:
            patch.setattr(source, name, record)
        for name in timm.list_models(module=module):
            getattr(source, name)()
    return entries


def as_table_has_it(arguments, module):
    """What an entry point says, or its class's default, in the words of the table."""
    if "cfg" in arguments:
        arguments = {**dataclasses.asdict(arguments["cfg"]), **arguments}
    norm, activation = arguments.get("norm_layer"), arguments.get("act_layer")
    has_norm = arguments.get("final_norm", True)
    return {
        **timm_arguments({}),
        "num_heads": 12,
        "no_embed_class": module == "naflexvit",
        "global_pool": "avg" if module in ("eva", "beit") else "token",
        **arguments,
        "act_layer": activation if isinstance(activation, str) else "gelu",  # or a gate's SiLU
        "norm_eps": norm.keywords["eps"] if isinstance(norm, functools.partial) else 1e-6,
        "final_norm": has_norm and arguments.get("use_post_transformer_norm", True),
    }


@pytest.mark.parametrize("module", ["vision_transformer", "eva", "beit", "deit", "naflexvit"])
def test_table_of_architectures_is_timms(module):
    refused = 0
    for name, arguments in entry_points(module).items():
        try:
            ours = timm_arguments({"architecture": name})
        except ValueError:
            refused += 1
            continue
        theirs = as_table_has_it(arguments, module)
        keys = {*ours, "num_heads", "attn_pool_num_heads", "ref_feat_shape"}
        # Eva's pool always includes the prefix; the others are no arguments of timm.
        for key in keys - {"architecture", "pool_include_prefix", "pools_all", "resizing"}:
            assert ours.get(key) == theirs.get(key), f"{name}, {key}"
    counts = {"vision_transformer": 18, "eva": 6, "naflexvit": 8}
    assert refused == counts.get(module, 0)


FAMILIES = GOLDEN / "families"


def edited(folder, name, shapes, change):
    """A golden folder with tensors of other shapes or without them, and fields likewise."""
    from safetensors.numpy import save_file

    shutil.copytree(FAMILIES / f"timm_{name}", folder)
    tensors = {key: np.array(x) for key, x in arrays_of(folder / "model.safetensors").items()}
    tensors |= {key: shape and np.zeros(shape, "float32") for key, shape in shapes.items()}
    kept = {key: value for key, value in tensors.items() if value is not None}
    save_file(kept, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config |= {**change, "model_args": config["model_args"] | change.get("model_args", {})}
    config = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def changed(**arguments):
    return "dinov2", {}, {"model_args": arguments}


WRONG = [
    ("deit3", {"blocks.1.ls2.gamma": None}, {}, "in the file: blocks.1.ls2.gamma -> encoderblock"),
    ("so150m_reg4_map", {"attn_pool.kv.weight": (16, 16)}, {}, r"is \(16, 16\) in the file, \(32"),
    ("dinov2", {}, {"architecture": "vit_dwee_patch16_reg1_gap_256"}, "to these blocks"),
    ("dinov2_giant_reg4", {}, {"model_args": {"act_layer": "gelu_tanh"}}, "'silu'.*'gelu_tanh'"),
    ("dinov3_plus", {}, {"model_args": {"rope_grid_offset": 0.5}}, "rope_grid_offset=0.5"),
    (*changed(use_post_norm=True), "normalization after .*: use_post_norm=True"),
    (*changed(global_pool="avg", pool_include_prefix=True), "to a mean of all tokens"),
    ("mae_fine_tuned", {}, {"model_args": {"global_pool": "token"}}, "model: fc_norm.weight"),
]


@pytest.mark.parametrize(("name", "shapes", "change", "message"), WRONG)
def test_a_folder_that_no_model_is_is_refused_with_the_difference(
    tmp_path, name, shapes, change, message
):
    with pytest.raises(ValueError, match=message):
        vit_keras.open(edited(tmp_path / "a", name, shapes, change))


def test_folders_of_early_timm_are_read(tmp_path):
    index = {"blocks.0.attn.relative_position_index": (17, 17)}
    beit = vit_keras.open(edited(tmp_path / "beit", "beit", index, {}))
    assert_equal_weights(beit, vit_keras.open(FAMILIES / "timm_beit"))
    source = json.loads((FAMILIES / "timm_clip_quickgelu" / "config.json").read_text())
    flat = source["pretrained_cfg"]
    model = vit_keras.open(
        edited(tmp_path / "clip", "clip_quickgelu", {}, flat | {"pretrained_cfg": None})
    )
    assert model.preprocessing.mean == (0.48145466, 0.4578275, 0.40821073)
    assert license_of(flat) == "mit"


def test_projection_is_a_head_whose_bias_is_zero(rng, tmp_path):
    model = build(rng, head_use_bias=False)
    weights.save(model, tmp_path / "a.safetensors", format="timm")
    assert_equal_weights(model, vit_keras.open(tmp_path / "a.safetensors"))
    other = build(rng)
    weights.save(other, tmp_path / "b.safetensors", format="timm")
    before = weights_by_path(model)
    with pytest.raises(ValueError, match="from a file whose head.bias is zero"):
        weights.load(model, tmp_path / "b.safetensors")
    assert all(np.array_equal(before[k], v) for k, v in weights_by_path(model).items())


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("timm_dinov3_qkvb", {"image_size": 16}),
        ("timm_beit", {}),
        ("timm_deit3", {}),
        ("timm_clip_quickgelu", {"gelu": "quick"}),
        ("timm_naflexvit_siglip", {}),
    ],
)
def test_bare_file_is_read_as_the_likeliest_architecture(tmp_path, name, arguments):
    shutil.copy(FAMILIES / name / "model.safetensors", tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="do not give .*`num_heads`"):
        vit_keras.open(tmp_path / "a.safetensors")
    model = vit_keras.open(tmp_path / "a.safetensors", num_heads=2, **arguments)
    io = arrays_of(FAMILIES / name / "io.npz")
    expected = io.get("logits", io.get("pooled"))
    assert_close(model.predict_on_batch(io["images"]), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("BEiT", {}),
        ("BEiT", {"position_embedding": "learned_relative_2d"}),
        ("BEiT", {"image_size": (4, 20)}),  # 9 offsets, like a grid of 2x2
        ("CLIP", {}),
        ("EVA-02", {}),
        ("PE", {}),
    ],
)
def test_timms_own_model_computes_the_same(name, arguments):
    peer("timm")
    model = random_design(name, **arguments)
    images = images_for(model)
    assert_close(run(weights.to_timm(model), images), model(images))


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("DINOv2", {}, "Received: classifier='token_gap'"),
        ("ViTDet", {"classifier": "token"}, r"Received: window_size=\(2, 2\)"),
        ("DeiT", {"classifier_activation": "softmax"}, "classifier_activation='softmax'"),
    ],
)
def test_what_timm_lacks_is_refused_by_name(name, arguments, message):
    peer("timm")
    with pytest.raises(ValueError, match=message):
        weights.to_timm(random_design(name, **arguments))
