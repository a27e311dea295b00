"""A run on features that are computed once is the run through the whole model."""

import json

import numpy as np
import pytest

import vit_keras
from tests.helpers import assert_close, to_numpy, weights_by_path
from tests.training.small import Killed, assert_same_state, state, without_rate
from vit_keras import data
from vit_keras.config import Config, parse_config
from vit_keras.experiments import train_run
from vit_keras.training import checkpoints

pytestmark = pytest.mark.on("torch")

FIELDS = {
    "data.train_split": "train[:60]",
    "data.test_split": "test[:21]",  # a last batch of 5
    "batch": 8,
    "batch_eval": 8,
    "total_steps": 12,
    "eval_every": 4,
    "checkpoint_every": 3,
    "kernels": "default",
    "optimizer.freeze": '["[!h]*"]',
    "optimizer.learning_rate": 0.03,
    "optimizer.ema_decay": 0.7,
    "optimizer.accumulation_steps": 2,
}


def config(folder, **fields) -> Config:
    fields = FIELDS | {"cache_features": "true", "workdir": folder} | fields
    return parse_config([f"--{name}={value}" for name, value in fields.items()], default="")


def die(*arguments, **options):
    raise Killed


@pytest.fixture(scope="module")
def cached(tmp_path_factory, weights):
    """A run that is never stopped, on weights whose features tell pictures apart."""
    folder = tmp_path_factory.mktemp("runs") / "cached"
    return folder, train_run(config(folder, **{"model.weights": weights}))


def test_it_gives_the_model_that_training_through_the_model_gives(cached, weights, tmp_path):
    folder, report = cached
    fields = {"cache_features": "false", "model.weights": weights}
    through = train_run(config(tmp_path / "run", **fields))
    models = [vit_keras.open(place / "model.keras") for place in (tmp_path / "run", folder)]
    ours, theirs = map(weights_by_path, models)
    assert ours.keys() == theirs.keys() and np.abs(ours["head/kernel"]).max() > 0.01
    for name in ours:
        assert_close(ours[name], theirs[name], name=name)
    images = np.random.default_rng(0).normal(size=(5, 32, 32, 3)).astype("float32")
    logits = [to_numpy(model(images)) for model in models]
    assert_close(*logits)
    rows = [json.loads((f / "metrics.json").read_text()) for f in (tmp_path / "run", folder)]
    for one, other in zip(*map(without_rate, rows), strict=True):
        for name in one:
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-4), name
    assert through["confusion_matrix"] == report["confusion_matrix"]


def test_a_stopped_run_reads_its_features_and_ends_with_the_same_bits(
    cached, weights, tmp_path, monkeypatch
):
    """It dies between the features of the two splits, then after its first checkpoint."""
    folder, _ = cached
    again = config(tmp_path / "run", **{"model.weights": weights})
    write, save = data.StoredFeatures.write, checkpoints.save

    def write_or_die(place, *arguments, **options):
        write(place, *arguments, **options) if place.name == "train" else die()

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(data.StoredFeatures, "write", write_or_die)
        train_run(again)
    assert not list((tmp_path / "run").glob("*features*"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(checkpoints, "save", lambda *arguments: save(*arguments) and die())
        train_run(again)
    assert checkpoints.newest(tmp_path / "run" / "checkpoints").name == "step_000000003"
    with monkeypatch.context() as patch:
        patch.setattr(data.StoredFeatures, "write", die)  # nothing is computed again
        train_run(again)
    assert_same_state(state(folder, 12), state(tmp_path / "run", 12))
    ours, theirs = (vit_keras.open(f / "model.keras") for f in (folder, tmp_path / "run"))
    for one, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_damaged_features_and_other_weights_are_refused(cached, weights):
    folder, _ = cached
    again = config(folder, **{"model.weights": weights})
    file = folder / "features" / "test" / "features.npy"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(
        ValueError, match=r"damaged: the checksum of test/features.npy differs. Del"
    ):
        train_run(again)
    file.write_bytes(whole)
    meta = folder / "features" / "meta.json"
    recorded = json.loads(meta.read_text())
    meta.write_text(json.dumps({**recorded, "weights": "0" * 64}))
    with pytest.raises(ValueError, match="belong to other weights: `model.weights` has changed"):
        train_run(again)
    meta.write_text(json.dumps(recorded))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"augment.flip": "true"},
            r"`augment.flip` must be false with .*Received: augment.flip=true",
        ),
        (
            {"model.dropout_rate": 0.1, "augment.crop": "bit"},
            r"`model.dropout_rate` must be 0.0 and `augment.crop` must be resize.*Received: mod",
        ),
        ({"lora.rank": 2}, "`lora.rank` must be null.*Received: lora.rank=2"),
        ({"fewshot_every": 2}, "`fewshot_every` must be 0.*Received: fewshot_every=2"),
        ({"distribution": "auto"}, "`distribution` must be none.*Received: distribution=auto"),
        ({"optimizer.freeze": "[]"}, "optimizer.freeze`: the first needs frozen layers"),
    ],
)
def test_the_field_that_stands_in_the_way_is_named(fields, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **fields)
