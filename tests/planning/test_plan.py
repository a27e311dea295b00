"""Plans agree with published runs, and with what programs reserve, keep and send."""

import dataclasses
import json
import shlex

import keras
import numpy as np
import pytest

from benchmarks import plan_memory
from tests.helpers import keeping
from vit_keras import commands
from vit_keras.config import Config, ModelConfig, OptimizerConfig, read_config
from vit_keras.experiments import planning
from vit_keras.inspection import abstract_model
from vit_keras.models import from_model_config

once, on_jax = pytest.mark.once, pytest.mark.on("jax")
nightly = pytest.mark.nightly
SMALL = {"variant": "Ti/16", "image_size": 64, "num_layers": 2}
WITHIN = 0.1


@once
@pytest.mark.parametrize(
    ("recipe", "classes", "core_days"),
    [  # the paper's Table 2
        pytest.param("pretrain/jft_h14", 18_291, 2_500, marks=nightly),
        ("pretrain/jft_l16", 18_291, 680),
        pytest.param("pretrain/imagenet21k_l16", 21_843, 230, marks=nightly),
    ],
)
def test_days_on_tpu_v3_are_the_papers_core_days(recipe, classes, core_days):
    plan = planning.plan(read_config(recipe), "tpu_v3", devices=256, num_classes=classes)
    assert core_days / 1.3 < 256 * plan.days(plan.choices[0]) < 1.3 * core_days


@once
def test_days_and_cost_follow_from_the_updates():
    config = Config(batch=64, epochs=2.0, model=ModelConfig("Ti/16", image_size=32, num_layers=1))
    plan = planning.plan(config, "a100", devices=4, epoch_images=640)
    kept = plan.choices[0]
    assert plan.updates == 20
    assert kept.time.products == pytest.approx(kept.operations / (156e12 * 0.4))
    assert plan.days(kept) == pytest.approx(20 * kept.time.seconds / 86_400)
    assert plan.cost(kept, price=3.0) == pytest.approx(plan.days(kept) * 24 * 4 * 3)
    assert plan.images_per_second(kept) == pytest.approx(64 / kept.time.seconds)


@once
def test_the_fewest_parts_that_fit_are_chosen():
    config = dataclasses.replace(read_config("pretrain/jft_l16"), shard_state=True)
    plan = lambda steps=None: planning.plan(config, "tpu_v3", 8, accumulation_steps=steps).choices
    kept, again = plan()
    assert kept.fits and kept.memory.total <= 16 * 2**30
    assert kept.accumulation_steps > max(1, again.accumulation_steps)
    half, _ = plan(kept.accumulation_steps // 2)
    assert not half.fits and half.memory.total > 16 * 2**30


@once
def test_the_command_prints_the_plan(capsys):
    words = shlex.split("plan --device h100 --devices 8 --batch 64 --price 2 --model.variant Ti/16")
    assert commands.main([*words, "--total_steps", "10", "--json"]) == 0
    kept, again = json.loads(capsys.readouterr().out)["choices"]
    config = Config(batch=64, total_steps=10, model=ModelConfig("Ti/16"))
    expected = planning.plan(config, "h100", devices=8)
    assert kept["memory_gb"] == expected.choices[0].memory.total / 1e9
    assert again["cost"] == expected.cost(expected.choices[1], price=2)
    assert commands.main([*words, "--dataset", "digits"]) == 0
    shown = capsys.readouterr().out
    assert f"{kept['memory_gb']:.4g}" in shown and "8 x NVIDIA H100 SXM 80 GB" in shown
    assert commands.main([*words, "--device", "b300"]) == 1
    assert "`device` must be one of 'a100'" in capsys.readouterr().err


SHARDS = plan_memory.Case("small", 2, 128, SMALL, plan_memory.SHARDS)
TOGETHER = [plan_memory.Case("small", 2, 128, SMALL, plan_memory.COPIES), *plan_memory.TOGETHER]


@on_jax
@pytest.mark.parametrize("case", [SHARDS, *(pytest.param(c, marks=nightly) for c in TOGETHER)])
def test_the_plan_for_several_devices_is_what_they_send(case):
    plan, measured = plan_memory.planned(case), plan_memory.in_a_process("measure", case)
    assert plan["flops"] == pytest.approx(measured["flops"], rel=WITHIN)
    assert plan["all-gather"] == measured["all-gather"]
    assert plan["all-reduce"] == pytest.approx(measured["all-reduce"], rel=1e-3)


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"rematerialize": True},
        {"dtype": "mixed_bfloat16", "rematerialize": True},
        {"attention_dropout_rate": 0.1},
        {"options": {"mlp": "swiglu", "layer_scale": 1e-5, "qk_norm": True}},
        {"options": {"window_size": 2}},
        {"options": {"window_size": 3}, "attention_dropout_rate": 0.1},
        {"classifier": "gap", "num_heads": 6, "mlp_dim": 256, "dtype": "mixed_bfloat16"},
    ],
    ids=str,
)
def test_activations_are_the_tensors_that_torch_saves(changes):
    """Dropout keeps the MLP on torch's own operations, which save what the rules say."""
    config = Config(batch=5, model=ModelConfig(**SMALL, dropout_rate=0.1, **changes))
    model = from_model_config(config.model, num_classes=1000)
    expected = saved_bytes(model, np.ones((5, *model.input_shape[1:]), "float32"))
    memory = planning.device_memory(model, config)
    assert memory.activations == pytest.approx(expected, rel=WITHIN)


def saved_bytes(model, images):
    """The bytes of the arrays that autograd saves, without weights, their copies and the images."""
    images = keras.ops.convert_to_tensor(images)
    weights = {tuple(w.shape) for w in model.weights}
    flat = {
        (int(np.prod(shape[:i])), int(np.prod(shape[i:]))) for shape in weights for i in (1, 2, 3)
    }
    apart = {x.untyped_storage().data_ptr() for x in (*model.parameters(), images)}
    with keeping(kept := {}):
        keras.ops.sum(model(images, training=True))
    return sum(
        tensor.untyped_storage().nbytes()
        for place, tensor in kept.items()
        if place not in apart and tuple(tensor.shape) not in weights | flat
    )


@once
@pytest.mark.parametrize("devices", [1, 8])
def test_the_state_is_counted_by_hand(devices):
    """AdamW has two moments of each weight; small and odd variables stay whole on each device."""
    optimizer = OptimizerConfig(ema_decay=0.9, accumulation_steps=2)
    config = Config(batch=32, model=ModelConfig(**SMALL), optimizer=optimizer, shard_state=True)
    model = abstract_model(lambda: from_model_config(config.model, num_classes=1000))
    sizes = [np.prod(v.shape) for v in model.trainable_variables]
    split = [s / devices if s >= 2**14 else s for s in sizes]  # 192 and 768 are multiples of 8
    memory = planning.device_memory(model, config, devices)
    assert memory.weights == memory.average == memory.sums == 4 * sum(split)
    assert memory.moments == 8 * sum(split)
    assert memory.images == 16 // devices
    assert memory.batch == 4 * memory.images * (64 * 64 * 3 + 1000)
    whole = dataclasses.replace(config, optimizer=OptimizerConfig())
    kept = planning.device_memory(model, whole, devices).activations
    assert kept == 2 * memory.activations  # in proportion to the images of a part
