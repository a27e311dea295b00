"""Figure 7: filters, similarity of position embeddings, and attention distance over depth."""

import functools
import tempfile

import numpy as np

from studies import plots
from studies.figure6 import SETUP, open_subject
from studies.results import Column, Result
from vit_keras import inspection
from vit_keras.inspection.measures import patch_distances
from vit_keras.models import patch_grid

VIEWS = ("filters", "position_similarity", "attention_distance")
COLUMNS = (
    *(Column("layer", "d"), Column("ours: mean distance (pixels)", ".2f")),
    *(Column("ours: nearest head", ".2f"), Column("ours: farthest head", ".2f")),
    *(Column("uniform attention", ".2f"), Column("image side", "d")),
)


def run(lab) -> Result:
    """One row for each layer: the mean attention distance of its heads over 128 images."""
    subject, _ = open_subject(lab)
    size = subject.model.input_shape[1:3]
    even = float(patch_distances(patch_grid(subject.model), size).mean())
    distance = subject.attention.distance_px
    rows = [
        [i, *(float(f(heads)) for f in (np.mean, np.min, np.max)), even, size[1]]
        for i, heads in enumerate(distance)
    ]
    _, shares = inspection.filter_components(subject.model)
    finding = (
        f"In the first layer, the farthest head looks {rows[0][3] / even:.2f} times as far as "
        f"uniform attention, and the nearest {rows[0][2] / even:.2f} times. The mean distance is "
        f"{rows[0][1]:.1f} pixels in the first layer and {rows[-1][1]:.1f} in the last. "
        f"{len(shares)} components hold {100 * shares.sum():.0f} % of the filters' variance."
    )
    draw = functools.partial(_draw, subject)
    return Result("figure7", COLUMNS, rows, draw, finding, lab.setup(SETUP))


def _draw(subject, path):
    with tempfile.TemporaryDirectory() as folder:
        inspection.draw_views(subject, folder, VIEWS)
        plots.side_by_side([f"{folder}/{view}.png" for view in VIEWS], path)
