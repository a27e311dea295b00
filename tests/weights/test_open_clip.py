"""OpenCLIP's image towers, both ways, against open_clip's own code."""

import json

import pytest

import vit_keras
from tests.helpers import assert_close
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, channels_first
from tests.weights.open_clip_models import randomized, two_towers, written
from vit_keras import weights

pytestmark = pytest.mark.on("torch")
TOWERS = {
    "quick": ({}, {"quick_gelu": True}),
    "exact": ({"mlp_ratio": 3.0}, {}),
    "CLIPA": ({"no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True}, {}),
    "mean": ({"pool_type": "avg", "image_size": [16, 24]}, {}),
    "scaled": ({"ls_init_value": 0.1, "norm_kwargs": {"eps": 1e-3}}, {}),
    "norms": ({"qk_norm": True, "scale_attn_inner": True, "scale_fc": True}, {}),
}


def seen(model, images):
    """What open_clip's image tower makes of images `(B, H, W, C)`."""
    return model.visual(channels_first(images)).detach().numpy()


@pytest.mark.parametrize("tower", TOWERS)
def test_towers_of_open_clip_are_read_and_written_back(rng, tmp_path, tower):
    from safetensors.torch import load_file

    theirs, config = two_towers(*TOWERS[tower])
    ours = vit_keras.open(written(tmp_path, theirs, config))
    images = rng.normal(size=(2, *ours.input_shape[1:])).astype("float32")
    assert_close(ours(images), seen(theirs, images))
    assert ours.preprocessing.crop_fraction is None
    assert weights.describe(tmp_path)["left_out"] == ["text tower"]

    weights.save(ours, tmp_path / "again", format="open_clip")
    again = json.loads((tmp_path / "again" / "open_clip_config.json").read_text())["model_cfg"]
    other = two_towers(again["vision_cfg"], {"quick_gelu": again["quick_gelu"]})[0]
    state = load_file(tmp_path / "again" / "open_clip_model.safetensors")
    other.visual.load_state_dict({name.removeprefix("visual."): x for name, x in state.items()})
    assert_close(seen(other, images), seen(theirs, images), rtol=2e-6)
    assert_equal_weights(ours, vit_keras.open(tmp_path / "again"))


def test_programs_are_refused_with_a_remedy(tmp_path):
    torch = pytest.importorskip("torch")
    torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), tmp_path / "ViT-B-32.pt")
    with pytest.raises(ValueError, match=r"TorchScript archive.*torch\.jit\.load"):
        vit_keras.open(tmp_path / "ViT-B-32.pt")


def test_towers_for_padded_pictures_are_refused(tmp_path):
    written(tmp_path, *two_towers({}, {}))
    path = tmp_path / "open_clip_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "preprocess_cfg": {"resize_mode": "longest"}}))
    with pytest.raises(ValueError, match="'shortest', 'squash'. Received: resize_mode='longest'"):
        vit_keras.open(tmp_path)


@pytest.mark.parametrize("pool", [{}, {"attn_pooler_queries": 3, "no_ln_pre": True}])
def test_of_cocas_tower_the_tokens_are_read_and_the_pool_named(rng, tmp_path, pool):
    theirs, config = two_towers({"attentional_pool": True, "attn_pooler_heads": 2, **pool}, {})
    tokens = []
    theirs.visual.transformer.register_forward_hook(lambda *call: tokens.append(call[-1]))
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    seen(theirs, images)
    with pytest.warns(UserWarning, match=r"without its attention pool: visual\.attn_pool"):
        ours = vit_keras.open(written(tmp_path, theirs, config))
    assert_close(ours(images), tokens[0][:, 0].detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "pool"), [("vit_base_patch16_siglip_224", "map"), ("vit_small_patch16_224", "avg")]
)
def test_towers_of_timm_are_read(rng, tmp_path, name, pool):
    torch, timm = pytest.importorskip("torch"), peer("timm")
    sizes = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 0}
    trunk = randomized(timm.create_model(name, **sizes, global_pool=pool))
    text = two_towers({}, {})[0].state_dict()
    state = {f"visual.trunk.{name}": x for name, x in trunk.state_dict().items()}
    state |= {name: x for name, x in text.items() if not name.startswith("visual.")}
    vision = {"timm_model_name": name, "timm_pool": pool, "image_size": 32, "timm_proj": "none"}
    projection = torch.randn(5, 24)
    if pool == "avg":
        state["visual.head.proj.weight"] = projection
        vision["timm_proj"] = "linear"
    torch.save(state, tmp_path / "open_clip_pytorch_model.bin")
    content = {"model_cfg": {"vision_cfg": vision}, "preprocess_cfg": {"mean": [0.4, 0.5, 0.6]}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(content))
    model = vit_keras.open(tmp_path, num_heads=2)
    images = rng.normal(size=(2, 32, 32, 3)).astype("float32")
    expected = trunk(channels_first(images))
    expected = expected if pool == "map" else expected @ projection.T
    assert_close(model(images), expected.detach().numpy())
    assert model.preprocessing.mean == (0.4, 0.5, 0.6)
