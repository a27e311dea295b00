"""Compares the memory and the messages of `vit-keras plan` with what XLA reserves and sends.

    python -m benchmarks.plan_memory
    python -m benchmarks.plan_memory --others

Each case is a process whose devices are parts of this machine's processor. Measured is what XLA
reserves on each device for the compiled training step: arguments and temporary arrays, and results
that do not take the place of arguments. Messages are the collective operations in the program.
"""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
from typing import Any

MIB = 2**20
SHARDS = {"distribution": "data_parallel", "shard_state": True}
COPIES = {"distribution": "data_parallel"}


@dataclasses.dataclass(frozen=True)
class Case:
    """A run of one update: what it is called, its devices, and fields of its `Config`."""

    name: str
    devices: int
    batch: int
    model: dict[str, Any]
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    optimizer: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES = (
    Case("S/16, with the average", 1, 32, {"variant": "S/16"}, {}, {"ema_decay": 0.999}),
    Case("Ti/16, rematerialized", 1, 16, {"variant": "Ti/16", "rematerialise": True}),
    Case("Ti/16, a copy on each", 2, 64, {"variant": "Ti/16"}, COPIES),
    Case("Ti/16, in shards", 4, 16, {"variant": "Ti/16"}, SHARDS),
    Case("S/16, a copy on each", 8, 64, {"variant": "S/16"}, COPIES),
    Case(
        *("S/16, in shards, rematerialized", 8, 64),
        *({"variant": "S/16", "rematerialise": True}, SHARDS),
    ),
)
OTHERS = (
    Case("B/16", 1, 4, {"variant": "B/16"}),
    Case("B/32 at 384²", 1, 8, {"variant": "B/32", "image_size": 384}),
    Case("S/8, 6 blocks", 1, 4, {"variant": "S/16", "patch_size": 8, "num_layers": 6}),
    Case("DINOv2-S/14", 1, 8, {"variant": "DINOv2-S/14", "image_size": 224}),
    Case("EVA02-S/14, 6 blocks", 1, 8, {"variant": "EVA02-S/14", "num_layers": 6}),
    Case("CLIP-B/32, 6 blocks", 1, 12, {"variant": "CLIP-B/32", "num_layers": 6}),
    Case("Ti/16 at 160²", 8, 24, {"variant": "Ti/16", "image_size": 160}, COPIES),
    Case(
        *("S/16 in shards, 4 blocks, 2 parts", 4, 40, {"variant": "S/16", "num_layers": 4}),
        *(SHARDS, {"ema_decay": 0.999, "accumulation_steps": 2}),
    ),
    Case("S/32 in shards, 3 images", 2, 6, {"variant": "S/32", "classifier": "map"}, SHARDS),
)
# Of long sequences, whose loops XLA counts once in the FLOPs.
LONG = Case("S/16 at 512², 6 blocks", 1, 1, {"variant": "S/16", "image_size": 512, "num_layers": 6})


def config_of(case: Case):
    """The run of a case."""
    from vit_keras.config import Config, ModelConfig, OptimizerConfig

    fields = case.fields if case.devices > 1 else {}
    model, optimizer = ModelConfig(**case.model), OptimizerConfig(**case.optimizer)
    config = Config(
        batch=case.batch, batch_eval=case.batch, model=model, optimizer=optimizer, **fields
    )
    return config.complete_task("classes")


def measure(case: Case) -> dict[str, float]:
    """Compiles the training step in this process, which has the devices of the case."""
    from benchmarks.state_memory import compiled_step
    from vit_keras.models import from_model_config
    from vit_keras.training import distribution
    from vit_keras.training.loop import compile_model

    config = config_of(case)
    with distribution.open(config):
        model = from_model_config(config.model, num_classes=1000)
        compile_model(model, config)
        step = compiled_step(model, case.batch // config.optimizer.accumulation_steps)
    sizes, costs = step.memory_analysis(), step.cost_analysis()
    results = sizes.output_size_in_bytes - sizes.alias_size_in_bytes
    return {
        "memory": sizes.argument_size_in_bytes + sizes.temp_size_in_bytes + results,
        "flops": costs["flops"],
        **messages(step.as_text()),
    }


def messages(program: str) -> dict[str, int]:
    """The bytes of the results of an XLA program's collective operations, by their names."""
    sizes = {"all-reduce": 0, "all-gather": 0, "reduce-scatter": 0}
    operation = re.compile(rf"^\s*(?:ROOT )?%?\S+ = (.*?) ({'|'.join(sizes)})(?:-start)?\(", re.M)
    for shapes, name in operation.findall(program):
        for sides in re.findall(r"f32\[([\d,]*)\]", shapes):
            size = 4
            for side in filter(None, sides.split(",")):
                size *= int(side)
            sizes[name] += size
    return sizes


def planned(case: Case) -> dict[str, float]:
    """What the plan says of the case."""
    from vit_keras import planning
    from vit_keras.compute import abstract_model
    from vit_keras.models import from_model_config

    config = config_of(case)
    model = abstract_model(lambda: from_model_config(config.model, num_classes=1000))
    memory = planning.device_memory(model, config, case.devices, planning.PROGRAMS["xla_cpu"])
    sent = planning.communication(model, config, case.devices)
    parts = config.optimizer.accumulation_steps
    return {
        "memory": memory.total,
        "flops": planning.device_flops(model, config, case.devices) / parts,
        "all-reduce": (sent.summed + sent.scattered) / parts,
        "all-gather": sent.gathered / parts,
    }


def in_a_process(case: Case) -> dict[str, float]:
    """Calls `measure` in a process of its own, since JAX decides on its devices once."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count="
    code = "import json, sys; from benchmarks import plan_memory as p; "
    code += "print(json.dumps(p.measure(p.Case(**json.loads(sys.argv[1])))))"
    command = [sys.executable, "-c", code, json.dumps(dataclasses.asdict(case))]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": f"{flags}{case.devices}"}
    printed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(printed.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--others", action="store_true", help="the cases of no rule")
    chosen = (*OTHERS, LONG) if parser.parse_args().others else CASES
    print(
        "| case | devices | batch | plan, MiB | measured, MiB | difference | FLOPs | all-reduce |"
    )
    print("|---|--:|--:|--:|--:|--:|--:|--:|")
    for case in chosen:
        plan, measured = planned(case), in_a_process(case)
        row = [f"{plan['memory'] / MIB:.1f}", f"{measured['memory'] / MIB:.1f}"]
        for name in ("memory", "flops", "all-reduce"):
            share = plan[name] / measured[name] - 1 if measured[name] else 0
            row.append(f"{100 * share:+.1f} %" if measured[name] else "-")
        print(f"| {case.name} | {case.devices} | {case.batch} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
