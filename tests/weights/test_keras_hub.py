"""Presets and weights of KerasHub against KerasHub, in both directions."""

import pytest

from tests.helpers import assert_close, randomise, to_numpy
from tests.weights.builds import assert_equal_weights, build
from vit_keras import weights

keras_hub = pytest.importorskip("keras_hub")

SIZES = {"patch_size": 8, "num_layers": 3, "num_heads": 3, "hidden_dim": 24, "mlp_dim": 40}


def backbone(rng, image_shape=(16, 24, 3), **changes):
    model = keras_hub.models.ViTBackbone(image_shape, **{**SIZES, **changes})
    return randomise(model, rng, scale=0.2)


def classifier(rng, pooling="token", intermediate_dim=None, **changes):
    converter = keras_hub.layers.ViTImageConverter(image_size=(16, 24), scale=1 / 51, offset=-2.0)
    preprocessor = keras_hub.models.ViTImageClassifierPreprocessor(converter)
    model = keras_hub.models.ViTImageClassifier(
        backbone(rng, use_class_token=pooling == "token", **changes),
        5,
        preprocessor=preprocessor,
        pooling=pooling,
        intermediate_dim=intermediate_dim,
    )
    return randomise(model, rng, scale=0.2)


def images_for(rng, channels=3):
    return rng.uniform(-1, 1, (3, 16, 24, channels)).astype("float32")


@pytest.mark.parametrize("pooling", ["token", "gap"])
@pytest.mark.parametrize("intermediate_dim", [None, 9])
def test_preset_gives_its_logits(rng, tmp_path, pooling, intermediate_dim):
    theirs = classifier(rng, pooling, intermediate_dim, layer_norm_epsilon=1e-4)
    theirs.save_to_preset(tmp_path)
    ours, images = weights.from_checkpoint(tmp_path), images_for(rng)
    assert_close(ours(images), theirs(images))
    assert ours.preprocessing.std == pytest.approx((0.2,))
    assert ours.preprocessing.mean == pytest.approx((0.4,))
    assert ours.get_layer("encoderblock_2").layer_norm_epsilon == 1e-4


def test_weights_of_classifier_and_backbone_load(rng, tmp_path):
    theirs, images = classifier(rng), images_for(rng)
    theirs.save_weights(tmp_path / "all.weights.h5")
    ours = weights.from_checkpoint(tmp_path / "all.weights.h5", image_size=(16, 24))
    assert_close(ours(images), theirs(images))
    theirs.backbone.save_to_preset(tmp_path / "backbone")
    ours = weights.from_checkpoint(tmp_path / "backbone")
    tokens = to_numpy(theirs.backbone(images))
    assert_close(ours(images), tokens[:, 0])


@pytest.mark.parametrize(
    ("ours_classifier", "size"), [("token", None), ("token", 9), ("gap", None), ("gap", 9)]
)
def test_saved_preset_opens_in_keras_hub(rng, tmp_path, ours_classifier, size):
    ours = build(rng, num_layers=3, classifier=ours_classifier, representation_size=size)
    weights.save(ours, tmp_path, format="keras_hub")
    theirs, images = keras_hub.models.ViTImageClassifier.from_preset(str(tmp_path)), images_for(rng)
    assert_close(theirs(images), ours(images))
    assert_equal_weights(ours, weights.from_checkpoint(tmp_path))
    pixels = rng.integers(0, 256, (1, 16, 24, 3)).astype("uint8")
    prepared = to_numpy(theirs.preprocessor(pixels))
    assert_close(prepared, pixels / 127.5 - 1)


def test_saved_features_open_as_a_backbone(rng, tmp_path):
    ours = build(rng, num_classes=None, channels=2)
    weights.save(ours, tmp_path, format="keras_hub")
    theirs, images = keras_hub.models.ViTBackbone.from_preset(str(tmp_path)), images_for(rng, 2)
    assert_close(to_numpy(theirs(images))[:, 0], ours(images))


def test_saved_file_loads_into_a_classifier(rng, tmp_path):
    ours, images = build(rng, num_layers=3, representation_size=9), images_for(rng)
    weights.save(ours, tmp_path / "model.weights.h5", format="keras_hub")
    theirs = classifier(rng, intermediate_dim=9)
    theirs.load_weights(tmp_path / "model.weights.h5")
    assert_close(theirs(images), ours(images))


def test_mean_with_the_class_token_is_refused(rng, tmp_path):
    model = keras_hub.models.ViTImageClassifier(backbone(rng), 5, pooling="gap")
    model.save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="averages the class token with the patches"):
        weights.from_checkpoint(tmp_path)
