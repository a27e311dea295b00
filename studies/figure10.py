"""Figure 10: similarity of position embeddings for several hyperparameters of training."""

import functools

import numpy as np

import vit_keras
from studies import plots
from studies.digits_scale import UPSTREAM_IMAGES, evaluated_once
from studies.full_scale import epochs_of
from studies.results import Column, Result, rows_of
from vit_keras import inspection
from vit_keras.inspection.measures import patch_distances

SETUP = {
    "digits": "A ViT with 4 layers and width 48 sees 64 patches of 2x2. It is pre-trained on 836 "
    "images of 7 of the digits. {half_steps} and {inspected_steps} updates stand for 7 and 14 "
    "epochs, and learning rates are 5 times the paper's.",
    "full": "",
}
COLUMNS = (
    *(Column("paper: epochs", "d"), Column("ours: epochs", ".0f")),
    *(Column("paper: learning rate", "g"), Column("ours: learning rate", "g")),
    *(Column("weight decay", "g"), Column("ours: similarity of neighbors", ".3f")),
    *(Column("ours: half the image apart", ".3f"), Column("ours: held-out accuracy (%)", ".2f")),
)


def run(lab) -> Result:
    """One row for each run, with the mean cosine similarity at two distances."""
    lab.require(["836" if lab.scale.name == "digits" else "JFT-300M"])
    rows, pictures = [], {}
    for paper in rows_of("figure10"):
        trained, epochs = _train(lab, paper)
        model = vit_keras.open(trained.folder)
        similarity = inspection.position_similarity(model)
        near, far = _means(similarity)
        rate, decay = paper["learning_rate"], paper["weight_decay"]
        ours = trained.config.optimizer.learning_rate
        rows.append(
            [paper["epochs"], epochs, rate, ours, decay, near, far, trained.accuracy_percent]
        )
        pictures[f"{epochs:.0f} epochs, rate {ours:g}, decay {decay:g}"] = similarity
    finding = " ".join(
        f"After {row[1]:.0f} epochs with a learning rate of {row[3]:g}, the similarity is "
        f"{row[5]:.2f} between neighbors and {row[6]:.2f} half the image apart."
        for row in rows
    )
    draw = functools.partial(plots.similarities, pictures)
    return Result("figure10", COLUMNS, rows, draw, finding, lab.setup(SETUP))


def _train(lab, paper):
    epochs, rate, decay = (paper[key] for key in ("epochs", "learning_rate", "weight_decay"))
    changes = {"optimizer.weight_decay": decay, "name": f"positions-{epochs}-{rate:g}-{decay:g}"}
    if lab.scale.name == "full":
        fields = {**changes, **epochs_of("JFT-300M", epochs), "optimizer.learning_rate": rate}
        return lab.pretrain("ViT-L/16", "JFT-300M", **fields), epochs
    steps = lab.scale.half_steps if epochs == 7 else lab.scale.inspected_steps
    changes |= {"optimizer.learning_rate": 5 * rate, **evaluated_once(steps)}
    trained = lab.pretrain("ViT-B/2", "836", **changes)
    return trained, trained.config.total_steps * trained.config.batch / UPSTREAM_IMAGES


def _means(similarity):
    """The mean similarity of neighboring patches, and of patches half the image apart."""
    rows, columns = similarity.shape[:2]
    distance = patch_distances((rows, columns), (rows, columns))
    flat = similarity.reshape(rows * columns, -1)
    return [float(np.mean(flat[distance == cells])) for cells in (1, rows // 2)]
