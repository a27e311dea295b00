"""How `shard_state` splits variables over devices."""

import types

import pytest

from vit_keras.training.distribution import on_jax

pytestmark = pytest.mark.on("jax")


@pytest.mark.parametrize(
    ("path", "shape", "model_devices", "axes"),
    [
        ("a/query/kernel", (768, 12, 64), 1, ("batch", None, None)),
        ("a/query/kernel", (768, 12, 64), 2, ("batch", "model", None)),
        ("a/out/kernel", (12, 64, 768), 2, ("model", None, "batch")),
        ("a/Dense_1/kernel", (3072, 768), 1, ("batch", None)),
        ("a/Dense_1/kernel", (3072, 768), 2, ("model", "batch")),
        ("head/kernel", (768, 21843), 1, ("batch", None)),  # 8 divides 768 alone
        ("a/odd/kernel", (1001, 203), 1, (None, None)),
        ("posembed_input/pos_embedding", (1, 197, 768), 1, (None, None, "batch")),
        ("a/square/kernel", (128, 128), 1, ("batch", None)),  # the first of two equal ones
        ("a/LayerNorm_0/gamma", (8192,), 1, (None,)),  # below 2¹⁴ numbers
    ],
)
def test_the_state_is_split_along_the_largest_dimension_that_divides(
    path, shape, model_devices, axes
):
    devices = [f"cpu:{i}" for i in range(8)]
    if model_devices > 1:
        made = on_jax.model_parallel(devices, model_devices, shard_state=True)
    else:
        made = on_jax.fully_sharded(devices)
    variable = types.SimpleNamespace(path=path, shape=shape)
    assert made.get_variable_layout(variable).axes == axes
    assert made.num_model_replicas == 8 // model_devices
