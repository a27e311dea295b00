"""The planned memory is what programs reserve and keep."""

import dataclasses

import keras
import numpy as np
import pytest

from benchmarks import plan_memory
from vit_keras.config import Config, ModelConfig, OptimizerConfig
from vit_keras.experiments import planning
from vit_keras.inspection import abstract_model
from vit_keras.models import from_model_config

SMALL = {"variant": "Ti/16", "image_size": 64, "num_layers": 2}
WITHIN = 0.1


def model_of(config):
    return abstract_model(lambda: from_model_config(config.model, num_classes=1000))


@pytest.mark.on("jax")
@pytest.mark.parametrize("shard_state", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_messages_are_the_collective_operations_of_the_program(shard_state):
    fields = plan_memory.SHARDS if shard_state else plan_memory.COPIES
    case = plan_memory.Case("small", 2, 128, SMALL, fields)
    plan, measured = plan_memory.planned(case), plan_memory.in_a_process("measure", case)
    assert plan["all-gather"] == measured["all-gather"]
    assert plan["all-reduce"] == pytest.approx(measured["all-reduce"], rel=1e-3)
    assert plan["flops"] == pytest.approx(measured["flops"], rel=WITHIN)


@pytest.mark.on("jax")
@pytest.mark.nightly
@pytest.mark.parametrize("case", plan_memory.TOGETHER)
def test_the_plan_for_several_devices_is_what_they_send(case):
    plan, measured = plan_memory.planned(case), plan_memory.in_a_process("measure", case)
    assert plan["flops"] == pytest.approx(measured["flops"], rel=WITHIN)
    assert plan["all-gather"] == measured["all-gather"]
    assert plan["all-reduce"] == pytest.approx(measured["all-reduce"], rel=1e-3)


@pytest.mark.on("jax")
@pytest.mark.nightly  # `test_activations_are_the_tensors_that_torch_saves` measures most
def test_the_plan_for_a_processor_is_what_a_run_takes():
    """The peak of a process that trains four steps, less what it takes before its model."""
    case = plan_memory.Case("small", 1, 16, {"variant": "Ti/16", "num_layers": 4})
    answer = plan_memory.in_a_process("trained", case)
    assert answer["plan"] / 1.3 < answer["memory"] < 1.3 * answer["plan"]


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rematerialize": True},
        {"dtype": "mixed_bfloat16"},
        {"dtype": "mixed_bfloat16", "rematerialize": True},
        {"attention_dropout_rate": 0.1},
        {"options": {"mlp": "swiglu", "layer_scale": 1e-5, "qk_norm": True}},
        {"options": {"window_size": 2}},
        {"options": {"window_size": 3}, "attention_dropout_rate": 0.1},
        {"classifier": "gap", "num_heads": 6, "mlp_dim": 256},
    ],
    ids=str,
)
def test_activations_are_the_tensors_that_torch_saves(changes):
    """Dropout keeps the MLP on torch's own operations, which save what the rules say."""
    batch = 5
    config = Config(batch=batch, model=ModelConfig(**SMALL, dropout_rate=0.1, **changes))
    model = from_model_config(config.model, num_classes=1000)
    expected = saved_bytes(model, np.ones((batch, *model.input_shape[1:]), "float32"))
    memory = planning.device_memory(model, config)
    assert memory.activations == pytest.approx(expected, rel=WITHIN)


def saved_bytes(model, images):
    """The bytes of the arrays that autograd saves, without weights, their copies and the images."""
    import torch

    images = keras.ops.convert_to_tensor(images)
    weights = {tuple(w.shape) for w in model.weights}
    flat = {
        (int(np.prod(shape[:i])), int(np.prod(shape[i:]))) for shape in weights for i in (1, 2, 3)
    }
    apart = {p.untyped_storage().data_ptr() for p in model.parameters()}
    apart.add(images.untyped_storage().data_ptr())
    saved = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in apart and tuple(tensor.shape) not in weights | flat:
            saved[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        keras.ops.sum(model(images, training=True))
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


@pytest.mark.once
@pytest.mark.parametrize("devices", [1, 8])
def test_the_state_is_counted_by_hand(devices):
    """AdamW has two moments of each weight; small and odd variables stay whole on each device."""
    optimizer = OptimizerConfig(ema_decay=0.9, accumulation_steps=2)
    config = Config(batch=32, model=ModelConfig(**SMALL), optimizer=optimizer, shard_state=True)
    model = model_of(config)
    sizes = [np.prod(v.shape) for v in model.trainable_variables]
    split = [s / devices if s >= 2**14 else s for s in sizes]  # 192 and 768 are multiples of 8
    memory = planning.device_memory(model, config, devices)
    assert memory.weights == memory.average == memory.sums == 4 * sum(split)
    assert memory.moments == 8 * sum(split)
    assert memory.images == 16 // devices
    assert memory.batch == 4 * memory.images * (64 * 64 * 3 + 1000)


@pytest.mark.once
def test_a_batch_in_more_parts_keeps_fewer_activations():
    """All but the weights' own bytes is in proportion to the images of a part."""
    config = Config(batch=32, model=ModelConfig(**SMALL))
    model, kept = model_of(config), []
    for parts in (1, 4):
        optimizer = dataclasses.replace(config.optimizer, accumulation_steps=parts)
        split = dataclasses.replace(config, optimizer=optimizer)
        kept.append(planning.device_memory(model, split).activations)
    assert kept[0] == 4 * kept[1]
