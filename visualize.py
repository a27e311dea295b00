"""Draws what a model has learned: `python visualize.py DIR a.png b.jpg --out figures`."""

import argparse
import os
import pathlib
import sys


def arguments(given):
    parser = argparse.ArgumentParser(prog="visualize.py", description=__doc__)
    parser.add_argument("model", help="a run's folder, or a checkpoint of any format")
    parser.add_argument("images", nargs="*", help="pictures; by default of the data set")
    parser.add_argument("--out", required=True, help="folder of the figures and arrays")
    parser.add_argument("--dataset", help="whose test images to take; by default a run's own")
    parser.add_argument("--count", type=int, default=128, help="how many of them (128)")
    parser.add_argument("--show", type=int, default=10, help="how many are drawn (10)")
    parser.add_argument("--views", nargs="+", help="figures to draw; by default all there are")
    parser.add_argument("--image-size", type=int, nargs="+", metavar="PIXELS", help="other size")
    parser.add_argument("--heads", default="mean", help="rollout: mean or max of the heads")
    return parser.parse_args(given)


def pictures_of(options, run, shape, preprocessing):
    """`(N, H, W, C)` of this shape `(H, W, C)`: the files that were named, or the data set's."""
    import numpy as np

    from vit_keras import data

    if options.images:
        found = [data.read_image(path, shape[-1]) for path in options.images]
        return np.stack([data.resize(picture, shape[:2], preprocessing) for picture in found])
    name = options.dataset or (run.config.dataset if run else None)
    if name is None:
        raise ValueError(f"{options.model} is no run, which has a data set: give images")
    return data.sample_images(name, shape, preprocessing, options.count)


def main(given=None):
    options = arguments(given)

    import numpy as np

    from vit_keras import data, evaluation, inspection, machine, models, runs
    from vit_keras.files import replacing
    from vit_keras.layers.base import check_positive

    machine.prepare()
    check_positive(count=options.count, show=options.show)
    model, run = runs.open_source(options.model)
    if options.image_size:
        size = tuple(options.image_size)
        model = models.with_image_size(model, size[0] if len(size) == 1 else size)
    views = inspection.views_of(model, options.views)

    if None in model.input_shape[1:]:
        raise ValueError(f"{options.model} takes images of any size: give an --image-size")
    preprocessing = models.preprocessing_of(model)
    pictures = pictures_of(options, run, model.input_shape[1:], preprocessing)
    images = np.asarray(data.normalise(pictures.astype("float32"), preprocessing))

    first = slice(options.show)
    titles = [pathlib.Path(path).stem for path in options.images] or range(len(images))
    titles = [str(title) for title in titles[first]]
    if names := model.class_names:
        likely = evaluation.probabilities(model, images[first])
        titles = [f"{names[row.argmax()]}  {100 * row.max():.0f} %" for row in likely]
    subject = inspection.Subject(model, images, pictures[first], titles, options.heads)
    found = inspection.draw_views(subject, options.out, views)
    arrays = {f"{view}/{key}": array for view in found for key, array in found[view].items()}
    with replacing(os.path.join(options.out, "arrays.npz")) as path:
        np.savez(path, **arrays)

    print("{}: {} images of {}x{} pixels".format(model.name, *images.shape[:3]))
    for view in found:
        print(pathlib.Path(options.out) / f"{view}.png")
    print(pathlib.Path(options.out) / "arrays.npz")


if __name__ == "__main__":
    try:
        main()
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"visualize.py: error: {error}")
