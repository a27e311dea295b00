"""Formats the manifest as a readable page, `model_card.md`."""

import keras

from vit_keras.exporting.verification import accuracy_name, agreement_text, measures
from vit_keras.models import class_names_of, preprocessing_of, task_of

GRAY = " Pictures in color first become gray, as (299 R + 587 G + 114 B) / 1000."
NOT_MEDIAPIPE = " MediaPipe takes models of pictures in color alone; LiteRT opens the TFLite files."
MEDIAPIPE = (
    " MediaPipe resizes without averages and crops nothing: give it pictures of {}x{} pixels."
)

BOX_OUTPUTS = {  # of a file that finds objects
    "boxes": "(N, T, 4): left, top, right and bottom as shares of the picture's width and height",
    "scores": "(N, T, K): the probability of each class",
}
# The shape and description of each output, given the name of one output.
OUTPUTS = {
    "softmax": ("`(N, K)`", "the probability of each {}"),
    "sigmoid": ("`(N, K)`", "the probability of each {}"),
    "values": ("`(N, K)`", "each {} in the unit of the training table"),
    "logits": ("`(N, K)`", "a logit of each {}"),
    "mask": ("`(N, H, W)`", "the number of the most likely {}"),
    "features": ("`(N, D)`", "the features of the image"),
    "tokens": ("`(N, T, D)`", "the features of each token"),
}
AS_TRANSFORMERS = "The class that `config.json` names has the same outputs, by name."
COUNTED = {"labels": "A label", "boxes": "An object"}


def card(model: keras.Model, manifest: dict) -> str:
    """Returns a Markdown page about the files: input, output, comparison, and a table."""
    agreement, difference = measures(manifest["output"], task_of(model))
    output = output_text(model, manifest["output"])
    if "axes" in manifest["input"]:
        output = AS_TRANSFORMERS + thresholds_text(model)
    lines = [
        f"# {model.name}",
        "",
        f"{model.count_params():,} parameters. {_input(model, manifest)} {output}",
        "",
        _reference(manifest["reference"]),
        "",
        f"| file | bytes | largest difference {difference} | {agreement} "
        f"| {accuracy_name(manifest['reference'])} | ms, 1 thread |",
        "|---|--:|--:|--:|--:|--:|",
        *(_line(row) for row in manifest["files"]),
        "",
    ]
    return "\n".join(lines)


def _input(model, manifest):
    source, preprocessing = manifest["input"], preprocessing_of(model)
    height, width, channels = source["shape"]
    levels = f"{preprocessing.levels:g}"
    pixels = f"pixels from 0 to {levels}, which the graph rescales"
    if not source["preprocessing_is_inside"]:
        pixels = f"(pixel / {levels} - {list(preprocessing.mean)}) / {list(preprocessing.std)}"
    crop = preprocessing.crop_fraction
    fit = "are resized to it"
    if crop is not None:
        fit = f"are cropped to a square of {crop} of their shorter side, then resized"
    shape = f"(N, {height}, {width}, {channels})"
    if "axes" in source:
        shape = f"(N, {channels}, {height}, {width})"
    sizes = ""
    if source.get("any_size"):
        shape = f"(N, H, W, {channels})"
        sizes = f"H and W may differ from the model's own {height} and {width}. "
    return (
        f"The input is `{shape}` {source['type']}: {pixels}. {sizes}"
        f"Pictures of another size {fit} ({preprocessing.interpolation})."
        + _colors(manifest, height, width, channels)
    )


def _colors(manifest, height, width, channels):
    gray, files = channels == 1, [row["file"] for row in manifest["files"]]
    clients = NOT_MEDIAPIPE if gray else MEDIAPIPE.format(height, width)
    has_tflite = any(name.endswith(".tflite") for name in files)
    return (GRAY if gray else "") + (clients if has_tflite else "")


def output_text(model: keras.Model, output: str) -> str:
    """Describes what an exported model returns, given the name of its graph's output."""
    task = task_of(model)
    if output == "boxes":
        outputs = "; ".join(f"`{name}` {text}" for name, text in BOX_OUTPUTS.items())
        return f"The outputs are {outputs}, in the order of `labels.txt`.{thresholds_text(model)}"
    is_of_tokens = output == "features" and len(model.output_shape) == 3
    shape, text = OUTPUTS["tokens" if is_of_tokens else output]
    if task.kind == "masks" and output != "features":
        shape, text = shape.replace("(N, K", "(N, H, W, K"), f"{text} at each pixel"
    sentence = f"The output {shape} is {text.format(task.row.one)}"
    if output == "features":
        return f"{sentence}."
    sentence += ", in the order of `labels.txt`."
    if output == "logits":
        sentence += f" The {task.row.output} of the logits gives the probabilities."
    return sentence + thresholds_text(model)


def thresholds_text(model: keras.Model) -> str:
    """Lists the probabilities from which labels or objects count as present; empty for others."""
    task, names = task_of(model), enumerate(class_names_of(model))
    if task.kind not in COUNTED:
        return ""
    least = ", ".join(f"{name} {task.threshold(k):.4g}" for k, name in names)
    return f" {COUNTED[task.kind]} counts as present from this probability on: {least}."


def _reference(reference):
    compared = (
        f"The files were compared with Keras on {reference['backend']} on "
        f"{reference['images']} images ({reference['source']})"
    )
    if "accuracy" not in reference:
        return f"{compared}."
    name = accuracy_name(reference)
    return f"{compared}, where Keras has an {name} of {100 * reference['accuracy']:.2f} %."


def _line(row):
    show = lambda value, form: "" if value is None else form.format(value)
    numbers = [
        f"{row['bytes']:,}",
        show(row.get("largest_difference"), "{:.1e}"),
        agreement_text(row) if "agreement" in row else "",
        show(row.get("accuracy"), "{:.2%}"),
        show(row.get("latency_ms", {}).get("1"), "{:.2f}"),
    ]
    return f"| {row['file']} | {' | '.join(numbers)} |"
