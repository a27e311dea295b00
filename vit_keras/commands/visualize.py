"""Draw what a model has learned: filters, positions, attention, features.

examples:
  vit-keras visualize runs/digits --out figures
  vit-keras visualize runs/photos a.jpg --class cat --views class_relevance --out figures
  vit-keras visualize ViT-B_16.npz cat.jpg dog.jpg --out figures --views attention_rollout
"""

import pathlib
from typing import Any

import numpy as np

from vit_keras import data, evaluation, inspection, models, weights
from vit_keras.commands import options as shared
from vit_keras.support.checks import listed
from vit_keras.support.command_line import UsageError


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("model", "MODEL", "run, or checkpoint of any format")
    add("images", "IMAGE", "pictures (those of the data set)", nargs="*")
    add("--out", "PATH", "folder of the figures and arrays", shared.folder, required=True)
    shared.add_dataset(add)
    add("--count", "N", "images to read", shared.count, 128)
    add("--show", "N", "images to draw", shared.count, 10)
    add("--views", "VIEW", "figures to draw (all)", nargs="+")
    shared.add_image_size(add)
    add("--class", "NAME", "class whose relevance is drawn (the likeliest)", dest="of_class")
    add("--heads", None, "mean or max over heads in the rollout", default="mean")


def run(options: shared.Options) -> None:
    from vit_keras import runs
    from vit_keras.data.depth import to_levels, viewable
    from vit_keras.support.files import replacing

    trained, model = runs.run_of(options.model), weights.open(options.model)
    if size := shared.image_size(options):
        model = models.with_image_size(model, size)
    views = inspection.views_of(model, options.views)
    if None in model.input_shape[1:]:
        raise UsageError(f"{options.model} takes images of any size, so give --image_size")
    preprocessing = models.preprocessing_of(model)
    pictures = _pictures(options, trained, model.input_shape[1:], preprocessing)
    images = preprocessing.normalize(pictures.astype("float32"))

    shown = slice(options.show)
    shown_pictures = viewable(to_levels(pictures[shown], preprocessing.levels))
    paths = options.images or map(str, range(len(images)))
    titles = [pathlib.Path(path).stem for path in paths][shown]
    if (names := model.class_names) and models.task_of(model).kind in ("classes", "labels"):
        rows = evaluation.probabilities(model, images[shown])
        titles = [f"{names[row.argmax()]}  {100 * row.max():.0f}\u00a0%" for row in rows]
    name, _ = shared.dataset_of(options, trained)
    source = "" if options.images else shared.dataset_label(name or "")
    known, index = models.class_names_of(model), None
    if options.of_class is not None:
        if options.of_class not in known:
            received = f"Received: {options.of_class!r}"
            raise UsageError(f"`--class` must be one of {listed(known, 20)}. {received}")
        index = known.index(options.of_class)
    heads, out = options.heads, pathlib.Path(options.out)
    subject = inspection.Subject(model, images, shown_pictures, titles, heads, source, index)
    drawn = inspection.draw_views(subject, out, views)
    arrays: dict[str, Any] = {f"{view}/{k}": x for view in drawn for k, x in drawn[view].items()}
    with replacing(out / "arrays.npz") as path:
        np.savez(path, **arrays)

    print("{}: {} images of {}x{} pixels".format(source or "pictures", *images.shape[:3]))
    print(*(out / f"{view}.png" for view in drawn), out / "arrays.npz", sep="\n")


def _pictures(options, trained, shape, preprocessing):
    """Returns images `(N, H, W, C)` of `shape`: the given files, or images of the data set."""
    if options.images:
        depth = {"levels": preprocessing.levels, "bands": preprocessing.bands}
        pictures = (data.read_image(path, shape[-1], **depth) for path in options.images)
    else:
        name, source = shared.dataset_of(options, trained)
        if name is None:
            raise UsageError(f"{options.model} is not a run, so give pictures or a --dataset")
        split = data.load(name, shape[-1], source).split(source.test_split)
        split = split.read_as(preprocessing.levels, preprocessing.bands)
        pictures = (split.read(i) for i in range(min(options.count, len(split))))
    return np.stack([data.resize(picture, shape[:2], preprocessing) for picture in pictures])
