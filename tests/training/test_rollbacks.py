"""A loss that is not finite stops the run at once, or makes it go back with half the rate."""

import json

import numpy as np
import pytest

from tests.training.small import RATE, small_config, small_model, small_run
from vit_keras.data.batches import Batches
from vit_keras.training import checkpoints
from vit_keras.training.records import NonFinite


def spoiling(step, *, times):
    """Puts a NaN into the images of update `step`, the first `times` times it is trained."""
    left = [times]

    def wrap(batches):
        def spoiled(start):
            whole = batches(start)

            def make(number, each):
                images, labels = whole[number]
                hit = start + number == step - 1 and left[0] > 0
                left[0] -= hit
                return np.where(hit, np.float32(np.nan), images), labels

            return Batches(make, len(whole), threads=0)

        return spoiled

    return wrap


def steps_of(folder):
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").iterdir())


@pytest.mark.on("torch")
def test_the_run_stops_at_the_update(tmp_path):
    message = (
        r"training stopped: the loss of update 8 is nan\. The last good checkpoint is "
        r".*step_000000006\..*--on_nan rollback"
    )
    with pytest.raises(NonFinite, match=message):
        small_run(tmp_path, wrap=spoiling(8, times=99))
    assert steps_of(tmp_path)[-1] == 6


@pytest.mark.nightly_on("tensorflow")
def test_the_run_goes_back_with_half_the_rate(tmp_path, capsys):
    fields = {"on_nan": "rollback", "max_rollbacks": 1}
    optimizer = {"decay_type": "linear"}
    with pytest.raises(NonFinite, match=r"stopped \(1 of 1 rollbacks\): the loss of update 2"):
        small_run(tmp_path / "hopeless", wrap=spoiling(2, times=99), **fields)
    rollbacks = json.loads((tmp_path / "hopeless" / "rollbacks.json").read_text())
    assert [r["cause"] for r in rollbacks] == ["the loss of update 2 is nan"]
    assert steps_of(tmp_path / "hopeless") == [0]  # the checkpoint to go back to

    def die_at_6(model, folder, step, *rest, save=checkpoints.save):
        save(model, folder, step, *rest)
        if step == 6:
            raise KeyboardInterrupt

    folder = tmp_path / "saved"
    arguments = {"wrap": spoiling(5, times=1), "optimizer": optimizer, **fields}
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoints, "save", die_at_6)
        small_run(folder, **arguments)
    assert f"learning rate {RATE / 2:g} from now on" in capsys.readouterr().out
    record = folder / "rollbacks.json"
    content = record.read_text()
    for damaged in (None, "[]"):  # the full rate would come back without a word
        record.unlink() if damaged is None else record.write_text(damaged)
        with pytest.raises(ValueError, match=r"must hold at least 1 rollbacks. Received: 0"):
            small_run(folder, **arguments)
    record.write_text(content)
    _, _, rows = small_run(folder, **arguments)  # keeps the lower rate
    expected = [(4, RATE * 8 / 12), (8, RATE / 2 * 4 / 12), (12, 0.0)]  # it went back to 4
    rates = [(row["step"], row["learning_rate"]) for row in rows]
    assert np.array(rates) == pytest.approx(np.array(expected), abs=1e-7)


def test_a_state_that_is_not_finite_is_not_saved(tmp_path):
    model = small_model(small_config(tmp_path))
    checkpoints.save(model, tmp_path, 1, keep=1)
    slot = model.optimizer.variables[-1]
    slot.assign(np.full(slot.shape, np.inf))
    with pytest.raises(NonFinite, match="after update 2, .* is not finite"):
        checkpoints.save(model, tmp_path, 2, keep=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000001"]
