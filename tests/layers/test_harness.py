"""Every registered layer passes Keras' own test of a layer, and public ones have a cost rule.

`run_layer_test` builds the layer, calls it on symbols and on numbers, saves and loads its
configuration, trains it for a step and runs it in mixed precision, where the backend can.
"""

import dataclasses
import importlib
import pkgutil

import keras
import pytest
from keras.src import testing

import vit_keras
from vit_keras import inspection, layers
from vit_keras.exporting import serving
from vit_keras.layers import common
from vit_keras.models import text

pytestmark = [
    pytest.mark.filterwarnings("ignore:The model does not have any trainable weights"),
    pytest.mark.filterwarnings("ignore:`shuffle=True` was passed"),
]

TOKENS = (2, 6, 12)  # images, tokens and width
GRID = (2, 3)  # of 6 patches
MAP = (2, 4, 6, 32)  # a feature map
IDS = {"x_shape": (2, 6, 12), "input_ids_shape": (2, 6)}
MASKED = {"x_shape": (2, 6, 12), "source_shape": (2, 6)}
ATTENTION = 4 * 6 * 12 * 12 + 2 * 6 * 6 * 12  # projections; q kᵀ and the sum of v
MLP = 2 * 6 * 12 * 8
UNIT = 4 * 6 * (32 * 32 + 9 * 32 * 32 + 32 * 128 + 32 * 128)  # conv1, conv2, conv3, conv_proj


@dataclasses.dataclass
class Case:
    """What a layer does with an input."""

    arguments: dict  # of the layer
    input_shape: tuple | list | dict  # or shapes by the argument's name + "_shape"
    output_shape: tuple  # or several
    weights: int = 0  # that train
    macs: int = 0  # multiply-adds for one image, by hand
    seeds: int = 0  # generators; dropout has one each
    trains: bool = True  # a step, which takes one input and one output
    of_ids: bool = False  # the only input is int32

    @property
    def dtype(self):
        """The types of the inputs: ids and places are whole numbers."""
        if isinstance(self.input_shape, dict) and "x_shape" in self.input_shape:
            whole = ("source_shape", "input_ids_shape")
            return {n: "int32" if n in whole else "float32" for n in self.input_shape}
        return "int32" if self.of_ids else None

    @property
    def x_shape(self) -> tuple:
        return self.input_shape["x_shape"] if isinstance(self.dtype, dict) else self.input_shape


BLOCK = {"num_heads": 3, "mlp_dim": 8}
RATES = {"dropout_rate": 0.5, "attention_dropout_rate": 0.5, "stochastic_depth_rate": 0.5}
CASES = {
    "AddDynamicPositions": Case(
        {"positions": layers.AddPositionEmbs(), "grid": (1, 2), "patch_size": 2},
        *({"x_shape": TOKENS, "images_shape": (2, 4, 6, 3)}, TOKENS, 1),
        trains=False,
    ),
    "AddPositionEmbs": Case({}, TOKENS, TOKENS, 1),
    "AddPositionEmbs2D": Case({"grid": GRID}, TOKENS, TOKENS, 2),
    "AddSinCosPositions": Case({"grid": GRID}, TOKENS, TOKENS),
    "BottleneckUnit": Case({"filters": 32}, MAP, (2, 4, 6, 128), 12, UNIT),
    "ClassToken": Case({}, TOKENS, (2, 7, 12), 1),
    "CorruptTokens": Case({}, MASKED, TOKENS, 1, trains=False),
    "DropClassToken": Case({"keep": 3}, TOKENS, (2, 3, 12)),
    "EncoderBlock": Case({**BLOCK, **RATES}, TOKENS, TOKENS, 16, ATTENTION + MLP, seeds=6),
    "FeatureAdapter": Case({"mlp_dim": 8}, (2, 12), (2, 12), 2, 2 * 12 * 8),
    "LayerScale": Case({"initial_value": 0.1}, TOKENS, TOKENS, 1),
    "GroupNorm": Case({"groups": 8}, MAP, MAP, 2),
    "MAPHead": Case(BLOCK, TOKENS, (2, 12), 15, (2 + 2 * 6) * 12 * 12 + 2 * 6 * 12 + MLP // 6),
    "MlpBlock": Case({"mlp_dim": 8, "dropout_rate": 0.5}, TOKENS, TOKENS, 4, MLP, seeds=2),
    "MultiHeadDotProductAttention": Case({"num_heads": 3}, TOKENS, TOKENS, 8, ATTENTION),
    "MultiHeadSelfAttention": Case(
        {"num_heads": 3}, TOKENS, (TOKENS, (2, 3, 6, 6)), 8, trains=False
    ),
    "PatchBoxes": Case({"grid": GRID}, (2, 6, 4), (2, 6, 4)),
    "PatchDropout": Case({"keep_rate": 0.5}, TOKENS, TOKENS, seeds=1),
    "PatchEmbedding": Case(
        {"hidden_size": 12, "patch_size": (2, 3)}, (2, 4, 6, 5), (2, 4, 12), 2, 4 * 2 * 3 * 5 * 12
    ),
    "PatchMap": Case({"grid": (1, 5)}, TOKENS, (2, 1, 5, 12)),
    "PreActivationUnit": Case({"filters": 32}, MAP, (2, 4, 6, 128), 10, UNIT),
    "PrototypeHead": Case(
        {"num_prototypes": 9, "hidden_size": 8, "bottleneck_size": 5},
        *((2, 12), (2, 9), 7, 12 * 8 + 8 * 8 + 8 * 5 + 5 * 9),
    ),
    "RegisterTokens": Case({"num_registers": 2, "after": 1}, TOKENS, (2, 8, 12), 1),
    "RelativeBias2D": Case({"grid": GRID}, (2, 6, 3, 4), (3, 6, 6), 1, trains=False),
    "RelativeLogits": Case({}, (2, 6, 3, 4), (2, 3, 6, 6), 1, 6 * 6 * 12),
    "ResNetInput": Case({"total_stride": 2}, MAP, MAP),
    "ResNetStage": Case({"num_units": 1, "filters": 32}, MAP, (2, 4, 6, 128), 12, UNIT),
    "RestoreTokens": Case({"visible": 6}, MASKED, TOKENS, 1, trains=False),
    "RootBlock": Case({"filters": 8}, (2, 8, 9, 3), (2, 2, 3, 8), 1, 4 * 5 * 7 * 7 * 3 * 8),
    "RotaryPositions": Case({"grid": GRID}, (2, 6, 3, 4), (2, 6, 3, 4)),
    "StdConv": Case(
        {"filters": 5, "kernel_size": 3, "strides": 2}, MAP, (2, 2, 3, 5), 1, 6 * 9 * 32 * 5
    ),
    "SwiGLU": Case(
        {"mlp_dim": 8, "dropout_rate": 0.5, "norm": "layer"},
        *(TOKENS, TOKENS, 8, 3 * MLP // 2),
        seeds=2,
    ),
    "TakeClassToken": Case({"index": 1}, TOKENS, (2, 12)),
    "TakeToken": Case({"pooling": "end", "end_id": 1}, IDS, (2, 12), trains=False),
    "TakeVisible": Case({"visible": 3}, MASKED, (2, 3, 12), trains=False),
    "TextEmbedding": Case(
        {"vocab_size": 50, "context_length": 7, "hidden_size": 12},
        *((2, 6), TOKENS, 2),
        trains=False,
        of_ids=True,
    ),
    "TextMask": Case({"causal": True}, (2, 6), (2, 6, 6), trains=False, of_ids=True),
    "TransformerBlock": Case(
        {**BLOCK, "dropout": 0.5},
        *(TOKENS, (TOKENS, (2, 3, 6, 6)), 16),
        seeds=3,
        trains=False,
    ),
    "WithAttentionWeights": Case(
        {"block": layers.EncoderBlock(**BLOCK)},
        *(TOKENS, (TOKENS, (2, 3, 6, 6)), 16, ATTENTION + MLP),
        trains=False,
    ),
}


OTHERS = {
    common.LayerNormalization: Case({"epsilon": 1e-6}, TOKENS, TOKENS, 2),
    common.Dropout: Case({"rate": 0.5}, TOKENS, TOKENS, seeds=1),
    serving.MergingBlock: Case({**BLOCK, "merged": 2}, TOKENS, ((2, 4, 12), (2, 4, 1)), 16),
    text.PairLogits: Case(
        {"logit_scale": 1.0, "logit_bias": 0.5},
        *({"x_shape": (2, 6), "texts_shape": (2, 6)}, (2, 2), 2),
        trains=False,
    ),
}
# Its first argument is a model, and views of two sizes are its inputs; runs train it.
LEFT_OUT = {"SelfDistillation"}


def registered_layers():
    """All layers that importing every module of the package registers, `{name: class}`."""
    for module in pkgutil.walk_packages(vit_keras.__path__, "vit_keras."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    classes = keras.saving.get_custom_objects().items()
    return {
        name.removeprefix("vit_keras>"): kind
        for name, kind in classes
        if name.startswith("vit_keras>")
        and isinstance(kind, type)
        and issubclass(kind, keras.layers.Layer)
        and not issubclass(kind, keras.Model)
    }


@pytest.mark.once
def test_every_layer_has_a_case():
    assert {*registered_layers()} == {*CASES, *(kind.__name__ for kind in OTHERS)} | LEFT_OUT
    assert {*layers.__all__, *layers.OF_VERSION_0} - {*CASES} == {"BlockOptions", "Rope"}


AT_NIGHT = pytest.mark.nightly_on("jax")  # which compiles each operation of each layer by itself


@pytest.mark.parametrize("kind", [*CASES, *(pytest.param(kind, marks=AT_NIGHT) for kind in OTHERS)])
def test_a_layer_keeps_the_contract_of_keras(kind):
    if isinstance(kind, str):
        check_contract(getattr(layers, kind), CASES[kind])
    else:
        check_contract(kind, OTHERS[kind])


@pytest.mark.on("torch")
@pytest.mark.parametrize("name", CASES)
def test_layer_costs_what_was_counted_by_hand_and_is_saved_with_a_policy_object(name):
    """Keras refuses to save a layer that leaves `get_config` to it and gets such an object."""
    kind = getattr(layers, name)
    if name not in layers.OF_VERSION_0:  # whose models are counted once they are upgraded
        check_cost(kind, CASES[name])
    layer = kind(**CASES[name].arguments, dtype=keras.DTypePolicy("mixed_bfloat16"))
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert again.get_config() == layer.get_config()
    assert again.compute_dtype == "bfloat16"


def check_contract(kind, case):
    """Runs Keras' test of the layer class `kind`."""
    harness = testing.TestCase()
    try:
        harness.run_layer_test(
            kind,
            case.arguments,
            input_shape=case.input_shape,
            input_dtype=case.dtype,
            expected_output_shape=case.output_shape,
            expected_num_trainable_weights=case.weights,
            expected_num_non_trainable_weights=0,
            expected_num_seed_generators=case.seeds,
            run_training_check=case.trains,
            # JAX compiles each operation again for it, and torch has no float16 on CPUs.
            run_mixed_precision_check=keras.backend.backend() == "tensorflow",
        )
    finally:
        harness.doCleanups()


def check_cost(kind, case):
    """Compares the layer's cost rule with the count in its case."""
    layer = kind(**case.arguments)
    if isinstance(case.dtype, dict):
        layer.build(**case.input_shape)
    else:
        layer.build(case.input_shape)
    products = inspection.count(layer, case.x_shape, inspection.Convention())
    assert sum(macs for macs, _ in products) == case.macs
