"""Compares what a few pictures a class add to a classifier made of words.

    python examples/captions.py captions --seed 0
    KERAS_BACKEND=torch python -m benchmarks.few_shot_words captions --seed 0 --out few_shot

The classes are the combinations on which `examples/captions.py` did not train its towers, in
pictures of a quarter of the contrast. Each row is one way to use the pictures of a class: none, a
new head (linear probe), a head that starts from the texts, and an adapter before the texts.
"""

import argparse
import json
import pathlib

import numpy as np
from PIL import Image

from examples import captions
from vit_keras import commands, config, experiments, weights

SHOTS, TESTS = (1, 2, 4, 8, 16), 20  # pictures of a class
SHARED = {
    "total_steps": 500,
    "eval_every": 500,
    "checkpoint_every": 500,
    "cache_features": "true",
    "optimizer.warmup_fraction": 0.1,
}
HEAD, ADAPTER = '["[!h]*"]', '["[!a]*"]'  # all layers but these
WAYS = {  # rates that did best on other towers
    "linear probe": {"optimizer.freeze": HEAD, "optimizer.learning_rate": 0.1},
    "head from texts": {"optimizer.freeze": HEAD, "optimizer.learning_rate": 0.3},
    "adapter": {"optimizer.freeze": ADAPTER, "optimizer.learning_rate": 0.01},
}


def draw(place, shots, rows, seed):
    """Draws pictures of a quarter of the contrast into a folder a class."""
    for split, count in (("train", shots), ("test", TESTS)):
        rng = np.random.default_rng([seed, split == "test"])
        for i, row in ((i, row) for i in range(count) for row in rows):
            folder = place / split / captions.caption(*row)
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(captions.draw(row, rng) // 4 + 96).save(folder / f"{i}.png")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("captions", type=pathlib.Path, help="the folder of examples/captions.py")
    parser.add_argument("--seed", type=int, default=0, help="its seed (0)")
    parser.add_argument("--shots", type=int, nargs="+", default=SHOTS)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder to make")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True)
    towers, labels = options.captions / "model", options.out / "labels.npz"
    order = np.random.default_rng(options.seed).permutation(len(captions.COMBINATIONS))
    rows = [captions.COMBINATIONS[i] for i in order[: len(order) // 5]]
    names = sorted(captions.caption(*row) for row in rows)  # the order of the folders
    texts = weights.embed_labels(towers, names)
    weights.write_text_embeddings(labels, texts)
    table = {way: {} for way in ("zero-shot", *WAYS)}
    for shots in options.shots:
        photos = options.out / f"shots_{shots}"
        draw(photos, shots, rows, options.seed)
        if not table["zero-shot"]:
            arguments = ["--labels", str(labels), "--dataset", f"folder:{photos}"]
            commands.run(["evaluate", str(towers), *arguments, "--out", str(options.out)])
            report = json.loads((options.out / "report.json").read_text())
            table["zero-shot"][0] = report["accuracy"]
        for way, fields in WAYS.items():
            of_texts = {"model.labels": labels} if way != "linear probe" else {}
            of_texts |= {"model.adapter_dim": 2 * captions.WIDTH} if way == "adapter" else {}
            fields = {"seed": options.seed, "batch": min(96, shots * len(rows)), **fields}
            fields |= {"dataset": f"folder:{photos}", "model.weights": towers, **SHARED, **of_texts}
            fields["workdir"] = options.out / f"{way.replace(' ', '_')}_{shots}"
            run = config.parse_config([f"--{n}={x}" for n, x in fields.items()], default="")
            table[way][shots] = experiments.train_run(run)["accuracy"]
    for way, figures in table.items():
        print(way, *(f"{figure:.3f}" for figure in figures.values()), sep=" | ")


if __name__ == "__main__":
    main()
