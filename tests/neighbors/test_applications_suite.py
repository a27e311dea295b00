"""The test functions of keras.applications, run with our constructors.

Keras' own functions have image sizes that no patch of 16 pixels divides, and sizes that are not
known. Where such a case is refused, the reason is compared.
"""

import inspect

import keras
import pytest
from keras.src.applications import applications_test as suite

from tests.helpers import shapes_only
from vit_keras import applications, variants

pytestmark = pytest.mark.once
FUNCTIONS = (
    "notop_variable_input_channels",
    "notop_custom_input_shape",
    "notop_custom_input_tensor",
    "pooling",
    "classifier_activation",
)
SIDES = {"notop_custom_input_shape": 123, "notop_custom_input_tensor": 100}  # pixels
CHANNELS_FIRST = "take images with channels last"
UNKNOWN_SIZE = "must be known when a"
NO_WHOLE_PATCHES = "`patch_size` must divide|total stride"
DETECTORS = ("YOLOS", "OWL")  # their last layer has no softmax
NAMES = [name for name in applications.__all__ if name[0].isupper()]
# A small one of each kind of constructor; the others run at night.
BY_DAY = ("ViTmu16", "RViTTi16", "BiTR50x1")
AT_NIGHT = pytest.mark.nightly
BUILDERS = [pytest.param(name, marks=[] if name in BY_DAY else [AT_NIGHT]) for name in NAMES]


def row_of(name):
    """The row of a constructor's variant."""
    function = inspect.unwrap(getattr(applications, name))
    return variants.get(inspect.getclosurevars(function).nonlocals["variant"])


def reason_of(row, case, data_format):
    """Why a case is refused, as a pattern, or None."""
    if data_format == "channels_first":
        return CHANNELS_FIRST
    if isinstance(row, variants.ResNetVariant):
        return None
    if case == "notop_variable_input_channels":
        return UNKNOWN_SIZE
    crops = getattr(row, "arguments", {}).get("crop_to_patches", False)
    if SIDES.get(case, 0) % row.stride and not crops:
        return NO_WHOLE_PATCHES
    return None


def run_theirs(case, name, data_format):
    """Runs Keras' test function `case` with our constructor."""
    function = vars(suite.ApplicationsTest)[f"test_application_{case}_VGG16_channels_last"]
    harness = suite.ApplicationsTest(f"test_application_{case}_VGG16_channels_last")
    build, width = getattr(applications, name), row_of(name).feature_size
    try:
        with shapes_only():
            function.__wrapped__(harness, build, width, applications, data_format)
    finally:
        keras.config.set_image_data_format("channels_last")


def format_cases():
    """Each function with both formats; the last one sets no format."""
    yield from ((case, "channels_last") for case in FUNCTIONS)
    yield from ((case, "channels_first") for case in FUNCTIONS[:-1])


@pytest.mark.parametrize(("case", "data_format"), [*format_cases()])
@pytest.mark.parametrize("name", BUILDERS)
def test_keras_own_function_passes_or_is_refused_with_its_reason(name, case, data_format, refused):
    reason, kind = reason_of(row_of(name), case, data_format), ValueError
    if case == "classifier_activation" and name.startswith(DETECTORS):
        reason, kind = "linear", AssertionError
    if reason is None:
        run_theirs(case, name, data_format)
        return
    with pytest.raises(kind, match=reason) as error:
        run_theirs(case, name, data_format)
    refused("A detector gives logits" if kind is AssertionError else str(error.value))
