"""The distribution that a run gets, and the settings that are refused."""

import dataclasses
import json

import keras
import pytest

from tests.helpers import ROOT, to_numpy
from vit_keras.config import AugmentConfig, DinoConfig, PretextConfig
from vit_keras.config import read_config as read
from vit_keras.models import VisionTransformer
from vit_keras.training import distribution
from vit_keras.training.distribution import find_cluster
from vit_keras.training.loop import compile_model
from vit_keras.training.topologies import Topology, TorchTopology

BACKEND = keras.backend.backend()
DIGITS = read(str(ROOT / "configs" / "digits.yaml"))

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "700"}
TF_CONFIG = {"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
KERAS = {"PROCESS_ID": "1", "NUM_PROCESSES": "2", "JOB_ADDRESSES": "a:1,b:2"}
OWN = {
    "tensorflow": ({"TF_CONFIG": json.dumps(TF_CONFIG)}, (1, 2, ("a:1", "b:2"))),
    "jax": ({f"KERAS_DISTRIBUTION_{key}": x for key, x in KERAS.items()}, (1, 2, ("a:1",))),
    "torch": ({}, (1, 3, ())),
}
JOINED = {
    "tensorflow": ("127.0.0.1:701", "127.0.0.1:702", "127.0.0.1:703"),
    "jax": ("127.0.0.1:701",),
    "torch": (),
}


@pytest.fixture
def launched(monkeypatch):
    """Returns a function that sets a launcher's variables and unsets all others."""

    def launch(variables):
        for name in (*TORCHRUN, "TF_CONFIG", *OWN["jax"][0]):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    launch({})
    return launch


def test_a_cluster_is_read_from_the_environment(launched):
    assert find_cluster() is None
    launched(TORCHRUN | {"WORLD_SIZE": "1", "RANK": "0"})
    assert find_cluster() is None
    launched(TORCHRUN)
    found = find_cluster()
    assert (found.index, found.count, found.addresses) == (1, 3, JOINED[BACKEND])
    variables, expected = OWN[BACKEND]
    launched(TORCHRUN | variables)
    found = find_cluster()
    assert (found.index, found.count, found.addresses) == expected


def open_with(**fields):
    with distribution.open(dataclasses.replace(DIGITS, **fields)) as topology:
        return topology


def test_one_process_on_one_device_needs_nothing(launched):
    for mode in ("none", "auto"):
        topology = open_with(distribution=mode)
        assert type(topology) is Topology and topology.shard == (0, 1)
        assert topology.is_chief and topology.devices == 1 and topology.gather(7) == [7]


OPTIMIZER = {"optimizer": dataclasses.replace(DIGITS.optimizer, accumulation_steps=2)}
HALF = {"model": dataclasses.replace(DIGITS.model, dtype="mixed_float16")}
DINO = {
    "pretext": PretextConfig("dino", dino=DinoConfig(local_size=DIGITS.model.patch_size)),
    "label_smoothing": 0.0,
    "augment": AugmentConfig(),
}
SHARDS = {"shard_state": True}
REFUSED = {
    "tensorflow": [
        ({}, "model_parallel", {}, "model_parallel does not exist on tensorflow. Use KERAS_BACKEN"),
        ({}, "data_parallel", {}, "data_parallel needs several devices. Received: 1"),
        ({}, "data_parallel", OPTIMIZER, "`optimizer.accumulation_steps` must be 1 .*Received"),
        ({}, "data_parallel", DINO, "must be none, masked_patch or mae with a `distribution`"),
        ({}, "data_parallel", SHARDS, "`shard_state` must be false with tensorflow.*Use KERAS_BA"),
    ],
    "jax": [
        ({}, "model_parallel", {}, "not match the number of devices. Received: shape=.0, 2."),
        ({}, "none", SHARDS, "`shard_state` must be false with `distribution` none"),
        ({}, "data_parallel", SHARDS, "data_parallel needs several devices. Received: 1"),
    ],
    "torch": [
        ({}, "data_parallel", {}, "one process per GPU with torchrun, and use multi_worker"),
        (TORCHRUN, "multi_worker", HALF, "must be float32 or mixed_bfloat16.*ed: mixed_float16"),
        (TORCHRUN, "multi_worker", DINO, "none, masked_patch or mae .*KERAS_BACKEND=jax"),
        (TORCHRUN, "multi_worker", SHARDS, "`shard_state` must be false with torch.*Use KERAS_B"),
    ],
}
EVERYWHERE = [
    ({}, "multi_worker", {}, "another value if it names none.*=multi_worker, processes=1"),
    (TORCHRUN, "multi_worker", {"fewshot_every": 2}, "`fewshot_every` must be 0.*fewshot_every=2"),
    (TORCHRUN, "none", {}, "must be multi_worker.*Received: distribution=none, processes=3"),
]


@pytest.mark.parametrize(
    ("variables", "mode", "fields", "message"), [*REFUSED[BACKEND], *EVERYWHERE]
)
def test_what_does_not_work_is_refused(launched, variables, mode, fields, message):
    launched(variables)
    with pytest.raises(ValueError, match=message):
        open_with(distribution=mode, **fields)
    assert keras.distribution.distribution() is None


@pytest.mark.on("torch")
def test_each_process_drops_other_units():
    model = VisionTransformer(8, 4, 8, 1, 2, 8, 10, channels=1, dropout_rate=0.5)
    compile_model(model, DIGITS)
    states = [v for v in model.variables if v.path.endswith("seed_generator_state")]
    found = []
    for rank in (0, 1, 2):
        for i, state in enumerate(states):
            state.assign([100 + i, 7])
        topology = object.__new__(TorchTopology)
        topology.process_index = rank
        topology.prepare(model)
        found += [to_numpy(state.value).tolist() for state in states]
    assert found[: len(states)] == [[100 + i, 7] for i in range(len(states))]
    assert len({seed for seed, _ in found}) == 3 * len(states) >= 9
    assert {counter for _, counter in found} == {7}
