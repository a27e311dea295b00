"""Draws the pictures of docs/inspection.md and docs/data.md.

    python examples/shapes_with_masks.py shapes
    vit-keras train --config segment --dataset folder:shapes --model.patch_size 4 \
        --model.classifier token --model.hidden_size 64 --model.num_heads 4 --model.mlp_dim 256 \
        --total_steps 1000 --workdir runs/shapes
    python -m tools.pictures runs/shapes

It writes features.png, position_similarity.png and patch_attention.png into docs/inspection, and
docs/augmentation.jpg, and prints how much of their attention patches give to shapes.
"""

import argparse
import pathlib

import numpy as np

import vit_keras
from vit_keras import data, inspection, models, runs
from vit_keras.config import AugmentConfig
from vit_keras.support.figures import new_figure, save_figure

DOCS = pathlib.Path(__file__).parents[1] / "docs"
COUNT, SHOWN = 100, 5  # test pictures that are measured, and drawn
BLOCK = 1  # whose attention is drawn: the second one
SIDE = 112  # pixels of a photograph on the sheet
SHEET = {  # a column each: draws of one photograph
    "flip": {"flip": True},
    "rotate, scale, shift": {"rotation_degrees": 20, "scale": 0.2, "shift": 0.1},
    "inception crop": {"crop": "inception"},
    "RandAugment": {"randaugment_layers": 2, "randaugment_magnitude": 15},
    "color jitter": {"color_jitter": 0.6},
    "erasing": {"erasing": 1.0},
    "MixUp": {"mixup_alpha": 1.0},
    "CutMix": {"cutmix_alpha": 1.0},
}


def read_test(model, run):
    """Reads test images `(COUNT, H, W, C)` as the model takes them, and masks `(COUNT, H, W)`."""
    config = run.config
    dataset = data.load(config.dataset, config.model.channels, config.data, config.task)
    *_, test = data.train_dev_test(dataset, config.data)
    options = {"image_size": model.input_shape[1:3], "preprocessing": model.preprocessing}
    images, masks = next(iter(data.eval_batches(test, batch=COUNT, **options)))
    return images, masks


def shares_of_shapes(masks, grid):
    """The share of each patch that a shape covers: `(B, N)` in [0, 1]."""
    rows, columns = grid
    count, height, width = masks.shape
    cells = (masks > 0).reshape(count, rows, height // rows, columns, width // columns)
    return cells.mean(axis=(2, 4)).reshape(count, -1)


def patch_attention(model, images):
    """The attention of patches to patches in `BLOCK`, the mean over heads: `(B, N, N)`."""
    attention = models.attention_maps(model).predict(images, verbose=0)[:, BLOCK].mean(axis=1)
    patches = np.prod(models.patch_grid(model))
    attention = attention[:, -patches:, -patches:]
    return attention / attention.sum(axis=-1, keepdims=True)


def print_shares(attention, shapes):
    """Prints the mean attention to shapes, from patches on shapes and from others."""
    to_shapes = np.einsum("bqk,bk->bq", attention, shapes)
    print(f"shapes cover {shapes.mean():.1%} of {len(shapes)} pictures")
    for name, chosen in (("on shapes", shapes > 0.9), ("elsewhere", shapes < 0.1)):
        print(f"patches {name} give {to_shapes[chosen].mean():.1%} of their attention to shapes")


def draw_patch_attention(pictures, attention, shapes, grid, path):
    """Draws pictures with two patches, and below them where these look."""
    figure, axes = new_figure(1.1 * len(pictures) + 0.9, 3.7, 3, len(pictures))
    figure.set_layout_engine("compressed")
    names = ("picture", "from the patch\non a shape", "from the patch\nbeside shapes")
    for axis, name in zip(axes[:, 0], names):
        axis.set_ylabel(name, fontsize=8)
    step = np.divide(pictures.shape[1:3], grid)
    for column, picture, weights, covered in zip(axes.T, pictures, attention, shapes):
        column[0].imshow(picture)
        for axis, query, color in zip(column[1:], middle_patches(covered, grid), ("w", "c")):
            axis.imshow(weights[query].reshape(grid), cmap="magma", vmin=0)
            row, at = np.unravel_index(query, grid)
            axis.plot(at, row, "s", mec=color, mfc="none", ms=5)
            place = (at + 0.5) * step[1], (row + 0.5) * step[0]
            column[0].plot(*place, "s", mec=color, mfc="none", ms=5)
    for axis in axes.flat:
        axis.set(xticks=(), yticks=())
        axis.spines[:].set_visible(False)
    save_figure(figure, path)


def middle_patches(covered, grid):
    """The patch nearest to the middle of the shapes, and the one that is farthest from it."""
    places = np.stack(np.unravel_index(np.arange(covered.size), grid), axis=-1)
    distance = np.linalg.norm(places - np.average(places, axis=0, weights=covered), axis=-1)
    on, off = covered > 0.9, covered < 0.1
    return np.where(on, distance, np.inf).argmin(), np.where(off, distance, -np.inf).argmax()


def draw_views(run_folder, out):
    """Draws what the model of a run sees in test pictures."""
    model, run = vit_keras.open(run_folder), runs.run_of(run_folder)
    images, masks = read_test(model, run)
    pictures = data.pixels_of(images, model.preprocessing)
    shown = pictures[:SHOWN].astype("float32")
    subject = inspection.Subject(model, images, shown, [""] * SHOWN)
    inspection.draw_views(subject, out, ["features", "position_similarity"])
    reduce_colors(out / "position_similarity.png")
    grid = models.patch_grid(model)
    attention, shapes = patch_attention(model, images), shares_of_shapes(masks, grid)
    print_shares(attention, shapes)
    drawn = pictures[:SHOWN], attention, shapes, grid
    draw_patch_attention(*drawn, out / "patch_attention.png")


def photographs():
    """The middle squares of the two photographs of scikit-learn: `(2, H, H, 3)` uint8."""
    from sklearn.datasets import load_sample_images

    images = np.stack(load_sample_images().images)
    left = (images.shape[2] - images.shape[1]) // 2
    return images[:, :, left : left + images.shape[1]]


def augmented(split, config, count):
    """Yields the first photograph, changed `count` times."""
    options = {"image_size": (SIDE, SIDE), "preprocessing": models.Preprocessing(), "batch": 2}
    options |= {"seed": 0, "start_step": 0, "total_steps": count, "num_classes": 2}
    for images, targets in data.train_batches(split, augment_config=config, **options):
        yield np.asarray(images)[np.argmax(np.asarray(targets)[:, 0])]


def draw_augmentation(path, rows=3, columns=4):
    """Draws a sheet with a part of a column for each kind of augmentation in `SHEET`."""
    split, lines = data.from_arrays(photographs(), [0, 1]), rows * -(-len(SHEET) // columns)
    figure, axes = new_figure(1.1 * columns, 1.1 * lines + 0.5, lines, columns)
    for number, (name, fields) in enumerate(SHEET.items()):
        first = number // columns * rows
        column = axes[first : first + rows, number % columns]
        column[0].set_title(name, fontsize=8)
        for axis, image in zip(column, augmented(split, AugmentConfig(**fields), rows)):
            axis.imshow(data.pixels_of(image, models.Preprocessing()))
            axis.axis("off")
    figure.savefig(path, dpi=140, pil_kwargs={"quality": 80})


def reduce_colors(path):
    """Keeps 256 colors, which takes a third of the bytes."""
    from PIL import Image

    Image.open(path).convert("RGB").quantize(256).save(path, optimize=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="the folder of a run that learned masks")
    parser.add_argument("--out", type=pathlib.Path, default=DOCS, help="folder (docs)")
    options = parser.parse_args(arguments)
    (options.out / "inspection").mkdir(parents=True, exist_ok=True)
    draw_views(options.run, options.out / "inspection")
    draw_augmentation(options.out / "augmentation.jpg")


if __name__ == "__main__":
    main()
