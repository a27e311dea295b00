"""`manifest.json`, and the other documents beside exported files."""

import dataclasses
import hashlib
import importlib.metadata
import json
import pathlib
import zipfile

import keras

from vit_keras.exporting.serving import BOX_OUTPUTS
from vit_keras.exporting.targets import TARGETS, TRANSFORMERS
from vit_keras.exporting.verification import MEASURES, accuracy_name, agreement_text
from vit_keras.models import class_names_of, patch_grid, preprocessing_of, task_of
from vit_keras.runtimes import NOTE, NOTE_KEY, SAVED_MODEL, format_of
from vit_keras.support.files import sha256
from vit_keras.weights.formats.huggingface import labels_of, write_processor


def describe_file(path: pathlib.Path) -> dict:
    """Returns the size and SHA-256 of a file, or of a folder's files and their names together."""
    if not path.is_dir():
        return {"bytes": path.stat().st_size, "sha256": sha256(path)}
    members = sorted(member for member in path.rglob("*") if member.is_file())
    digest = hashlib.sha256()
    for member in members:
        digest.update(f"{member.relative_to(path).as_posix()}\n".encode())
        digest.update(bytes.fromhex(sha256(member)))
    return {"bytes": sum(m.stat().st_size for m in members), "sha256": digest.hexdigest()}


def describe(model: keras.Model, plan, reference: dict, rows: list[dict]) -> dict:
    """Returns the content of `manifest.json` for an export.

    Args:
        model: The exported Keras model.
        plan: The export's `Plan`.
        reference: The reference that the files were compared with.
        rows: A dictionary for each file.
    """
    graph = {"name": "pixel_values", "axes": "(N, C, H, W)"} if TRANSFORMERS in plan.formats else {}
    modules = {module for format in plan.formats for module in TARGETS[format].packages}
    packages = {"keras", *(module.replace("_", "-") for module in modules)}
    installed = importlib.metadata.distributions()
    return {
        "model": model.name,
        "input": {
            "shape": list(model.input_shape[1:]),
            "any_size": plan.dynamic_size,
            **graph,
            "type": "float32" if plan.raw else preprocessing_of(model).input_type,
            "preprocessing": dataclasses.asdict(preprocessing_of(model)),
            "preprocessing_is_inside": not plan.raw,
        },
        "output": plan.graph_output,
        **({"outputs": BOX_OUTPUTS} if plan.graph_output == "boxes" and not graph else {}),
        "task": dataclasses.asdict(task_of(model)),
        "attention": list(patch_grid(model)) if plan.attention else None,
        "token_merging": {"r": plan.token_merging, "schedule": plan.merging_schedule},
        "reference": {"backend": keras.backend.backend(), **reference},
        "versions": {x.name: x.version for x in installed if x.name in packages},
        "files": rows,
    }


def write_note(path: pathlib.Path, note: dict) -> None:
    """Writes the meaning of outputs and pixels into a file, which may lose its manifest.

    It goes into TFLite, ONNX and SavedModel files, as an `evaluation.predictors.Note`.
    """
    format, text = format_of(path), json.dumps(note)
    if format == ".tflite":
        with zipfile.ZipFile(path, "a", zipfile.ZIP_STORED) as archive:
            archive.writestr(zipfile.ZipInfo(NOTE), text)
    elif format == ".onnx":
        import onnx

        model = onnx.load(path)
        onnx.helper.set_model_props(model, {NOTE_KEY: text})
        onnx.save(model, path)
    elif format == SAVED_MODEL:
        (path / "assets.extra").mkdir(exist_ok=True)
        (path / "assets.extra" / NOTE).write_text(text)


def write_documents(folder: pathlib.Path, model: keras.Model, manifest: dict) -> None:
    """Writes `manifest.json` and, for a classifier, `labels.txt`.

    Beside files for transformers, it also writes `config.json` and `preprocessor_config.json`.
    """
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    if "axes" in manifest["input"]:
        for name, content in graph_files(model, manifest["output"]).items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    if manifest["output"] != "features":
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in class_names_of(model)))


def facts(row: dict) -> dict[str, str]:
    """Formats the values in a row of the manifest, or of a comparison, as `{name: text}`."""
    measured = row.get("agreement_is", "")
    texts = {measured: agreement_text(row)} if measured else {}
    unit = dict(MEASURES.values()).get(measured)
    shown = {
        "largest_difference": (f"largest difference {unit}", ".2e"),
        "first_token": ("mean cosine of the first token", ".4f"),
        "least_iou": ("least IoU", ".4f"),
        "accuracy": (accuracy_name(row), ".2%"),
    }
    texts |= {name: format(row[key], form) for key, (name, form) in shown.items() if key in row}
    if row.get("float_layers"):
        texts["layers in float32"] = str(len(row["float_layers"]))
    if "bytes" in row:
        texts["MB"] = f"{row['bytes'] / 1e6:.2f}"
    return texts


# The type, the class and the processor whose pipelines run a graph, by its output or kind of label.
VIT_GRAPH = ("vit", "ViTForImageClassification", "ViTImageProcessor")
GRAPHS = {
    "features": ("vit", "ViTModel", "ViTImageProcessor"),
    "masks": ("segformer", "SegformerForSemanticSegmentation", "SegformerImageProcessor"),
    "boxes": ("yolos", "YolosForObjectDetection", "YolosImageProcessor"),
}


def graph_files(model: keras.Model, output: str) -> dict[str, dict]:
    """Describes an ONNX graph of any architecture for transformers.js and Optimum.

    Args:
        model: The model of the graph.
        output: The graph's output, such as "logits" or "features".

    Returns:
        The content of `config.json` and `preprocessor_config.json`. The type is one whose pipelines
        read the outputs; the sizes of the layers are left out.
    """
    kind = "features" if output == "features" else task_of(model).kind
    (height, width, channels), row = model.input_shape[1:], GRAPHS.get(kind, VIT_GRAPH)
    names = () if kind == "features" else class_names_of(model)
    config = {
        "architectures": [row[1]],
        "model_type": row[0],
        "image_size": height if height == width and kind != "boxes" else [height, width],
        "num_channels": channels,
        **labels_of(names, kind),
    }
    processor = write_processor((height, width), channels, preprocessing_of(model), row[2])
    return {"config.json": config, "preprocessor_config.json": processor}
