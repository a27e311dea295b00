"""The frozen layers of a model and the layers after them compute what the model computes."""

import numpy as np
import pytest

from tests.helpers import assert_close, randomize, to_numpy, weights_by_path
from vit_keras.models import VisionTransformer, split_frozen
from vit_keras.training.optimizers import freeze

pytestmark = pytest.mark.on("torch")

SIZES = (12, 4, 8, 2, 2, 16, 3)
BELOW = ("embedding", "posembed_input", "encoderblock_*")
CASES = {  # the arguments, the layers that are frozen, the shape of features, those that train
    "head": ({}, ["[!h]*"], (8,), ["head"]),
    "pre-logits": (
        {"classifier": "gap", "representation_size": 6},
        [*BELOW, "encoder_norm"],
        (8,),
        ["pre_logits", "head"],
    ),
    "pool": ({"classifier": "map"}, [*BELOW, "encoder_norm"], (9, 8), ["MAPHead_0", "head"]),
    "last block": (
        {"position_embedding_at": "every"},
        ["embedding", "cls", "posembed_*", "encoderblock_0", "encoder_norm"],
        (10, 8),
        ["encoderblock_1", "head"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_features_and_head_give_the_logits_of_the_model(case, rng):
    arguments, patterns, shape, trained = CASES[case]
    model = randomize(VisionTransformer(*SIZES, **arguments), rng)
    freeze(model, patterns)
    model.class_names = ["a", "b", "c"]
    backbone, head = split_frozen(model)
    images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
    features = to_numpy(backbone(images))
    assert features.shape == (2, *shape)
    assert_close(head(features), model(images))
    names = {variable.path.split("/")[0] for variable in head.trainable_variables}
    assert names == set(trained) and head.class_names == ["a", "b", "c"]
    assert not backbone.trainable_variables
    # The head has copies of the weights, so that the model stays as it is.
    before = weights_by_path(model)
    randomize(head, rng)
    for name, value in weights_by_path(model).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)


def test_what_cannot_be_split_is_named():
    whole = VisionTransformer(*SIZES)
    with pytest.raises(ValueError, match="must be frozen.*where 'embedding' trains. Set optim"):
        split_frozen(whole)
    whole.trainable = False
    with pytest.raises(ValueError, match="where no layer trains"):
        split_frozen(whole)
    shared = VisionTransformer(*SIZES, position_embedding_at="shared")
    freeze(shared, ["embedding", "cls", "encoderblock_*", "encoder_norm"])
    with pytest.raises(ValueError, match="each layer must follow the one before. Received: 'encod"):
        split_frozen(shared)
