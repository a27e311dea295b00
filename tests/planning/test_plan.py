"""Plans agree with published runs, with rings in NumPy, and refuse what they cannot say."""

import dataclasses
import json
import shlex

import numpy as np
import pytest

from vit_keras import commands
from vit_keras.config import (
    Config,
    ModelConfig,
    read_config,
)
from vit_keras.experiments import planning

pytestmark = pytest.mark.once

TINY = ModelConfig("Ti/16", image_size=32, num_layers=1)


@pytest.mark.parametrize(
    ("recipe", "classes", "core_days"),
    [  # the paper's Table 2
        pytest.param("pretrain/jft_h14", 18_291, 2_500, marks=pytest.mark.nightly),
        ("pretrain/jft_l16", 18_291, 680),
        pytest.param("pretrain/imagenet21k_l16", 21_843, 230, marks=pytest.mark.nightly),
    ],
)
def test_days_on_tpu_v3_are_the_papers_core_days(recipe, classes, core_days):
    config = read_config(recipe)
    plan = planning.plan(config, "tpu_v3", devices=256, num_classes=classes)
    days = max(plan.days(choice) for choice in plan.choices[:1])
    assert core_days / 1.3 < 256 * days < 1.3 * core_days


@pytest.mark.parametrize("devices", [2, 5, 8])
def test_devices_send_what_a_ring_sends(devices):
    """Sums arrays around a ring in NumPy, and counts the bytes."""
    rng = np.random.default_rng(0)
    held = rng.integers(0, 9, (devices, devices, 3)).astype("float32")  # device, chunk, numbers
    total, sent = held.sum(axis=0), 0
    for step in range(devices - 1):  # scatter the sums
        chunks = [(d, (d - step) % devices) for d in range(devices)]
        messages = [held[d, chunk].copy() for d, chunk in chunks]
        for (d, chunk), message in zip(chunks, messages):
            held[(d + 1) % devices, chunk] += message
            sent += message.nbytes
    scattered = sent / devices
    for step in range(devices - 1):  # gather them
        chunks = [(d, (d + 1 - step) % devices) for d in range(devices)]
        messages = [held[d, chunk].copy() for d, chunk in chunks]
        for (d, chunk), message in zip(chunks, messages):
            held[(d + 1) % devices, chunk] = message
            sent += message.nbytes
    np.testing.assert_array_equal(held, np.broadcast_to(total, held.shape))
    assert planning.Communication(total.nbytes, 0, 0).sent(devices) == pytest.approx(sent / devices)
    assert planning.Communication(0, total.nbytes, 0).sent(devices) == pytest.approx(scattered)


def test_days_and_cost_follow_from_the_updates():
    config = Config(batch=64, epochs=2.0, model=TINY)
    plan = planning.plan(config, "a100", devices=4, epoch_images=640)
    kept = plan.choices[0]
    assert plan.updates == 20
    assert kept.time.products == pytest.approx(kept.operations / (156e12 * 0.4))
    assert plan.days(kept) == pytest.approx(20 * kept.time.seconds / 86_400)
    assert plan.cost(kept, price=3.0) == pytest.approx(plan.days(kept) * 24 * 4 * 3)
    assert plan.images_per_second(kept) == pytest.approx(64 / kept.time.seconds)


def test_the_fewest_parts_that_fit_are_chosen():
    config = dataclasses.replace(read_config("pretrain/jft_l16"), shard_state=True)
    kept, again = planning.plan(config, "tpu_v3", devices=8).choices
    assert kept.fits and kept.memory.total <= 16 * 2**30
    assert kept.accumulation_steps > max(1, again.accumulation_steps)
    half = planning.plan(
        config, "tpu_v3", devices=8, accumulation_steps=kept.accumulation_steps // 2
    ).choices[0]
    assert not half.fits and half.memory.total > 16 * 2**30


def test_the_command_prints_the_plan(capsys):
    words = shlex.split("--device h100 --devices 8 --batch 64 --price 2 --model.variant Ti/16")
    assert commands.main(["plan", *words, "--total_steps", "10", "--json"]) == 0
    kept, again = json.loads(capsys.readouterr().out)["choices"]
    config = Config(batch=64, total_steps=10, model=ModelConfig("Ti/16"))
    expected = planning.plan(config, "h100", devices=8)
    assert kept["memory_gb"] == expected.choices[0].memory.total / 1e9
    assert again["cost"] == expected.cost(expected.choices[1], price=2)
    assert commands.main(["plan", *words, "--dataset", "digits"]) == 0
    shown = capsys.readouterr().out
    assert f"{kept['memory_gb']:.4g}" in shown and "8 x NVIDIA H100 SXM 80 GB" in shown
    assert commands.main(["plan", *words, "--device", "b300"]) == 1
    assert "`device` must be one of 'a100'" in capsys.readouterr().err
