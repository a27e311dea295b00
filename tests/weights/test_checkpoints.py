"""Checkpoints as projects' scripts save them: wrappers, prefixes, heads, averages, decoders."""

import argparse
import collections
import warnings

import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from tests.peers import peer
from tests.weights.builds import assert_equal_weights, channels_first
from tests.weights.open_clip_models import randomized
from tests.weights.test_strict import assert_refused
from tests.weights.transformers_models import TEXT as SMALL_TEXT
from tests.weights.transformers_models import WITH_MLP
from vit_keras import weights
from vit_keras.models import VisionTransformer
from vit_keras.weights.containers import DamagedFile

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.on("torch")

SIZES = (16, 8, 24, 2, 3, 40)  # image, patch, width, blocks, heads, MLP
HEAD = ("head.weight", "head.bias")


@pytest.fixture
def model(rng):
    return randomize(VisionTransformer(*SIZES, num_classes=5), rng)


HEADS = {"timm": "head", "torchvision": "heads.head", "huggingface": "classifier"}


def written(model, tmp_path, source="timm"):
    """The state dict that a project has of a model."""
    path = tmp_path / f"plain{'.bin' if source == 'huggingface' else '.pth'}"
    weights.save(model, path, format=source)
    return {k.removeprefix("vit."): v for k, v in torch.load(path, weights_only=True).items()}


@pytest.fixture
def state(model, tmp_path):
    return written(model, tmp_path)


def renamed(state, prefix, head, source="timm", **others):
    """A state dict with a prefix, whose classifier has another name."""
    turn = lambda k: head + k.removeprefix(HEADS[source]) if HEADS[source] in k else prefix + k
    return {turn(k): v for k, v in state.items()} | others


def opened(content, tmp_path, name="checkpoint.pth", **arguments):
    torch.save(content, tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vit_keras.open(tmp_path / name, num_heads=3, **arguments)


# A prefix is what precedes a known format; a head of one linear layer may be anywhere.
WRAPPED = {
    "one": lambda s: {f"model.{k}": v for k, v in s.items()},
    "many": lambda s: {f"a.b.c.0.{k}": v for k, v in s.items()},
    "compiled": lambda s: {f"_orig_mod.{k}": v for k, v in s.items()},
    "compiled inside": lambda s: {k.replace("attn.", "_orig_mod.attn."): v for k, v in s.items()},
    "chunked": lambda s: {f"backbone.{k.replace('blocks.', 'blocks.0.')}": s[k] for k in s},
    "averaged": lambda s: {"n_averaged": torch.tensor(3), **renamed(s, "module.", "module.head")},
    "backbone": lambda s: renamed(s, "backbone.", "classifier"),
    "nested": lambda s: {"state_dict": renamed(s, "net.backbone.", "net.classifier")},
    "sequential": lambda s: renamed(s, "0.", "1"),
    "dropout": lambda s: renamed(s, "vit.", "classifier.1"),
    "two dictionaries": lambda s: {
        "backbone": {k: v for k, v in s.items() if k not in HEAD},
        "head": {"weight": s["head.weight"], "bias": s["head.bias"]},
    },
}
LINEAR = ("fc", "mlp_head.1", "head.fc")
WRAPPED |= {f"plain {head}": lambda s, head=head: renamed(s, "", head) for head in LINEAR}


@pytest.mark.parametrize("case", WRAPPED)
def test_what_training_scripts_save_is_loaded(model, state, tmp_path, case):
    content = WRAPPED[case](state)
    assert_equal_weights(model, opened(content, tmp_path))
    features = opened(content, tmp_path, num_classes=None)
    assert features.output_shape == (None, 24)
    assert not to_numpy(opened(content, tmp_path, num_classes=3).get_layer("head").kernel).any()


@pytest.mark.parametrize(
    ("source", "prefix", "head", "options"),
    [
        ("torchvision", "", "heads.1", {}),
        ("huggingface", "backbone.", "classifier", {}),
        ("huggingface", "vit.", "fc.1", {}),
        ("timm", "backbone.", "linear_head", {"num_registers": 2, "layer_scale": 0.1}),
    ],
)
def test_a_head_beside_another_projects_backbone_is_loaded(
    rng, tmp_path, source, prefix, head, options
):
    model = randomize(VisionTransformer(*SIZES, num_classes=5, **options), rng)
    content = {"state_dict": renamed(written(model, tmp_path, source), prefix, head, source)}
    assert_equal_weights(model, opened(content, tmp_path))


def test_a_head_beside_a_backbone_with_several_outputs_is_refused(rng, tmp_path):
    """Nothing says what it reads."""
    model = randomize(VisionTransformer(*SIZES, num_classes=None, pre_norm=True), rng)
    state = written(model, tmp_path, "huggingface")
    content = {f"backbone.{k}": v for k, v in state.items()}
    content["classifier.weight"] = torch.ones(5, 24)
    with pytest.raises(ValueError, match=r"not in the model: classifier\.weight"):
        opened(content, tmp_path)
    assert opened(content, tmp_path, num_classes=None).output_shape == (None, 24)


NORM = {"weight": torch.ones(24), "bias": torch.zeros(24)}
REFUSED = {
    "mlp_head.1": ({f"mlp_head.0.{k}": v for k, v in NORM.items()}, "mlp_head.0.weight"),
    "fc": ({"neck.weight": torch.ones(24, 24)}, "neck.weight"),
    "linear": ({"backbone.linear.weight": torch.ones(5, 24)}, "backbone.linear.weight"),
}


@pytest.mark.parametrize(("head", "prefix"), [*zip(REFUSED, ["", "backbone.", "backbone."])])
def test_what_no_head_expresses_is_refused_by_name(model, state, tmp_path, head, prefix):
    others, name = REFUSED[head]
    torch.save(renamed(state, prefix, head, **others), tmp_path / "a.pth")
    assert_refused(model, tmp_path / "a.pth", f"not in the model: {name}")
    if head != "fc":
        other = vit_keras.open(tmp_path / "a.pth", num_heads=3, num_classes=None)
        assert other.output_shape == (None, 24)


EMA = {"state_dict_ema": "state_dict", "model_ema": "model", "teacher": "state_dict"}


@pytest.mark.parametrize("averaged", EMA)
def test_averaged_weights_are_chosen_by_which(model, state, tmp_path, averaged):
    raw = EMA[averaged]
    other = {name: value + 1 for name, value in state.items()}
    optimizer = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]}
    content = {"epoch": 3, "optimizer": optimizer, "args": argparse.Namespace(lr=0.1), raw: state}
    content[averaged] = {f"module.{name}": value for name, value in other.items()}
    torch.save(content, tmp_path / "a.pth")
    with pytest.warns(UserWarning, match=f"'{raw}'.*'{averaged}.*which="):
        assert_equal_weights(model, vit_keras.open(tmp_path / "a.pth", num_heads=3))
    expected = opened(other, tmp_path, "other.pth")
    for which in ("ema", averaged):
        assert_equal_weights(expected, opened(content, tmp_path, which=which))
        assert_equal_weights(expected, weights.load(model, tmp_path / "a.pth", which=which))
    with pytest.raises(ValueError, match="which='swa'.*|.*swa"):
        weights.load(model, tmp_path / "a.pth", which="swa")


def test_the_student_and_the_teacher_of_one_state_dict_are_told_apart(model, state, tmp_path):
    content = {f"student.backbone.{k}": v for k, v in state.items()}
    content |= {f"teacher.backbone.{k}": v + 1 for k, v in state.items()}
    teacher = opened({k: v + 1 for k, v in state.items()}, tmp_path, "teacher.pth")
    for which in (None, "ema", "teacher"):
        assert_equal_weights(teacher, opened({"state_dict": content}, tmp_path, which=which))
    assert_equal_weights(model, opened(content, tmp_path, which="student"))
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(ValueError, match="one set of weights.*which='ema'"):
        weights.load(model, tmp_path / "a.pth", which="ema")


FILES = {"epoch=1.ckpt": False, "model_best.pth.tar": True, "last.tar": False, "weights": True}


@pytest.mark.parametrize(("name", "old"), FILES.items())
def test_files_are_opened_by_suffix_or_content(model, state, tmp_path, name, old):
    module = {f"model.{k}": v for k, v in state.items()}
    content = {"pytorch-lightning_version": "2.5", "state_dict": module, "epoch": 1}
    content["callbacks"] = {"ModelCheckpoint{'x': 1}": {"best": torch.tensor(0.5)}}
    content["optimizer_states"] = [{"state": {0: {"step": torch.tensor(1.0)}}}]
    content["hyper_parameters"] = collections.OrderedDict(lr=0.1)
    torch.save(content, tmp_path / name, _use_new_zipfile_serialization=not old)
    assert_equal_weights(model, vit_keras.open(tmp_path / name, num_heads=3))


@pytest.mark.parametrize("format", ["timm", "google", None])
def test_files_of_other_kinds_are_opened_by_their_content(model, tmp_path, format):
    suffix = {"timm": ".safetensors", "google": ".npz"}.get(format, ".weights.h5")
    weights.save(model, tmp_path / f"a{suffix}", format=format)
    (tmp_path / f"a{suffix}").rename(tmp_path / "unknown.weights")
    weights.load(other := VisionTransformer(*SIZES, num_classes=5), tmp_path / "unknown.weights")
    assert_equal_weights(model, other)


def test_of_maes_pretraining_the_encoder_is_loaded_and_the_decoder_named(state, tmp_path):
    names = ("mask_token", "decoder_pos_embed", "decoder_embed.weight", "decoder_pred.bias")
    names += ("decoder_blocks.0.attn.qkv.weight", "decoder_norm.weight")
    decoder = {name: torch.ones(1, 5, 8) for name in names}
    encoder = {k: v for k, v in state.items() if k not in HEAD}
    torch.save({"model": encoder | decoder}, tmp_path / "mae.pth")
    with pytest.warns(UserWarning, match="decoder.*decoder_embed.weight"):
        features = vit_keras.open(tmp_path / "mae.pth", num_heads=3)
    assert_equal_weights(opened(encoder, tmp_path), features)
    assert "decoder" in weights.describe(tmp_path / "mae.pth")["left_out"]


CLIP_TOWER = {**WITH_MLP, "patch_size": 8}
TEXT = {**SMALL_TEXT, "num_key_value_heads": 2, "pad_token_id": 0}
# The class of transformers, and the configurations of its towers.
MULTI_MODAL = {
    "Llava": ({**CLIP_TOWER, "model_type": "clip_vision_model"}, {**TEXT, "model_type": "llama"}),
    "Gemma3": (
        {**CLIP_TOWER, "model_type": "siglip_vision_model", "vision_use_head": False},
        {**TEXT, "head_dim": 4, "model_type": "gemma3_text"},
    ),
    "Idefics2": (CLIP_TOWER, {**TEXT, "model_type": "mistral"}),
}


def features_of(tower, images):
    """What pools the tokens of a tower of transformers, or else their mean."""
    with torch.no_grad():
        output = tower(channels_first(images))
    pooled = getattr(output, "pooler_output", None)
    return (output.last_hidden_state.mean(1) if pooled is None else pooled).numpy()


@pytest.mark.parametrize(("name", "shards"), [*zip(MULTI_MODAL, [False, True, False])])
def test_the_image_tower_of_a_multi_modal_folder_is_loaded(rng, tmp_path, name, shards):
    transformers = peer("transformers")
    vision, text = MULTI_MODAL[name]
    config = getattr(transformers, f"{name}Config")(vision_config=vision, text_config=text)
    theirs = randomized(getattr(transformers, f"{name}ForConditionalGeneration")(config))
    theirs.save_pretrained(tmp_path, max_shard_size="20KB" if shards else "5GB")
    with pytest.warns(UserWarning, match="read without its"):
        ours = vit_keras.open(tmp_path)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    tower = getattr(theirs.model, "vision_tower", None) or theirs.model.vision_model
    assert_close(ours(images), features_of(tower, images), rtol=1e-5)


PLACEHOLDERS = {
    "model.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "pytorch_model.bin": (b"\n <html><head>", "a web page. Download the file itself"),
}


@pytest.mark.parametrize(("name", "folder"), [*zip(PLACEHOLDERS, [False, True])])
def test_placeholders_of_files_get_the_sentence_that_helps(model, tmp_path, name, folder):
    content, sentence = PLACEHOLDERS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        weights.load(model, tmp_path if folder else tmp_path / name)
    assert not isinstance(caught.value, DamagedFile)
