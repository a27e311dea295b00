"""What a run prints while it trains."""

import pytest

from tests.training.small import small_run

pytestmark = pytest.mark.once


def test_a_pipe_gets_one_line_for_each_evaluation(tmp_path, capsys):
    _, _, rows = small_run(tmp_path)
    error = capsys.readouterr().err
    assert "\r" not in error
    lines = [line for line in error.splitlines() if line.startswith("update ")]
    assert lines == [
        f"update {row['step']} of 12: accuracy={row['accuracy']:.4f}, loss={row['loss']:.4f}, "
        f"val_accuracy={row['val_accuracy']:.4f}, val_loss={row['val_loss']:.4f}, "
        f"{row['images_per_second']:g} images/s"
        for row in rows
    ]
    assert len(lines) == 3
