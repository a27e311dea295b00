"""The manifest as a page for a reader: `model_card.md`."""

import keras

from vit_keras.models import preprocessing_of

GRAY = " Pictures in color first become gray, as (299 R + 587 G + 114 B) / 1000."
NOT_MEDIAPIPE = " MediaPipe takes models of pictures in color alone; LiteRT opens the TFLite files."
MEDIAPIPE = (
    " MediaPipe resizes without averages and crops nothing: give it pictures of {}x{} pixels."
)


def card(model: keras.Model, manifest: dict) -> str:
    """A Markdown page about the files: input, output, how they were compared, and a table."""
    lines = [
        f"# {model.name}",
        "",
        f"{model.count_params():,} parameters. {_input(model, manifest)} {_output(manifest)}",
        "",
        _reference(manifest["reference"]),
        "",
        "| file | bytes | largest difference of a logit | same class | accuracy | ms, 1 thread |",
        "|---|--:|--:|--:|--:|--:|",
        *(_line(row) for row in manifest["files"]),
        "",
    ]
    return "\n".join(lines)


def _input(model, manifest):
    source, preprocessing = manifest["input"], preprocessing_of(model)
    height, width, channels = source["shape"]
    pixels = "pixels from 0 to 255, which the graph rescales"
    if not source["preprocessing_is_inside"]:
        pixels = f"(pixel / 255 - {list(preprocessing.mean)}) / {list(preprocessing.std)}"
    crop = preprocessing.crop_fraction
    fit = "are resized to it"
    if crop is not None:
        fit = f"are cropped to a square of {crop} of their shorter side, then resized"
    return (
        f"The input is `(N, {height}, {width}, {channels})` {source['type']}: {pixels}. "
        f"Pictures of another size {fit} ({preprocessing.interpolation})."
        + _colors(manifest, height, width, channels)
    )


def _colors(manifest, height, width, channels):
    gray, files = channels == 1, [row["file"] for row in manifest["files"]]
    clients = NOT_MEDIAPIPE if gray else MEDIAPIPE.format(height, width)
    has_tflite = any(name.endswith(".tflite") for name in files)
    return (GRAY if gray else "") + (clients if has_tflite else "")


def _output(manifest):
    if manifest["output"] == "features":
        return "The output is features."
    return f"The output is {manifest['output']}, with the classes in the order of `labels.txt`."


def _reference(reference):
    compared = (
        f"The files were compared with Keras on {reference['backend']} on "
        f"{reference['images']} images ({reference['source']})"
    )
    if "accuracy" not in reference:
        return f"{compared}."
    return f"{compared}, where Keras has an accuracy of {100 * reference['accuracy']:.2f} %."


def _line(row):
    show = lambda value, form: "" if value is None else form.format(value)
    numbers = [
        f"{row['bytes']:,}",
        show(row.get("largest_difference"), "{:.1e}"),
        show(row.get("agreement"), "{:.2%}"),
        show(row.get("accuracy"), "{:.2%}"),
        show(row.get("latency_ms", {}).get("1"), "{:.2f}"),
    ]
    return f"| {row['file']} | {' | '.join(numbers)} |"
