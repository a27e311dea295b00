"""Trains an image and a text tower on drawn pictures and their captions, and searches in words.

    python examples/captions.py captions --seed 0

The pictures show a shape in a color at a place, such as "a red star at the top left". A fifth of
the combinations is never trained on. The script writes both towers with their tokenizer as a folder
of transformers, captions/model, and new pictures of all combinations, captions/pictures, and prints

- how often the most similar of all pictures is one of the caption ("recall@1");
- how often the right caption is the most similar one, for combinations that were not trained on.

Then `vit-keras embed captions/model captions/pictures --layer head --out captions/clip.parquet` and
`vit-keras search "a red star at the top left" captions/clip.parquet` do the same as commands.
"""

import argparse
import itertools
import json
import pathlib
import sys

import keras
import numpy as np
from PIL import Image

from vit_keras import models, training, weights

try:
    from examples.shapes_on_photographs import OUTLINES, draw_mask, new_folder
except ImportError:  # as a script
    from shapes_on_photographs import OUTLINES, draw_mask, new_folder

SIDE, WIDTH, LENGTH = 32, 64, 12  # pixels, numbers of an embedding, tokens of a caption
SHAPES = ("circle", "square", "triangle", "star", "cross")
COLORS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}
COLORS |= {"yellow": (235, 215, 50), "white": (240, 240, 240), "pink": (240, 120, 190)}
PLACES = {"top left": (0, 0), "top right": (1, 0), "bottom left": (0, 1), "bottom right": (1, 1)}
COMBINATIONS = list(itertools.product(COLORS, SHAPES, PLACES))
SPECIAL = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
WORDS = [*SPECIAL.values(), "a", "at", "the", "top", "bottom", "left", "right", *COLORS, *SHAPES]


def caption(color, shape, place):
    return f"a {color} {shape} at the {place}"


def draw(combination, rng):
    """Draws a combination on a noisy, dark background: `(SIDE, SIDE, 3)` uint8."""
    color, shape, place = combination
    background = rng.normal(rng.uniform(0, 90, 3), 12, (SIDE, SIDE, 3))
    radius = rng.uniform(0.19, 0.25) * SIDE
    center = [SIDE * (0.26 + 0.48 * side) + rng.uniform(-1, 1) for side in PLACES[place]]
    degrees = rng.uniform(-12, 12)
    cover = draw_mask(OUTLINES[shape], center, radius, degrees, size=(SIDE, SIDE))
    cover = np.asarray(cover, "float64")[..., None] / 255
    shown = np.array(COLORS[color]) + rng.normal(0, 12, 3)
    return np.clip(background * (1 - cover) + shown * cover, 0, 255).astype("uint8")


def new_towers(seed):
    """A small CLIP whose towers start at random."""
    sizes = {"hidden_size": WIDTH, "num_layers": 4, "num_heads": 4, "mlp_dim": 2 * WIDTH}
    image = models.VisionTransformer(
        *(SIDE, 4), *sizes.values(), WIDTH, pre_norm=True, head_use_bias=False, gelu="quick",
        layer_norm_epsilon=1e-5, seed=seed,
    )  # fmt: skip
    image.preprocessing = models.Preprocessing()
    end = {"pooling": "end", "end_id": WORDS.index("</s>"), "gelu": "quick"}
    sizes["num_layers"] = 2
    text = models.TextTransformer(
        len(WORDS), LENGTH, **sizes, projection_dim=WIDTH, seed=seed, **end
    )
    return models.ImageText(models.with_unit_length(image), text, logit_scale=np.log(10))


def save(towers, folder):
    """Writes both towers and a tokenizer of whole words as a folder of transformers."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    weights.save(towers, folder, format="huggingface")
    ids = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ends = [(name, ids[name]) for name in ("<s>", "</s>")]
    single = "<s> $A </s>"
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", **SPECIAL}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return weights.TextTokenizer(folder)


def batches(trained, tokenize, preprocessing, steps, batch, rng):
    """Yields batches of combinations, each once in a batch."""
    ids, _ = tokenize([caption(*row) for row in trained])
    for _ in range(steps):
        rows = rng.permutation(len(trained))[:batch]
        pictures = np.stack([draw(trained[row], rng) for row in rows]).astype("float32")
        yield (preprocessing.normalize(pictures), ids[rows]), rows


def train(folder, seed, steps, batch):
    """Trains two towers on four fifths of the combinations; returns them and the others."""
    rng = np.random.default_rng(seed)
    order = [COMBINATIONS[i] for i in rng.permutation(len(COMBINATIONS))]
    trained, held_out = order[len(order) // 5 :], order[: len(order) // 5]
    towers = new_towers(seed)
    tokenize = save(towers, folder)
    model = models.contrastive_model(towers, seed)
    warmup = {"warmup_target": 1.5e-3, "warmup_steps": steps // 20}
    decay = keras.optimizers.schedules.CosineDecay(0.0, steps, **warmup)
    model.compile(keras.optimizers.AdamW(decay, 0.1, global_clipnorm=1.0), LOSS)
    made = batches(trained, tokenize, towers.image.preprocessing, steps, batch, rng)
    model.fit(made, steps_per_epoch=steps // 10, epochs=10, verbose=2)
    towers = models.towers_of(model)
    save(towers, folder)
    return towers, held_out


LOSS = training.ContrastiveLoss()


def evaluate(folder, towers, held_out, seed, copies):
    """Draws new pictures and compares them with all captions."""
    rng = np.random.default_rng([seed, 1])
    rows = [row for row in COMBINATIONS for _ in range(copies)]
    pictures = [draw(row, rng) for row in rows]
    for number, (row, picture) in enumerate(zip(rows, pictures)):
        path = folder / "pictures" / f"{'_'.join(row).replace(' ', '_')}_{number % copies}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(picture).save(path)
    images = towers.image.preprocessing.normalize(np.stack(pictures).astype("float32"))
    image = towers.image.predict(images, verbose=0)
    ids, _ = weights.TextTokenizer(folder / "model")([caption(*row) for row in COMBINATIONS])
    text = towers.text.predict(ids, verbose=0)
    similarity = image @ text.T  # (pictures, captions)
    right = np.arange(len(rows)) // copies
    new = np.isin(right, [COMBINATIONS.index(row) for row in held_out])
    result = {
        "recall@1 of a search": (right[similarity.argmax(axis=0)] == np.arange(text.shape[0])),
        "zero-shot on new combinations": (similarity.argmax(axis=1) == right)[new],
    }
    return {name: float(hits.mean()) for name, hits in result.items()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder to make")
    parser.add_argument("--steps", type=int, default=600, help="updates (600)")
    parser.add_argument("--batch", type=int, default=64, help="pictures of an update (64)")
    parser.add_argument("--copies", type=int, default=5, help="new pictures of each caption (5)")
    parser.add_argument("--seed", type=int, default=0, help="decides everything random (0)")
    options = parser.parse_args(arguments)
    with new_folder(options.folder, parser) as new:
        towers, held_out = train(new / "model", options.seed, options.steps, options.batch)
        result = evaluate(new, towers, held_out, options.seed, options.copies)
    for name, value in result.items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    sys.exit(main())
