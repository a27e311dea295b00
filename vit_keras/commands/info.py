"""Describe a run, a checkpoint, an exported file or a variant.

examples:
  vit-keras info runs/digits
  vit-keras info ViT-B_16.npz
  vit-keras info model.tflite --json
  vit-keras info H/14 --image_size 518                     # a variant, and its cost
  vit-keras info DINOv2-S/14                               # a variant of another family
"""

import dataclasses
import json
import os
import pathlib
from typing import Any

from vit_keras import evaluation, inspection, models, variants, weights
from vit_keras.commands import options as shared
from vit_keras.runtimes import format_of
from vit_keras.support.command_line import visible
from vit_keras.variants import families


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    add("source", "SOURCE", "run, checkpoint, exported file, or variant such as B/16")
    flag("--json", "print JSON")
    flag("--layers", "print the cost of each layer")
    shared.add_image_size(add)
    add, flag = shared.adders(parser.add_argument_group("cost of a variant"))
    add("--num_classes", "N", "size of the head (1000, or the published one)", int)
    flag("--norms", "count normalization, as fvcore does")


def run(options: shared.Options) -> None:
    source, size = weights.local_path(options.source), shared.image_size(options)
    costs = None
    if not os.path.exists(source) and source in variants.VARIANTS:
        description, costs = _variant(source, size, options)
    elif format_of(source):
        description = _exported_file(source)
    elif adapters := weights.describe_adapters(source):
        description = {"kind": "adapters", **adapters}
    else:
        description, costs = _weights(source, size)
    if costs is not None:
        description |= {
            "parameters": costs.params,
            "image_size": list(costs.image_size),
            "gmacs_per_image": round(costs.macs / 1e9, 3),
            "activations_per_image": costs.activations,
        }
    if options.json:
        print(json.dumps(description, indent=1))
        return
    print(visible("\n".join(_lines(description))))
    if options.layers and costs is not None:
        print(inspection.table(costs))


def _variant(name, size, options) -> tuple[dict[str, Any], Any]:
    row, description = variants.get(name), {"kind": "variant", "variant": name}
    if isinstance(row, variants.FamilyVariant):
        family = families.family_of(row)
        described = {key: getattr(family, key) for key in ("title", "paper", "license")}
        description |= {"family": family.key, **described, "arguments": dict(row.arguments)}
        description["preprocessing"] = dict(family.preprocessing)
    classes = options.num_classes
    if classes is None:
        classes = row.constructor_arguments().get("num_classes", 1000)
    size = size or row.image_size
    return description, inspection.flops(name, size, norms=options.norms, num_classes=classes)


def _exported_file(path):
    from vit_keras.exporting.manifest import describe_file

    predictor, _ = evaluation.open_predictor(path)
    task = predictor.task
    one = "pixel's class" if task.kind == "masks" else task.row.one
    output = f"{'probability' if predictor.gives_probabilities else 'logit'} of each {one}"
    if task.kind == "numbers":
        output = "numbers in the units of the training table"
    return {
        "kind": "exported file",
        "format": str(format_of(path)).removeprefix("."),
        "input_shape": list(predictor.input_shape),
        "num_classes": predictor.num_classes,
        "output": output,
        "task": dataclasses.asdict(task),
        "preprocessing": dataclasses.asdict(predictor.preprocessing),
        "class_names": predictor.class_names and list(predictor.class_names),
        **describe_file(pathlib.Path(path)),
    }


def _weights(source, size):
    """Describes a run or a checkpoint; adds its cost if the file holds the whole architecture."""
    from vit_keras import runs

    description: dict[str, Any] = {"kind": "checkpoint"}
    if trained := runs.run_of(source):
        source, config, environment = trained.model_file, trained.config, trained.environment
        description = {
            "kind": "run",
            "folder": str(trained.folder),
            "dataset": config.dataset,
            "total_steps": config.total_steps,
            "seed": config.seed,
            "backend": environment["backend"],
            "keras": environment.get("keras"),
            "accuracy": trained.report.get("accuracy"),
        }
    elif not os.path.exists(source):
        near = " or ".join(variants.nearest(source))
        hint = f"Did you mean {near}?" if near else "Variants have names such as DINOv2-S/14"
        raise FileNotFoundError(f"There is no file, folder or variant {source!r}. {hint}")
    description |= weights.describe(source)
    if description["missing"]:
        return description, None
    model = weights.open(source)
    description["task"] = dataclasses.asdict(models.task_of(model))
    if description["class_names"] is None and description["head"] != "projection":
        description["class_names"] = models.class_names_of(model)
    model = models.with_image_size(model, size) if size else model
    has_size = None not in model.input_shape[1:3]
    return description, inspection.flops(model) if has_size else None


def _lines(description, indent=""):
    """Yields `name: value` lines; a dictionary or a list of them goes below its name."""
    for name, value in description.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from _lines({f"{name} {n}": item for n, item in enumerate(value, 1)}, indent)
        elif isinstance(value, list) and value:
            shown = ", ".join(map(str, value[:10]))
            more = f", ... ({len(value)})" if len(value) > 10 else ""
            yield f"{indent}{name}: {shown}{more}"
        elif isinstance(value, int) and abs(value) >= 10_000:
            yield f"{indent}{name}: {value:,}"
        else:
            yield f"{indent}{name}: {'-' if value in (None, []) else value}"
