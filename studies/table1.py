"""Table 1: the variants of the Vision Transformer, built and counted."""

import functools

from studies import plots
from studies.results import Column, Result, published, rows_of
from vit_keras import inspection, variants
from vit_keras.layers import EncoderBlock

COLUMNS = (
    *(Column("variant"), Column("layers", "d"), Column("hidden D", "d"), Column("MLP", "d")),
    *(Column("heads", "d"), Column("ours: parameters", ",d"), Column("paper: millions", "d")),
    *(Column("published code: parameters", ",d"), Column("ours / paper", ".3f")),
)


def run(lab) -> Result:
    """Counts parameters at 224 pixels and 1000 classes, and reads dimensions off the layers."""
    rows = [_row(name) for name in dict.fromkeys([*_dimensions(), *_published_counts()])]
    millions = [(row[6] * 1e6, row[5]) for row in rows if row[6]]
    exact = [(row[7], row[5]) for row in rows if row[7]]
    equal = sum(paper == ours for paper, ours in exact)
    furthest = max(abs(ours / paper - 1) for paper, ours in millions)
    finding = (
        f"{equal} of {len(exact)} parameter counts equal those of the published code. They differ "
        f"from the paper's rounded millions by at most {100 * furthest:.1f} %."
    )
    points = {"paper, millions": millions, "published code": exact}
    draw = functools.partial(plots.parity, points, " (parameters)")
    return Result("table1", COLUMNS, rows, draw, finding)


def _dimensions():
    return {row["variant"]: row for row in rows_of("table1")}


def _published_counts():
    return published("table1")["counts"]


def _row(name):
    model = inspection.abstract_model(name, image_size=224, num_classes=1000)
    blocks = [layer for layer in model.layers if isinstance(layer, EncoderBlock)]
    width, row = model.get_layer("encoder_norm").output.shape[-1], variants.architecture(name)
    ours, paper = model.count_params(), _dimensions().get(name, {})
    heads = row["num_heads"]
    sizes = {"layers": len(blocks), "hidden": width, "mlp": row["mlp_dim"], "heads": heads}
    for size, value in sizes.items():
        if paper and paper[size] != value:
            raise ValueError(
                f"{name} must have the paper's {size}, {paper[size]}. Received: {value}"
            )
    millions = paper.get("params_millions")
    share = ours / (1e6 * millions) if millions else None
    return [name, *sizes.values(), ours, millions, _published_counts().get(name), share]
