"""Checkpoints as projects' scripts save them: wrappers, prefixes, heads, averages, decoders."""

import argparse
import collections
import warnings

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from tests.peers import peer
from tests.weights.builds import assert_equal_weights
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


@pytest.fixture
def state(model, tmp_path):
    weights.save(model, tmp_path / "plain.pth", format="timm")
    return torch.load(tmp_path / "plain.pth", weights_only=True)


def renamed(state, prefix="", head="head", **others):
    """A state dict with a prefix, whose classifier has another name."""
    names = {old: old.replace("head", head) for old in HEAD}
    return {names.get(k) or f"{prefix}{k}": v for k, v in state.items()} | others


def opened(content, tmp_path, name="checkpoint.pth", **arguments):
    torch.save(content, tmp_path / name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return vit_keras.open(tmp_path / name, num_heads=3, **arguments)


def chunked(state, prefix):
    return {f"{prefix}{k.replace('blocks.', 'blocks.0.')}": v for k, v in state.items()}


PREFIXES = ("model.", "net.backbone.", "_orig_mod.", "encoder.", "student.", "module.", "a.b.c.0.")
PREFIXED = {
    **{
        prefix: lambda s, prefix=prefix: {f"{prefix}{k}": v for k, v in s.items()}
        for prefix in PREFIXES
    },
    "chunked": lambda s: chunked(s, "teacher.backbone."),
    "compiled inside": lambda s: {k.replace("attn.", "_orig_mod.attn."): v for k, v in s.items()},
    "averaged": lambda s: {"n_averaged": torch.tensor(3), **renamed(s, "module.", "module.head")},
}


@pytest.mark.parametrize("case", PREFIXED)
def test_prefixes_are_what_precedes_a_known_format(model, state, tmp_path, case):
    assert_equal_weights(model, opened(PREFIXED[case](state), tmp_path))


WRAPPED = {
    "backbone": lambda s: renamed(s, "backbone.", "classifier"),
    "encoder": lambda s: renamed(s, "encoder.", "fc"),
    "nested": lambda s: {"state_dict": renamed(s, "net.backbone.", "net.classifier")},
    "sequential": lambda s: renamed(s, "0.", "1"),
    "dropout": lambda s: renamed(s, "vit.", "classifier.1"),
    "two dictionaries": lambda s: {
        "backbone": {k: v for k, v in s.items() if k not in HEAD},
        "head": {"weight": s["head.weight"], "bias": s["head.bias"]},
    },
}
HEADS = ("heads", "heads.1", "head.1", "fc", "classifier.1", "mlp_head.1", "linear_head", "head.fc")
WRAPPED |= {f"plain {head}": lambda s, head=head: renamed(s, "", head) for head in HEADS}


@pytest.mark.parametrize("case", WRAPPED)
def test_a_head_of_one_linear_layer_is_loaded_wherever_it_is(model, state, tmp_path, case):
    content = WRAPPED[case](state)
    assert_equal_weights(model, opened(content, tmp_path))
    features = opened(content, tmp_path, num_classes=None)
    assert features.output_shape == (None, 24)
    assert not to_numpy(opened(content, tmp_path, num_classes=3).get_layer("head").kernel).any()


NORM = {"weight": torch.ones(24), "bias": torch.zeros(24)}
REFUSED = {
    "mlp_head.1": ({f"mlp_head.0.{k}": v for k, v in NORM.items()}, "mlp_head.0.weight"),
    "classifier.3": ({"classifier.0.weight": torch.ones(24, 24)}, "classifier.0.weight"),
    "head.1": ({"head.0.running_mean": torch.ones(24)}, "head.0.running_mean"),
    "fc": ({"neck.weight": torch.ones(24, 24)}, "neck.weight"),
}


@pytest.mark.parametrize(("head", "prefix"), zip(REFUSED, ["", "backbone."] * 2))
def test_what_no_head_expresses_is_refused_by_name(model, state, tmp_path, head, prefix):
    others, name = REFUSED[head]
    before = to_numpy(model.get_layer("head").kernel)
    torch.save(renamed(state, prefix, head, **others), tmp_path / "a.pth")
    with pytest.raises(ValueError, match=f"not in the model: {name}"):
        weights.load(model, tmp_path / "a.pth")
    np.testing.assert_array_equal(before, to_numpy(model.get_layer("head").kernel))
    if head != "fc":
        other = vit_keras.open(tmp_path / "a.pth", num_heads=3, num_classes=None)
        assert other.output_shape == (None, 24)


EMA = ("state_dict_ema", "model_ema", "ema", "teacher", "ema_state_dict")


@pytest.mark.parametrize(("raw", "averaged"), zip(["state_dict", "model"] * 3, EMA))
def test_averaged_weights_are_chosen_by_which(model, state, tmp_path, averaged, raw):
    other = {name: value + 1 for name, value in state.items()}
    optimizer = {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1}]}
    content = {
        "epoch": 3,
        raw: state,
        averaged: {f"module.{name}": value for name, value in other.items()},
        "optimizer": optimizer,
        "args": argparse.Namespace(lr=0.1),
    }
    torch.save(content, tmp_path / "a.pth")
    with pytest.warns(UserWarning, match=f"'{raw}'.*'{averaged}.*which="):
        assert_equal_weights(model, vit_keras.open(tmp_path / "a.pth", num_heads=3))
    expected = opened(other, tmp_path, "other.pth")
    for which in ("ema", averaged):
        mean = opened(content, tmp_path, which=which)
        assert_equal_weights(expected, mean)
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


FILES = ("epoch=1.ckpt", "model_best.pth.tar", "last.tar", "weights", "model.pth", "m.pytorch")


@pytest.mark.parametrize(("name", "old"), zip(FILES, [False, True] * 3))
def test_files_are_opened_by_suffix_or_content(model, state, tmp_path, name, old):
    module = {f"model.{k}": v for k, v in state.items()}
    content = {"pytorch-lightning_version": "2.5", "state_dict": module, "epoch": 1}
    content["callbacks"] = {"ModelCheckpoint{'x': 1}": {"best": torch.tensor(0.5)}}
    content["optimizer_states"] = [{"state": {0: {"step": torch.tensor(1.0)}}}]
    content["hyper_parameters"] = collections.OrderedDict(lr=0.1)
    torch.save(content, tmp_path / name, _use_new_zipfile_serialization=not old)
    assert_equal_weights(model, vit_keras.open(tmp_path / name, num_heads=3))


FORMATS = {".safetensors": "timm", ".npz": "google", ".weights.h5": "vit_keras"}


@pytest.mark.parametrize("suffix", [".safetensors", ".npz", ".weights.h5"])
def test_files_of_other_kinds_are_opened_by_their_content(model, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    weights.save(model, path, format=FORMATS[suffix])
    path.rename(tmp_path / "unknown.weights")
    weights.load(other := VisionTransformer(*SIZES, num_classes=5), tmp_path / "unknown.weights")
    assert_equal_weights(model, other)


@pytest.mark.parametrize("wrapper", ["", "model", "module."])
def test_of_maes_pretraining_the_encoder_is_loaded_and_the_decoder_named(
    model, state, tmp_path, wrapper
):
    decoder = {
        "mask_token": torch.ones(1, 1, 8),
        "decoder_pos_embed": torch.ones(1, 5, 8),
        "decoder_embed.weight": torch.ones(8, 24),
        "decoder_blocks.0.attn.qkv.weight": torch.ones(24, 8),
        "decoder_norm.weight": torch.ones(8),
        "decoder_pred.bias": torch.ones(8),
    }
    encoder = {k: v for k, v in state.items() if k not in HEAD}
    content = {f"{wrapper if '.' in wrapper else ''}{k}": v for k, v in (encoder | decoder).items()}
    torch.save({wrapper: content} if wrapper == "model" else content, tmp_path / "mae.pth")
    with pytest.warns(UserWarning, match="decoder.*decoder_embed.weight"):
        features = vit_keras.open(tmp_path / "mae.pth", num_heads=3)
    assert_equal_weights(opened(encoder, tmp_path), features)
    assert "decoder" in weights.describe(tmp_path / "mae.pth")["left_out"]


def test_timms_own_trained_checkpoint_computes_the_same(rng, tmp_path):
    timm = peer("timm")
    theirs = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=2, num_heads=3, num_classes=5
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    average = timm.utils.ModelEmaV3(theirs)
    state = {"arch": "vit_tiny_patch16_224", "state_dict": theirs.state_dict(), "version": 2}
    state |= {"optimizer": torch.optim.AdamW(theirs.parameters()).state_dict(), "metric": 71.5}
    state["state_dict_ema"] = timm.utils.get_state_dict(average, lambda x: x.module)
    for parameter in average.module.parameters():
        parameter.data.mul_(0.5)
    images = rng.normal(size=(2, 32, 32, 3)).astype("float32")
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    for which, reference in ((None, theirs), ("ema", average.module)):
        ours = opened(state, tmp_path, "model_best.pth.tar", which=which)
        with torch.no_grad():
            assert_close(ours(images), reference(pixels).numpy(), rtol=1e-5)


CLIP_TOWER = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 16,
    "patch_size": 8,
}
TEXT = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 99,
    "pad_token_id": 0,
}
SIGLIP = {**CLIP_TOWER, "model_type": "siglip_vision_model"}
LLAMA = {**TEXT, "model_type": "llama"}
GEMMA = {**TEXT, "head_dim": 8}
# The class of transformers, and the configurations of its towers.
MULTI_MODAL = {
    "Llava": ({**CLIP_TOWER, "model_type": "clip_vision_model"}, LLAMA),
    "LlavaNext": ({**CLIP_TOWER, "model_type": "clip_vision_model"}, LLAMA),
    "PaliGemma": (SIGLIP, {**GEMMA, "model_type": "gemma"}),
    "Gemma3": ({**SIGLIP, "vision_use_head": False}, {**GEMMA, "model_type": "gemma3_text"}),
    "Idefics2": (CLIP_TOWER, {**TEXT, "model_type": "mistral"}),
    "Idefics3": (CLIP_TOWER, LLAMA),
    "SmolVLM": (CLIP_TOWER, LLAMA),
}


def tower_of(theirs):
    """The image tower in a model of transformers."""
    inner = getattr(theirs, "model", theirs)
    return getattr(inner, "vision_tower", None) or inner.vision_model


def randomized(theirs):
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return theirs.eval()


def features_of(tower, images):
    """What pools the tokens of a tower of transformers, or else their mean."""
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        output = tower(pixels)
    pooled = getattr(output, "pooler_output", None)
    return (output.last_hidden_state.mean(1) if pooled is None else pooled).numpy()


@pytest.mark.parametrize(("name", "shards"), zip(MULTI_MODAL, [False, True] * 4))
def test_the_image_tower_of_a_multi_modal_folder_is_loaded(rng, tmp_path, name, shards):
    transformers = peer("transformers")
    vision, text = MULTI_MODAL[name]
    config = getattr(transformers, f"{name}Config")(vision_config=vision, text_config=text)
    theirs = randomized(getattr(transformers, f"{name}ForConditionalGeneration")(config))
    theirs.save_pretrained(tmp_path, max_shard_size="20KB" if shards else "5GB")
    with pytest.warns(UserWarning, match="read without its"):
        ours = vit_keras.open(tmp_path)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    assert_close(ours(images), features_of(tower_of(theirs), images), rtol=1e-5)


def test_the_tower_of_altclip_is_loaded(rng, tmp_path):
    transformers = peer("transformers")
    text = {**TEXT, "project_dim": 16, "max_position_embeddings": 20}
    config = transformers.AltCLIPConfig(vision_config=CLIP_TOWER, text_config=text)
    theirs = randomized(transformers.AltCLIPModel(config))
    theirs.save_pretrained(tmp_path)
    ours = vit_keras.open(tmp_path)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    pooled = torch.from_numpy(features_of(theirs.vision_model, images))
    with torch.no_grad():
        assert_close(ours(images), theirs.visual_projection(pooled).numpy(), rtol=1e-5)


FOREIGN = {
    "model.safetensors": (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
    "pytorch_model.bin": (b"\n <html><head>", "a web page. Download the file itself"),
    "model.pth": (b"<?xml version='1.0'?><Error>", "a web page"),
    "weights.gguf": (b"GGUF\3\0\0\0", "GGUF"),
    "model.bin": (b"GGUF\3\0\0\0", "GGUF"),
    "flax_model.msgpack": (b"\x85\xa9", "from_flax=True"),
    "tf_model.h5": (b"\x89HDF\r\n", "from_tf=True"),
    "adapter_model.safetensors": (b"", "merge_and_unload"),
    "manifest.ocdbt": (b"", "orbax"),
    "_CHECKPOINT_METADATA": (b"{}", "orbax"),
    "model.ckpt.index": (b"", "tf.train.load_checkpoint"),
}


@pytest.mark.parametrize(("name", "folder"), zip(FOREIGN, [False, True] * 6))
def test_files_of_other_programs_get_the_sentence_that_helps(model, tmp_path, name, folder):
    content, sentence = FOREIGN[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=sentence) as caught:
        weights.load(model, tmp_path if folder else tmp_path / name)
    assert not isinstance(caught.value, DamagedFile)


class Wrapper(torch.nn.Module):
    """A backbone and a head under other names, as scripts of training have them."""

    def __init__(self, backbone, head, names):
        super().__init__()
        for name, module in zip(names, (backbone, head)):
            setattr(self, name, module)
        self.names = names

    def forward(self, pixels):
        features = getattr(self, self.names[0])(pixels)
        tokens = getattr(features, "last_hidden_state", None)
        return getattr(self, self.names[1])(features if tokens is None else tokens[:, 0])


def torchvision_vit():
    return peer("torchvision").models.VisionTransformer(16, 8, 2, 3, 24, 40, num_classes=5)


def with_another_head(name, head):
    theirs = torchvision_vit()
    setattr(theirs.heads if name == "head" else theirs, name, head)
    return theirs


def vit_model(**fields):
    transformers = peer("transformers")
    fields = {**CLIP_TOWER, **fields}
    return transformers.ViTModel(transformers.ViTConfig(**fields), add_pooling_layer=False)


def timm_vit(name="vit_tiny_patch16_224", **fields):
    sizes = {"img_size": 16, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3}
    return peer("timm").create_model(name, **{**sizes, "num_classes": 0, **fields})


def linear(*before):
    return torch.nn.Sequential(*before, torch.nn.Linear(24, 5))


DROPOUT = torch.nn.Dropout(0.1)
OTHERS = {
    "torchvision heads": lambda: with_another_head("heads", linear(DROPOUT)),
    "torchvision head": lambda: with_another_head("head", linear(DROPOUT)),
    "transformers": lambda: Wrapper(vit_model(), linear()[0], ("backbone", "classifier")),
    "transformers' own prefix": lambda: Wrapper(vit_model(), linear(DROPOUT), ("vit", "fc")),
    "timm": lambda: Wrapper(timm_vit(), linear(DROPOUT), ("encoder", "mlp_head")),
    "timm's registers": lambda: Wrapper(
        timm_vit("vit_small_patch14_reg4_dinov2"), linear()[0], ("backbone", "linear_head")
    ),
    "timm's means": lambda: Wrapper(timm_vit(global_pool="avg"), linear(), ("net", "head")),
}


@pytest.mark.parametrize("case", OTHERS)
def test_heads_of_other_projects_compute_the_same(rng, tmp_path, case):
    theirs = randomized(OTHERS[case]())
    torch.save({"state_dict": theirs.state_dict()}, tmp_path / "last.ckpt")
    known = {"layer_norm_epsilon": 1e-12} if "transformers" in case else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = vit_keras.open(tmp_path / "last.ckpt", num_heads=3, **known)
    images = rng.normal(size=(2, 16, 16, 3)).astype("float32")
    with torch.no_grad():
        expected = theirs(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    assert_close(ours(images), expected, rtol=1e-5)


def clip_tower():
    transformers = peer("transformers")
    return transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**CLIP_TOWER))


UNSAID = {  # backbones of which nothing says what a head beside them reads
    "clip": clip_tower,
    "pooler": lambda: peer("transformers").ViTModel(peer("transformers").ViTConfig(**CLIP_TOWER)),
}


@pytest.mark.parametrize("case", UNSAID)
def test_a_head_beside_a_backbone_with_several_outputs_is_refused(tmp_path, case):
    theirs = randomized(Wrapper(UNSAID[case](), torch.nn.Linear(24, 5), ("backbone", "classifier")))
    torch.save(theirs.state_dict(), tmp_path / "a.pth")
    with pytest.raises(ValueError, match=r"not in the model: classifier\.weight"):
        vit_keras.open(tmp_path / "a.pth", num_heads=3)
    ours = vit_keras.open(tmp_path / "a.pth", num_heads=3, num_classes=None)
    assert ours.output_shape == (None, 24)
