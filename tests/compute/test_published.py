"""Counted costs equal the paper's Table 6 and the tables of timm and torchvision."""

import functools

import pytest

from vit_keras import inspection

pytestmark = pytest.mark.once

# Variant, epochs of JFT-300M, exaFLOPs.
TABLE_6 = """
    B/32 7 55       B/16 7 224      L/32 7 196      L/16 7 783      L/16 14 1567    H/14 14 4262
    R50x1 7 50      R50x2 7 199     R101x1 7 96     R152x1 7 141    R152x2 7 563    R152x2 14 1126
    R200x3 14 3306  R50+B/32 7 106  R50+B/16 7 274  R50+L/32 7 246  R50+L/16 7 859  R50+L/16 14 1668
"""


def test_training_costs_what_table_6_says():
    per_epoch = functools.cache(inspection.training_exaflops)
    cells = TABLE_6.split()
    for variant, *numbers in zip(cells[::3], cells[1::3], cells[2::3]):
        epochs, published = map(int, numbers)
        assert per_epoch(variant) * epochs == pytest.approx(published, rel=0.03), variant


@pytest.mark.parametrize(
    ("variant", "gmacs", "activations"),
    [  # timm's results/benchmark-infer-amp-nchw-pt113-cu117-rtx3090.csv: fvcore, norms counted
        ("B/16", 17.58, 23.90),
        ("H/14", 167.40, 139.41),
    ],
)
def test_forward_passes_cost_what_fvcore_counts(variant, gmacs, activations):
    costs = inspection.flops(variant, norms=True)
    assert round(costs.gmacs, 2) == gmacs
    assert round(costs.activations / 1e6, 2) == activations
    assert costs.flops == 2 * costs.macs == 2 * sum(row.macs for row in costs.rows)
