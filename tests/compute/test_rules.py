"""Cost rules: every layer has one, and models of every kind cost what formulas say."""

import functools
import itertools
import math

import keras
import pytest

from vit_keras import inspection
from vit_keras.models import HybridViT, VisionTransformer
from vit_keras.models.vit import CLASSIFIERS, POSITION_EMBEDDINGS

pytestmark = pytest.mark.once

WIDTH, DEPTH, HEADS, MLP_DIM, CLASSES = 24, 2, 3, 40, 5
SIZES = {"hidden_size": WIDTH, "num_layers": DEPTH, "num_heads": HEADS, "mlp_dim": MLP_DIM}
SIZES |= {"num_classes": CLASSES}
IMAGE, PATCH, ROOT = (16, 24), 4, 32
GRID = (IMAGE[0] // PATCH, IMAGE[1] // PATCH)
PATCHES = math.prod(GRID)
# The products of each stem, as (places, multiply-adds at a place, elements at a place).
STAGE_PRODUCTS = [
    (math.prod(IMAGE) // 4, 7 * 7 * 3 * ROOT, ROOT),  # the root
    (PATCHES, ROOT * ROOT, ROOT),  # on a map of 4 x 6 places
    (PATCHES, 3 * 3 * ROOT * ROOT, ROOT),
    (PATCHES, ROOT * 4 * ROOT, 4 * ROOT),
    (PATCHES, ROOT * 4 * ROOT, 4 * ROOT),  # the projection of the shortcut
]
STEMS = {
    "patches": (
        lambda **arguments: VisionTransformer(IMAGE, PATCH, **arguments),
        [(PATCHES, PATCH**2 * 3 * WIDTH, WIDTH)],
    ),
    "stage": (
        lambda **arguments: HybridViT(IMAGE, (1,), 0.5, 1, **arguments),
        [*STAGE_PRODUCTS, (PATCHES, 4 * ROOT * WIDTH, WIDTH)],
    ),
}
ADDED = {"learned", "learned_2d", "sincos2d"}
PLACEMENTS = [
    (kind, place)
    for kind, place in itertools.product(POSITION_EMBEDDINGS, ("stem", "every", "shared"))
    if place == "stem" or kind in ADDED
]


def attention_products(queries, keys):
    """q, k, v and out, then q kᵀ and the weighted sum of v."""
    return [
        *[(queries, WIDTH * WIDTH, WIDTH)] * 2,
        *[(keys, WIDTH * WIDTH, WIDTH)] * 2,
        (queries * keys, WIDTH, HEADS),
        (queries, keys * WIDTH, WIDTH),
    ]


def mlp_products(tokens):
    return [(tokens, WIDTH * MLP_DIM, MLP_DIM), (tokens, MLP_DIM * WIDTH, WIDTH)]


def expected_costs(stem, kind, classifier):
    """Multiply-adds and activations, written from Eq. 1-4 and Appendix D.4."""
    tokens = PATCHES + {"token": 1, "token_gap": 1, "distilled": 2}.get(classifier, 0)
    block = attention_products(tokens, tokens) + mlp_products(tokens)
    if kind == "relative":
        block.append((tokens * tokens, WIDTH, HEADS))
    products = STEMS[stem][1] + DEPTH * block
    if classifier == "map":
        products += attention_products(1, tokens) + mlp_products(1)
    heads, read = 2 if classifier == "distilled" else 1, 2 if classifier == "token_gap" else 1
    products.append((heads, read * WIDTH * CLASSES, CLASSES))
    return tuple(sum(places * each[i] for places, *each in products) for i in (0, 1))


@pytest.mark.parametrize(("kind", "place"), PLACEMENTS)
def test_every_position_embedding_classifier_and_stem_costs_what_the_formula_says(kind, place):
    positions = {"position_embedding": kind, "position_embedding_at": place}
    stems = STEMS if (kind, place) == ("learned", "stem") else ["patches"]
    for stem, classifier in itertools.product(stems, CLASSIFIERS):
        if kind.endswith("relative_2d") and classifier == "distilled":
            continue  # its tables know one token before the patches
        arguments = {**SIZES, **positions, "classifier": classifier}
        model = inspection.abstract_model(functools.partial(STEMS[stem][0], **arguments))
        costs = inspection.flops(model)
        expected = expected_costs(stem, kind, classifier)
        assert (costs.macs, costs.activations) == expected, (stem, classifier)
        assert costs.params == model.count_params(), (stem, classifier)


def test_every_registered_layer_has_a_cost_rule():
    for kind in keras.saving.get_custom_objects().values():
        if kind.__module__.startswith("vit_keras.layers.") and issubclass(kind, keras.Layer):
            assert {*kind.__mro__} & {*inspection.RULES}, (
                f"{kind.__name__} has no cost rule. Add one to vit_keras.inspection.RULES; "
                "CONTRIBUTING.md shows how, under 'A new layer'."
            )
