"""Applications with published weights by name: what they build, and what they refuse."""

import re

import pytest

from tests import reference
from tests.helpers import assert_close, randomize, weights_by_path
from vit_keras import applications
from vit_keras.weights import lookup, names, save

pytestmark = pytest.mark.on("torch")


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
