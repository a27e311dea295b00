"""Every format gives the golden files' logits, and writes and reads weights bit by bit."""

import keras
import pytest

import vit_keras
from tests.helpers import GOLDEN, assert_close, weights_by_path
from tests.weights.builds import PAIRS, SUFFIX, arrays_of, assert_equal_weights, build
from vit_keras import models, weights

pytestmark = pytest.mark.filterwarnings("ignore:.*computes with")

GOLDENS = {
    "vit_token": ("google", {}),
    "vit_token_prelogits": ("google", {}),
    "vit_gap": ("google", {}),
    "hybrid_stages": ("google", {}),
    "timm_token": ("timm", {"num_heads": 4}),
    "timm_map": ("timm", {"num_heads": 4}),
    "timm_avg_nonsquare": ("timm", {"num_heads": 4, "image_size": (16, 40)}),
    "torchvision_token": ("torchvision", {"num_heads": 4}),
    "torchvision_prelogits": ("torchvision", {"num_heads": 4}),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_files_give_the_logits_of_their_code_and_are_written_back(name, tmp_path):
    source, known = GOLDENS[name]
    golden = GOLDEN / f"{name}{'.npz' if source == 'google' else '.safetensors'}"
    model = vit_keras.open(golden, **known)
    io = arrays_of(GOLDEN / f"{name}.io.npz")
    assert_close(model(io["images"]), io["logits"])
    weights.save(model, tmp_path / f"again{golden.suffix}", format=source)
    before, after = arrays_of(golden), arrays_of(tmp_path / f"again{golden.suffix}")
    if source == "google":  # the original numbering, the golden files have Linen's
        before = {original_numbering(key): value for key, value in before.items()}
    assert before.keys() == after.keys()
    assert all(value.tobytes() == after[key].tobytes() for key, value in before.items())


def original_numbering(name):
    name = name.replace("/LayerNorm_1/", "/LayerNorm_2/").replace("/MlpBlock_0/", "/MlpBlock_3/")
    return name.replace("MultiHeadDotProductAttention_0", "MultiHeadDotProductAttention_1")


HIDDEN = ("google", "big_vision", "torchvision", "keras_hub", "vit_keras")
MODELS = [(source, {"classifier": classifier}) for source, classifier in PAIRS]
MODELS += [(source, {"representation_size": 9}) for source in HIDDEN]


@pytest.mark.on("torch")
@pytest.mark.parametrize(("source", "changes"), MODELS)
def test_saved_weights_load_bit_by_bit(rng, tmp_path, source, changes):
    model, path = build(rng, **changes), tmp_path / f"weights{SUFFIX[source]}"
    weights.save(model, path, format=source)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]  # no temporary file stays
    assert_equal_weights(model, weights.load(build(**changes), path, source=source))


def test_compiled_model_takes_the_new_numerics(rng, tmp_path):
    images = rng.uniform(-1, 1, (2, 16, 24, 3)).astype("float32")
    path = tmp_path / "a.npz"
    weights.save(build(rng), path, format="google")
    model = build()
    model.compile(loss="mse")
    model.predict(images, verbose=0)  # compiles the exact GELU
    weights.load(model, path)
    tanh = build(gelu="tanh")
    tanh.set_weights([weights_by_path(model)[w.path] for w in tanh.weights])
    assert_close(model.predict(images, verbose=0), tanh(images))


SQUARE = {"image_size": 16}
DINO = {**SQUARE, "num_classes": None, "mlp_dim": 48, "layer_scale": 0.1}
ROTARY = {"rope": {"base": 100.0}, "num_classes": None, "position_embedding": "none"}
UNCENTERED = "read as one with rope={.*'centered': True.*'centered': False"
REFUSED = [
    ("google", {"classifier": "map"}, "one with classifier='gap'. Received: classifier='map'"),
    ("torchvision", {"classifier": "map"}, "classifier='token'. Received: classifier='map'"),
    ("open_clip", {"pre_norm": True}, "head_use_bias=False. Received: num_classes=5, head_use"),
    (
        "huggingface",
        {"classifier": "gap_norm"},
        "'vit' has only the classes ViTModel, .*'gap_norm'",
    ),
    ("huggingface", {"classifier": "map", "num_classes": None}, r"Images of \(16, 16\) pixels"),
    ("huggingface", ROTARY, UNCENTERED),
    ("timm", {"classifier": "token_gap"}, "with classifier='token'. Received: classifier='token_g"),
    ("keras_hub", {"classifier": "distilled"}, "Received: 'distilled' with use_class"),
    ("keras_hub", {**DINO, "image_size": (16, 24)}, r"image_size=\(16, 16\).*Received.*image_size"),
]


@pytest.mark.on("torch")
@pytest.mark.parametrize(("source", "changes", "message"), REFUSED)
def test_models_that_a_format_cannot_hold_are_refused(tmp_path, source, changes, message):
    suffix = "" if source in ("huggingface", "keras_hub", "open_clip") else SUFFIX[source]
    with pytest.raises(ValueError, match="(?s)" + message):
        weights.save(build(**changes), tmp_path / f"weights{suffix}", format=source)
    assert not list(tmp_path.iterdir())


@pytest.mark.once
def test_a_head_that_reads_another_layer_is_not_written_as_the_models_own(tmp_path):
    model = build(classifier="token")
    mean = keras.layers.GlobalAveragePooling1D(name="gap")(model.get_layer("encoder_norm").output)
    changed = models.ImageModel(model.input, keras.layers.Dense(7, name="head")(mean))
    message = "must read the layer 'token'.*whose 'head' reads 'gap'"
    with pytest.raises(ValueError, match=message):
        weights.save(models.copy_description(changed, model), tmp_path / "a.pth", format="timm")


@pytest.mark.once
def test_a_softmax_that_a_file_does_not_hold_is_said(rng, tmp_path):
    model, path = build(rng, classifier_activation="softmax"), tmp_path / "a.npz"
    with pytest.warns(UserWarning, match="no place for the classifier's activation 'softmax'"):
        weights.save(model, path, format="google")
    other = weights.load(build(classifier_activation="softmax"), path)
    assert_equal_weights(model, other)
