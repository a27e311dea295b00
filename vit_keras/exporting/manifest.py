"""`manifest.json`, and the other documents beside exported files."""

import dataclasses
import hashlib
import importlib.metadata
import json
import pathlib

import keras

from vit_keras.exporting.model_card import BOX_OUTPUTS, card
from vit_keras.exporting.targets import takes_prepared
from vit_keras.exporting.verification import accuracy_name, agreement_text
from vit_keras.models import class_names_of, patch_grid, preprocessing_of, task_of
from vit_keras.support.files import sha256
from vit_keras.weights.formats.huggingface.config import labels_of, write_processor

PACKAGES = (
    "keras",
    "tensorflow",
    "torch",
    "ai-edge-litert",
    "ai-edge-quantizer",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "openvino",
    "coremltools",
)


def versions() -> dict[str, str]:
    """Returns the versions of installed packages that make or run exported files."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def describe_file(path: pathlib.Path) -> dict:
    """Returns size and SHA-256 of a file, or of a folder's files and their names together."""
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
    prepared = takes_prepared(plan.formats)
    graph = {"name": "pixel_values", "axes": "(N, C, H, W)"} if prepared else {}
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
        "versions": versions(),
        "files": rows,
    }


def write_documents(folder: pathlib.Path, model: keras.Model, manifest: dict) -> None:
    """Writes `manifest.json`, `model_card.md` and, for a classifier, `labels.txt`.

    Beside files for transformers, it also writes `config.json` and `preprocessor_config.json`.
    """
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (folder / "model_card.md").write_text(card(model, manifest))
    if "axes" in manifest["input"]:
        for name, content in graph_files(model, manifest["output"]).items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n")
    if manifest["output"] != "features":
        names = class_names_of(model)
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))


def summary(row: dict) -> str:
    """Formats a row of the manifest as a line for a terminal."""
    facts = []
    if "largest_difference" in row:
        difference = f"{row['largest_difference']:.2e} ({row['images']} images)"
        facts.append(f"largest difference from Keras {difference}")
    if "agreement" in row:
        facts.append(f"{row['agreement_is']} {agreement_text(row)}")
    if "first_token" in row:
        facts.append(f"of the first token {row['first_token']:.4f}")
    if "least_iou" in row:
        facts.append(f"least IoU {row['least_iou']:.4f}")
    facts.append(f"{row['bytes'] / 1e6:.2f} MB")
    if "accuracy" in row:
        facts.append(f"{accuracy_name(row)} {row['accuracy']:.2%}")
    facts += [f"{ms:.2f} ms with {n} thread(s)" for n, ms in row.get("latency_ms", {}).items()]
    if row.get("float_layers"):
        facts.append(f"{len(row['float_layers'])} layers left in float32")
    return ", ".join(facts)


# The type, the class and the processor whose pipelines run a graph, by its output or kind of label.
VIT_GRAPH = ("vit", "ViTForImageClassification", "ViTImageProcessor")
GRAPHS = {
    "features": ("vit", "ViTModel", "ViTImageProcessor"),
    "masks": ("segformer", "SegformerForSemanticSegmentation", "SegformerImageProcessor"),
    "boxes": ("yolos", "YolosForObjectDetection", "YolosImageProcessor"),
}


def graph_files(model: keras.Model, output: str) -> dict[str, dict]:
    """Describes an ONNX graph of any architecture to transformers.js and Optimum.

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
    pixels = preprocessing_of(model)
    processor = write_processor((height, width), channels, pixels, row[2])
    return {"config.json": config, "preprocessor_config.json": processor}
