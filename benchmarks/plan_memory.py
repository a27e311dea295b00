"""Compares what `vit-keras plan` says with training steps that run, and with XLA's programs.

    python -m benchmarks.plan_memory
    python -m benchmarks.plan_memory --messages

The first table compares the planned memory with the peak of a process that trains four steps, less
what the process takes before it builds the model. The second compares messages and FLOPs on several
devices, which are parts of this machine's processor, with the collective operations and the cost
analysis of XLA's program.
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


ALONE = (
    Case("Ti/16", 1, 8, {"variant": "Ti/16"}),
    Case("S/16", 1, 8, {"variant": "S/16"}),
    Case("S/16, rematerialized", 1, 8, {"variant": "S/16", "rematerialize": True}),
    Case("DINOv2-S/14", 1, 8, {"variant": "DINOv2-S/14", "image_size": 224}),
)
TOGETHER = (
    Case("Ti/16, a copy on each", 2, 64, {"variant": "Ti/16"}, COPIES),
    Case("Ti/16, in shards", 4, 16, {"variant": "Ti/16"}, SHARDS),
    Case("S/16, a copy on each", 8, 64, {"variant": "S/16"}, COPIES),
    Case(
        *("S/16, in shards, rematerialized", 8, 64),
        *({"variant": "S/16", "rematerialize": True}, SHARDS),
    ),
)


def config_of(case: Case):
    """The run of a case."""
    from vit_keras.config import Config, ModelConfig, OptimizerConfig

    fields = case.fields if case.devices > 1 else {}
    model, optimizer = ModelConfig(**case.model), OptimizerConfig(**case.optimizer)
    config = Config(
        batch=case.batch, batch_eval=case.batch, model=model, optimizer=optimizer, **fields
    )
    return config.complete_task("classes")


def trained(case: Case) -> dict[str, float]:
    """Trains four steps in this process; returns the most bytes that they take, and the plan's."""
    import keras
    import numpy as np

    from benchmarks import memory
    from vit_keras.experiments import planning
    from vit_keras.inspection import abstract_model
    from vit_keras.models import from_model_config
    from vit_keras.training.loop import compile_model

    config = config_of(case)
    if keras.backend.backend() == "jax":
        plan = planning.compiled_memory(config)
    else:
        model = abstract_model(lambda: from_model_config(config.model, num_classes=1000))
        plan = planning.device_memory(model, config)
    before = memory.resident()
    model = from_model_config(config.model, num_classes=1000)
    compile_model(model, config)
    images = np.zeros((4 * case.batch, *model.input_shape[1:]), "float32")
    model.fit(images, np.eye(1000)[: len(images)], batch_size=case.batch, epochs=1, verbose=0)
    return {"memory": (memory.peak() - before) * 2**30 - images.nbytes, "plan": plan.total}


def measure(case: Case) -> dict[str, float]:
    """Compiles the training step in this process, which has the devices of the case."""
    from vit_keras.models import from_model_config
    from vit_keras.training import distribution
    from vit_keras.training.loop import compile_model, compiled_step

    config = config_of(case)
    with distribution.open(config):
        model = from_model_config(config.model, num_classes=1000)
        compile_model(model, config)
        step = compiled_step(model, case.batch // config.optimizer.accumulation_steps)
    return {"flops": step.cost_analysis()["flops"], **messages(step.as_text())}


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
    """The messages and operations of the plan."""
    from vit_keras.experiments import planning
    from vit_keras.inspection import abstract_model
    from vit_keras.models import from_model_config

    config = config_of(case)
    model = abstract_model(lambda: from_model_config(config.model, num_classes=1000))
    sent = planning.communication(model, config, case.devices)
    parts = config.optimizer.accumulation_steps
    return {
        "flops": planning.device_flops(model, config, case.devices) / parts,
        "all-reduce": (sent.summed + sent.scattered) / parts,
        "all-gather": sent.gathered / parts,
    }


def in_a_process(function: str, case: Case, backend: str = "jax") -> dict[str, float]:
    """Calls a function of this module in a process of its own, which has the case's devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count="
    code = "import json, sys; from benchmarks import plan_memory as p; "
    code += f"print(json.dumps(p.{function}(p.Case(**json.loads(sys.argv[1])))))"
    command = [sys.executable, "-c", code, json.dumps(dataclasses.asdict(case))]
    environment = {**os.environ, "KERAS_BACKEND": backend, "XLA_FLAGS": f"{flags}{case.devices}"}
    environment["MALLOC_MMAP_THRESHOLD_"] = str(2**17)  # free blocks go back, whatever lies beside
    printed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(printed.stdout.splitlines()[-1])


def print_memory() -> None:
    """Prints the table of runs on one device."""
    print("| case | backend | batch | plan, MiB | measured, MiB | plan / measured |")
    print("|---|---|--:|--:|--:|--:|")
    for case in ALONE:
        for backend in ("torch", "tensorflow", "jax"):
            answer = in_a_process("trained", case, backend)
            plan, peak = answer["plan"] / MIB, answer["memory"] / MIB
            row = f"{plan:.0f} | {peak:.0f} | {plan / peak:.2f}"
            print(f"| {case.name} | {backend} | {case.batch} | {row} |", flush=True)


def print_messages() -> None:
    """Prints the table of runs on several devices."""
    print("| case | devices | batch | FLOPs | all-reduce | all-gather |\n|---|--:|--:|--:|--:|--:|")
    for case in TOGETHER:
        plan, measured = planned(case), in_a_process("measure", case)
        row = [
            f"{100 * (plan[name] / measured[name] - 1):+.1f} %" if measured[name] else "-"
            for name in plan
        ]
        print(f"| {case.name} | {case.devices} | {case.batch} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", action="store_true", help="compare messages and FLOPs")
    (print_messages if parser.parse_args().messages else print_memory)()
