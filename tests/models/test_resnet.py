"""BiT equals loops in NumPy, and its number of parameters a formula."""

import pytest

from tests import resnet_reference as reference
from tests.helpers import assert_close, randomize, shapes_only, weights_by_path
from vit_keras import variants
from vit_keras.models import ResNet, from_variant, intermediates

SMALL = {"resnet_layers": (2, 1), "resnet_width": 0.5}


def images_for(model, rng, size):
    return rng.uniform(-1, 1, (2, *size, model.input_shape[-1])).astype("float32")


@pytest.mark.parametrize("num_classes", [5, None])
@pytest.mark.parametrize(("size", "channels"), [((32, 32), 3), ((27, 38), 4)])
def test_every_layer_equals_loops(rng, num_classes, size, channels):
    model = ResNet(size, **SMALL, num_classes=num_classes, channels=channels)
    randomize(model, rng)
    images = images_for(model, rng, size)
    expected = reference.bit(images, weights_by_path(model), SMALL["resnet_layers"])
    outputs = intermediates(model)(images)
    assert outputs.keys() == {*expected, "norm-pre-head"}
    for name, value in expected.items():
        assert_close(outputs[name], value, rtol=1e-5, name=name)


@pytest.mark.on("torch")
def test_images_of_any_size_go_through_one_model(rng):
    model = randomize(ResNet(None, **SMALL, num_classes=5), rng)
    for size in [(16, 24), (21, 17)]:
        images = images_for(model, rng, size)
        expected = reference.bit(images, weights_by_path(model), SMALL["resnet_layers"])["head"]
        assert_close(model(images), expected)


def count(units, width, num_classes):
    """Counts the parameters of BiT: kernels, scales and biases of the norms, and the head."""
    root, last = 64 * width, 64 * width
    total = 7 * 7 * 3 * root
    for s, num_units in enumerate(units):
        inner = root * 2**s
        for u in range(num_units):
            kernels = last * inner + 9 * inner * inner + inner * 4 * inner
            shortcut = last * 4 * inner if u == 0 else 0
            total += kernels + shortcut + 2 * (last + inner + inner)
            last = 4 * inner
    return total + 2 * last + last * num_classes + num_classes


# Units of each stage: R50, R101 and R152 from arXiv 1512.03385, R200 from arXiv 1603.05027.
UNITS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3), 200: (3, 24, 36, 3)}


@pytest.mark.once
@pytest.mark.parametrize("variant", variants.RESNETS)
def test_parameter_counts_follow_the_formula(variant):
    depth, width = map(int, variant.removeprefix("R").split("x"))
    with shapes_only():  # R152x4 takes 3.7 GB
        model = from_variant(variant, image_size=224, num_classes=1000)
        assert model.count_params() == count(UNITS[depth], width, 1000)


@pytest.mark.once
def test_formula_gives_the_published_counts():
    assert count(UNITS[50], 1, 1000) == 25_549_352
    assert count(UNITS[101], 1, 1000) == 44_541_480
    assert count(UNITS[152], 4, 1000) == 936_533_224
