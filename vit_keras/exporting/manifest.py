"""What lies beside exported files: the names of the classes, a manifest, a card to read."""

import dataclasses
import hashlib
import importlib.metadata
import json
import pathlib

import keras

from vit_keras.models import class_names_of, patch_grid, preprocessing_of

PACKAGES = (
    "keras",
    "tensorflow",
    "torch",
    "ai-edge-litert",
    "ai-edge-quantizer",
    "onnx",
    "onnxruntime",
    "tf2onnx",
    "openvino",
    "coremltools",
)


def versions() -> dict[str, str]:
    """Versions of the packages that make and run the files, of those that are installed."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def describe_file(path: pathlib.Path) -> dict:
    """Size and SHA-256 of a file, or of all files in a folder by their names."""
    parts = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for part in parts:
        if path.is_dir():
            digest.update(f"{part.relative_to(path).as_posix()}\n".encode())
        with open(part, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest() if path.is_dir() else b"")
    if not path.is_dir():
        digest = hashlib.sha256(path.read_bytes())
    size = sum(part.stat().st_size for part in parts)
    return {"bytes": size, "sha256": digest.hexdigest()}


def manifest(model: keras.Model, plan, reference: dict, rows: list[dict]) -> dict:
    """All that is known of an export, as it is written to `manifest.json`."""
    return {
        "model": model.name,
        "input": {
            "shape": list(model.input_shape[1:]),
            "type": "float32" if plan.raw else "uint8",
            "preprocessing": dataclasses.asdict(preprocessing_of(model)),
            "preprocessing_is_inside": not plan.raw,
        },
        "output": plan.graph_output,
        "attention": list(patch_grid(model)) if plan.attention else None,
        "token_merging": {"r": plan.token_merging, "schedule": plan.merging_schedule},
        "reference": {"backend": keras.backend.backend(), **reference},
        "versions": versions(),
        "files": rows,
    }


def write_documents(folder: pathlib.Path, model: keras.Model, found: dict) -> None:
    """`manifest.json`, `model_card.md` and, for a classifier, `labels.txt`."""
    (folder / "manifest.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "model_card.md").write_text(card(model, found))
    if found["output"] != "features":
        names = class_names_of(model)
        (folder / "labels.txt").write_text("".join(f"{name}\n" for name in names))


def card(model: keras.Model, found: dict) -> str:
    """The manifest for a reader."""
    source, reference = found["input"], found["reference"]
    height, width, channels = source["shape"]
    prepared = preprocessing_of(model)
    pixels = "pixels 0 to 255, which the graph rescales itself"
    if not source["preprocessing_is_inside"]:
        pixels = f"(pixel / 255 - {list(prepared.mean)}) / {list(prepared.std)}"
    crop = prepared.crop_fraction
    fit = "resized to it" if crop is None else f"cropped to the middle {crop} of the shorter side"
    lines = [
        f"# {model.name}",
        "",
        f"{model.count_params():,} parameters. Takes `(N, {height}, {width}, {channels})` "
        f"{source['type']}: {pixels}. Pictures of another size are {fit} "
        f"({prepared.interpolation}). Gives {found['output']}"
        + ("." if found["output"] == "features" else ", classes in the order of `labels.txt`."),
        "",
        f"Compared with Keras on {reference['backend']} on {reference['images']} images "
        f"({reference['source']})"
        + (
            f", where Keras has an accuracy of {100 * reference['accuracy']:.2f} %."
            if "accuracy" in reference
            else "."
        ),
        "",
        "| file | bytes | largest difference of a logit | same class | accuracy | ms, 1 thread |",
        "|---|--:|--:|--:|--:|--:|",
        *(_line(row) for row in found["files"]),
        "",
    ]
    return "\n".join(lines)


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


def summary(row: dict) -> str:
    """A row of the manifest as a line for a terminal."""
    parts = [f"{row['bytes'] / 1e6:.2f} MB"]
    if "largest_difference" in row:
        parts.insert(
            0,
            f"largest difference from Keras {row['largest_difference']:.2e} "
            f"({row['images']} images), same class {row['agreement']:.2%}",
        )
    if "accuracy" in row:
        parts.append(f"accuracy {row['accuracy']:.2%}")
    parts += [f"{ms:.2f} ms with {n} thread(s)" for n, ms in row.get("latency_ms", {}).items()]
    if row.get("float_layers"):
        parts.append(f"{len(row['float_layers'])} layers left in float32")
    return ", ".join(parts)
