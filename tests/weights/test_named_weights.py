"""Applications with published weights by name: what they build, and what they refuse."""

import re

import pytest

from tests import reference
from tests.helpers import assert_close, randomize, weights_by_path
from vit_keras import applications, weights
from vit_keras.weights import lookup, names, save

pytestmark = pytest.mark.on("torch")


@pytest.fixture
def loaded(monkeypatch):
    """Records calls of `load` instead of downloading hundreds of megabytes."""
    calls = []

    def load(model, path, head):
        assert head == ("keep" if "head" in {layer.name for layer in model.layers} else "drop")
        calls.append(path)
        return model

    monkeypatch.setattr(weights, "resolve", lambda variant, weights: f"{variant} {weights}")
    monkeypatch.setattr(weights, "load", load)
    return calls


def test_name_gives_resolution_classes_and_pre_logits_of_its_file(loaded):
    model = applications.ViTB32(weights="imagenet21k")
    assert model.input_shape == (None, 224, 224, 3)
    assert model.output_shape == (None, 21843)
    assert model.get_layer("pre_logits").units == 768
    assert loaded == ["B/32 imagenet21k"]


def test_fine_tuned_file_has_its_own_size_and_no_pre_logits(loaded):
    model = applications.ViTTi16(weights="augreg-imagenet-384", classes=1000)
    assert model.input_shape == (None, 384, 384, 3)
    assert model.output_shape == (None, 1000)
    assert "pre_logits" not in {layer.name for layer in model.layers}
    assert loaded == ["Ti/16 augreg-imagenet-384"]


def test_without_the_top_classes_do_not_matter(loaded):
    model = applications.ViTTi16(
        include_top=False,
        weights="augreg-imagenet21k",
        input_shape=(64, 32, 3),
        pooling="avg",
        classes=7,
        classifier_activation="relu",
    )
    assert model.output_shape == (None, 192)
    assert loaded == ["Ti/16 augreg-imagenet21k"]


def test_existing_file_is_loaded_as_a_file(loaded, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.keras").write_bytes(b"")
    (tmp_path / "augreg-imagenet").write_bytes(b"")  # a name of the table is never a file
    applications.ViTTi16(weights="mine.keras", classes=10)
    applications.ViTTi16(weights=tmp_path / "mine.keras", classes=10)
    applications.ViTTi16(weights="augreg-imagenet")
    assert loaded == ["mine.keras", tmp_path / "mine.keras", "Ti/16 augreg-imagenet"]


def test_documentation_lists_the_names():
    for name in names("B/16"):
        assert re.search(rf'"{re.escape(name)}"', applications.ViTB16.__doc__)


def test_named_weights_come_from_the_server_into_the_model(serve, tmp_path, rng):
    """A file in the published format is downloaded, and its names and its GELU are right."""
    source = randomize(applications.ViTTi16(classes=1000), rng, scale=0.05)
    save(source, tmp_path / "published.npz", format="google")
    row = lookup("Ti/16", "augreg-imagenet")
    server = serve(files={f"/{row.path}": (tmp_path / "published.npz").read_bytes()})
    model = applications.ViTTi16(weights="augreg-imagenet", classifier_activation=None)
    images = rng.uniform(-1, 1, (1, 224, 224, 3)).astype("float32")
    weights = weights_by_path(source)
    expected = reference.forward(images, weights, num_layers=12, gelu="tanh")
    assert_close(model(images), expected["logits"])
    bare = applications.ViTTi16(include_top=False, weights="augreg-imagenet")
    tokens = expected["encoder_norm"]
    assert_close(bare(images), tokens)
    assert len(server.requests) == 1  # the second model reads the cache
