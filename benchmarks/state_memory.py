"""Measures the memory that the state of a run takes on each device of JAX, copied and in shards.

    python -m benchmarks.state_memory --variant B/16 --devices 1 2 4 8

The state is the weights, the moments of AdamW, and the average of the weights. The devices are
parts of this machine's processor, as XLA divides it. `state` adds up the parts that the fullest
device holds. `step` is what XLA reserves on each device for the compiled training step beside the
state: activations, gradients, and weights that are gathered for the moment.
"""

import argparse
import collections
import json
import os
import subprocess
import sys

MIB = 2**20
MODES = {
    "a copy on each": {"distribution": "data_parallel"},
    "`shard_state`": {"distribution": "data_parallel", "shard_state": True},
}


def measure(variant: str, image_size: int, batch: int, devices: int, mode: str) -> dict:
    """Builds the model in this process, which has as many devices; returns bytes by name."""
    from vit_keras.config import Config, ModelConfig, OptimizerConfig
    from vit_keras.models import from_model_config
    from vit_keras.training import distribution
    from vit_keras.training.loop import compile_model

    fields = MODES[mode] if devices > 1 else {}
    config = Config(
        batch=batch,
        batch_eval=batch,
        model=ModelConfig(variant, image_size=image_size),
        optimizer=OptimizerConfig(ema_decay=0.999),
        **fields,
    ).complete_task("classes")
    with distribution.open(config):
        model = from_model_config(config.model, num_classes=1000)
        compile_model(model, config)
        return {"state": state_bytes(model), "step": step_bytes(model, batch)}


def state_bytes(model) -> int:
    """The bytes of all variables that the fullest device holds."""
    held: collections.Counter = collections.Counter()
    for variable in (*model.variables, *model.optimizer.variables):
        for shard in variable.value.addressable_shards:
            held[shard.device] += shard.data.nbytes
    return max(held.values())


def step_bytes(model, batch: int) -> int:
    """The bytes that XLA reserves on a device for a training step, beside its arguments."""
    from vit_keras.training.loop import compiled_step

    return compiled_step(model, batch).memory_analysis().temp_size_in_bytes


def in_a_process(arguments, devices, mode) -> dict:
    """Calls `measure` in a process of its own, since JAX decides on its devices once."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    code = "import json, sys; from benchmarks import state_memory; "
    code += "print(json.dumps(state_memory.measure(*json.loads(sys.argv[1]))))"
    given = json.dumps([arguments.variant, arguments.image_size, arguments.batch, devices, mode])
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": flags}
    command = [sys.executable, "-c", code, given]
    printed = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, check=True, text=True
    )
    return json.loads(printed.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", default="B/16")
    parser.add_argument("--image_size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8])
    arguments = parser.parse_args()
    print("| devices | state | MiB for each device | of one device | step, MiB |")
    print("|--:|---|--:|--:|--:|")
    alone = in_a_process(arguments, 1, "a copy on each")["state"]
    for devices in arguments.devices:
        for mode in MODES if devices > 1 else ["a copy on each"]:
            bytes_of = in_a_process(arguments, devices, mode)
            print(
                f"| {devices} | {mode} | {bytes_of['state'] / MIB:.1f} "
                f"| {bytes_of['state'] / alone:.3f} | {bytes_of['step'] / MIB:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
