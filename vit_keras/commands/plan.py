"""Estimate the memory, the time and the cost of a run on given devices.

All other options are fields of the run, as in `vit-keras train`.

examples:
  vit-keras plan --config pretrain/jft_h14 --devices 64 --device h100 --price 2.5
  vit-keras plan --config scratch/small --device a100 --epoch_images 50000
  vit-keras plan --config pretrain/jft_l16 --devices 16 --device tpu_v5e --shard_state
  vit-keras plan --batch 64 --devices 8 --device cpu --model.variant S/16 --json
"""

import itertools
import json
import math
import re
from typing import Any

from vit_keras.commands import options as shared
from vit_keras.support.command_line import aligned

GB = 10**9
parse = shared.parse_with_fields


def add_options(parser: shared.Parser, add: shared.Add, flag: shared.Add) -> None:
    recipe = "recipe's name or YAML file of the run (none)"
    add("--config", "RECIPE", recipe, action="append", default=[])
    add("--device", "NAME", "a100, h100, h200, tpu_v3, ... or cpu", required=True)
    add("--devices", "N", "devices that share each batch", shared.count, 1)
    add("--price", "PRICE", "of a device for an hour, in any currency", float)
    add("--utilization", "SHARE", "of the peak rate of products that a run reaches", float, 0.4)
    add("--accumulation_steps", "N", "parts of a batch (the fewest that fit)", shared.count)
    add("--num_classes", "N", "size of the head", int, 1000)
    add("--epoch_images", "N", "training images, for a run of `epochs`", shared.count)
    flag("--json", "print JSON")


def run(options: shared.Options) -> None:
    from vit_keras.experiments import planning

    names = ("num_classes", "epoch_images", "accumulation_steps", "utilization")
    assumed = {name: getattr(options, name) for name in names}
    plan = planning.plan(options.run, options.device, options.devices, **assumed)
    columns = [_column(plan, choice, options.price) for choice in plan.choices]
    if options.json:
        print(json.dumps({"assumptions": _assumptions(plan), "choices": columns}, indent=1))
    else:
        print("\n".join(_lines(plan, columns)))


def _column(plan, choice, price) -> dict[str, Any]:
    """Returns the numbers to print for a choice, by name; None for unknown ones."""
    memory, time = choice.memory, choice.time
    names = ("weights", "moments", "average", "sums", "batch", "activations", "gradients", "copies")
    seconds = {**time._asdict(), "update": time.seconds} if time else {"update": None}
    return {
        "rematerialize": choice.rematerialize,
        "accumulation_steps": choice.accumulation_steps,
        "images_at_a_time": memory.images,
        **{f"{name}_gb": getattr(memory, name) / GB for name in names},
        "memory_gb": memory.total / GB,
        "fits": choice.fits,
        "sent_gb": choice.messages.sent(plan.devices) / GB,
        "tflop": choice.operations / 1e12,
        **{f"{name}_s": value for name, value in seconds.items()},
        "images_per_second": plan.images_per_second(choice),
        "days": plan.days(choice),
        "cost": None if price is None else plan.cost(choice, price),
    }


def _assumptions(plan) -> dict[str, Any]:
    """Returns the assumptions behind the numbers."""
    assumed = {
        "device": plan.device.name,
        "devices": plan.devices,
        "memory_gb": memory / GB if math.isfinite(memory := plan.device.memory) else None,
        "source": plan.device.source,
        "num_classes": plan.num_classes,
        "images_an_update": plan.config.batch,
        "updates": plan.updates,
        "dtype": plan.config.model.dtype,
        "shard_state": plan.config.shard_state,
    }
    return assumed | ({"utilization": plan.utilization} if plan.device.flops else {})


TEXTS = {  # of the numbers that their names do not describe
    "average_gb": "average of the weights, GB",
    "sums_gb": "sums of gradients, GB",
    "batch_gb": "images and targets, GB",
    "copies_gb": "rounded or gathered kernels, GB",
    "memory_gb": "memory on each device at most, GB",
    "sent_gb": "sent by each device in an update, GB",
    "tflop": "computed by each device in an update, TFLOP",
    "images_per_second": "images/s that the input delivers",
}


def _lines(plan, columns):
    config = plan.config
    memory = f" with {plan.device.memory / GB:.0f} GB" if plan.device.flops else ""
    yield f"{config.name}: {config.model.summary()}, {plan.num_classes} classes"
    yield f"{plan.devices} x {plan.device.name}{memory} ({plan.device.source})"
    updates = f"{config.epochs or 0:g} epochs (give --epoch_images for days)"
    updates = updates if plan.updates is None else f"{plan.updates:,} updates"
    kind = "the state in shards" if config.shard_state else "a copy of the state on each"
    yield f"{updates} of {config.batch} images, {config.model.dtype}, {kind}"
    if plan.device.flops:
        reached = f"{plan.utilization:.0%} of the peak"
        yield f"assumed: products reach {reached}; everything else overlaps"
    rows = [["", "all kept", "rematerialize"]]
    for name in itertools.islice(columns[0], 1, None):
        values = [column[name] for column in columns]
        if any(value not in (None, 0) for value in values) or name == "fits":
            words = re.sub("_gb$", ", GB", re.sub("_s$", ", s", name)).replace("_", " ")
            rows.append([TEXTS.get(name, words), *map(_text, values)])
    yield from ["", *aligned(rows)]


def _text(value):
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "-"
    return f"{value:,.0f}" if isinstance(value, int) or value >= 1000 else f"{value:.4g}"
