"""timm's files that are bare, nearly right, or cannot hold a model."""

import json
import shutil

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS, images_for, random_design
from tests.helpers import GOLDEN, assert_close, to_numpy, weights_by_path
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights
from vit_keras.weights.formats.timm import license_of

pytestmark = [pytest.mark.on("torch"), pytest.mark.filterwarnings("ignore:.*computes with")]
FAMILIES = GOLDEN / "families"


def changed(tmp_path, name, change):
    """A golden folder whose tensors `change` has changed in place."""
    from safetensors.numpy import load_file, save_file

    shutil.copytree(FAMILIES / name, tmp_path / name)
    path = tmp_path / name / "model.safetensors"
    tensors = {key: np.array(value) for key, value in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    return tmp_path / name


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "timm_dinov2",
            lambda t: t.update({"blocks.0.foo": np.zeros(3, "float32")}),
            r"not in the model: blocks\.0\.foo, \(3,\)",
        ),
        (
            "timm_deit3",
            lambda t: t.pop("blocks.1.ls2.gamma"),
            r"missing in the file: blocks\.1\.ls2\.gamma -> encoderblock_1/LayerScale_1/gamma",
        ),
        ("timm_deit3", lambda t: t.pop("norm.weight"), r"missing in the file: norm\.weight"),
        (
            "timm_eva02_base",
            lambda t: t.pop("blocks.0.attn.k_proj.weight"),
            r"missing in the file: blocks\.0\.attn\.k_proj\.weight",
        ),
        (
            "timm_eva02_small",
            lambda t: t.update({"blocks.0.attn.k_bias2": t["blocks.0.attn.q_bias"]}),
            r"not in the model: blocks\.0\.attn\.k_bias2",
        ),
        (
            "timm_so150m_reg4_map",
            lambda t: t.update({"attn_pool.kv.weight": np.zeros((16, 16), "float32")}),
            r"attn_pool\.kv\.weight -> .* is \(16, 16\) in the file, \(32, 16\) in the model",
        ),
        (
            "timm_naflexvit_siglip",
            lambda t: t.update({"embeds.proj.weight": np.zeros((16, 50), "float32")}),
            "a column for each number of a patch of 4x4 pixels with 3 channels. Received: 50 col",
        ),
    ],
)
def test_a_file_that_is_nearly_a_family_is_refused_with_the_difference(
    tmp_path, name, change, message
):
    with pytest.raises(ValueError, match=message):
        vit_keras.open(changed(tmp_path, name, change))


def test_buffers_of_older_timm_are_left_out(tmp_path):
    index = {"blocks.0.attn.relative_position_index": np.zeros((17, 17), "float32")}
    folder = changed(tmp_path, "timm_beit", lambda t: t.update(index))
    assert_equal_weights(vit_keras.open(folder), vit_keras.open(FAMILIES / "timm_beit"))


def test_configurations_of_early_timm_are_flat(tmp_path):
    folder = shutil.copytree(FAMILIES / "timm_clip_quickgelu", tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    config |= config.pop("pretrained_cfg")
    (folder / "config.json").write_text(json.dumps(config))
    model = vit_keras.open(folder)
    assert model.preprocessing.mean == (0.48145466, 0.4578275, 0.40821073)
    assert model.preprocessing.crop_fraction == 0.9 and license_of(config) == "mit"
    assert model.get_layer("encoderblock_0").gelu == "quick"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "vit_base_patch16_rpn_224"}, "cannot be read: it normalizes after att"),
        ({"architecture": "eva02_enormous_patch14_clip_224"}, "normalizes after attention"),
        ({"architecture": "vit_dwee_patch16_reg1_gap_256"}, "differential attention"),
        ({"architecture": "naflexvit_base_patch16_radio_v3"}, "to a square and crops them"),
        ({"model_args": {"global_pool": "max"}}, "this pooling.*Received: global_pool='max'"),
        ({"model_args": {"act_layer": "relu"}}, "one of 'gelu', .* Received: act_layer='relu'"),
        ({"model_args": {"use_post_norm": True}}, "normalization after .*: use_post_norm=True"),
        (
            {"model_args": {"global_pool": "avg", "pool_include_prefix": True}},
            "Means are over the patches",
        ),
    ],
)
def test_models_that_no_option_stands_for_are_refused(tmp_path, change, message):
    folder = shutil.copytree(FAMILIES / "timm_dinov2", tmp_path / "a")
    config = json.loads((folder / "config.json").read_text())
    config = {**config, **change, "model_args": config["model_args"] | change.get("model_args", {})}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=message):
        vit_keras.open(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"classifier": "token_gap"},
            "with classifier='token'. Received: classifier='token_gap",
        ),
        (
            {"rope": {"base": 100.0}, "gelu": "tanh"},
            "class Eva has no place .* gelu='tanh'",
        ),
        ({"rope": {"base": 100.0}, "norm": "rms"}, "no place for a model with norm='rms'"),
        ({"position_embedding": "relative_2d"}, "Received: qkv_bias='all'"),
        (
            {"position_embedding": "relative_2d", "qkv_bias": "qv", "qk_norm": True},
            "no place for a model with qk_norm=True",
        ),
        ({"classifier": "distilled", "num_registers": 2}, "no place for a model with num_regi"),
        ({"parallel": True, "mlp": "swiglu"}, "no place for a model with mlp='swiglu'"),
        (
            {"classifier": "map", "map_heads": 1, "num_registers": 2},
            "class Eva has no place for a model with pool_all_tokens=False",
        ),
    ],
)
def test_models_that_no_class_of_timm_holds_are_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        weights.save(build(**options), tmp_path / "a.safetensors", format="timm")
    assert not list(tmp_path.iterdir())


def test_position_of_the_class_token_is_folded_into_it(rng, tmp_path):
    options = {"num_registers": 3, "position_cover": "class", "layer_scale": 0.1}
    model = build(rng, **options)
    weights.save(model, tmp_path / "a", format="timm")
    images = rng.normal(size=(2, 16, 24, 3)).astype("float32")
    for _ in range(2):  # with and without the note
        again = vit_keras.open(tmp_path / "a")
        assert_close(again(images), model(images), rtol=2e-6)
        tensors, ours = weights_by_path(again), weights_by_path(model)
        table = ours["posembed_input/pos_embedding"]
        whole = ours["cls/cls"] + table[:, :1]
        assert_close(tensors["cls/cls"], whole, rtol=1e-6)
        folded = tensors["posembed_input/pos_embedding"][:, -6:]
        np.testing.assert_array_equal(folded, table[:, 1:])
        strip_note(tmp_path / "a" / "model.safetensors")


def strip_note(path):
    from safetensors.numpy import load_file, save_file

    save_file({k: np.array(v) for k, v in load_file(path).items()}, path)


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
        ("timm_mae_fine_tuned", {}),
        ("timm_parallel_xp", {}),
        ("timm_clip_quickgelu", {"gelu": "quick"}),
        ("timm_naflexvit_siglip", {}),
    ],
)
def test_bare_file_is_read_as_the_likeliest_architecture(tmp_path, name, arguments):
    shutil.copy(FAMILIES / name / "model.safetensors", tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="do not say .*`num_heads`"):
        vit_keras.open(tmp_path / "a.safetensors")
    model = vit_keras.open(tmp_path / "a.safetensors", num_heads=2, **arguments)
    with np.load(FAMILIES / name / "io.npz") as file:
        expected = file["logits" if "logits" in file else "pooled"]
        result = model.predict_on_batch(file["images"])
    assert_close(result, expected, rtol=1e-5)


TIMM = {"DINOv2": {"classifier": "token"}}  # timm's classes read no class token beside a mean
QUICK = ("BEiT", "CLIP", "EVA-02", "PE")


def channels_first(images):
    import torch

    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly)
        for name in DESIGNS
        if name != "ViTDet"
    ],
)
def test_timms_own_model_computes_the_same(name):
    peer("timm")
    model = random_design(name, **TIMM.get(name, {}))
    images = images_for(model)
    expected = to_numpy(model(images))
    assert_close(weights.to_timm(model)(channels_first(images)).detach(), expected)


def test_a_training_of_timms_model_goes_back_into_the_model(tmp_path):
    peer("timm")
    torch = pytest.importorskip("torch")
    model = random_design("DeiT III", layer_norm_epsilon=1e-6)  # of timm's files
    module, images = weights.to_timm(model, drop_path_rate=0.1), images_for(model)
    module.train()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-2)
    torch.nn.functional.cross_entropy(
        module(channels_first(images)), torch.tensor([0, 2])
    ).backward()
    optimizer.step()
    expected = module.eval()(channels_first(images)).detach().numpy()
    before = to_numpy(model(images))
    torch.save(module.state_dict(), tmp_path / "trained.pth")
    weights.load(model, tmp_path / "trained.pth")
    result = to_numpy(model(images))
    assert np.abs(result - before).max() > 1e-2
    assert_close(result, expected)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("DINOv2", {}, "Received: classifier='token_gap'"),
        ("ViTDet", {"classifier": "token"}, r"no place for a model with window_size=\(2, 2\)"),
        ("DeiT", {"classifier_activation": "softmax"}, "classifier_activation='softmax'"),
    ],
)
def test_what_timm_lacks_is_refused_by_name(name, arguments, message):
    peer("timm")
    with pytest.raises(ValueError, match=message):
        weights.to_timm(random_design(name, **arguments))
