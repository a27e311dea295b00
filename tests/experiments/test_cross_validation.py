"""Cross-validation: every training image judges one run, and the reports are averaged."""

import dataclasses
import json

import numpy as np
import pytest

from vit_keras import data, evaluation
from vit_keras.config import Config, DataConfig, ModelConfig, OptimizerConfig
from vit_keras.experiments import cross_validate

SIZES = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16}


@pytest.mark.on("torch")
def test_the_table_holds_runs_in_which_a_development_part_of_the_others_chooses(tmp_path):
    config = Config(
        model=ModelConfig(image_size=8, patch_size=4, channels=1, **SIZES),
        data=DataConfig(train_split="train[:90]", dev_percent=25.0),
        batch=16,
        total_steps=90,
        eval_every=30,
        optimizer=OptimizerConfig(learning_rate=0.01),
        folds=3,
        patience=5,
        calibrate=True,
        kernels="default",
        workdir=str(tmp_path),
    )
    table = cross_validate(config)
    reports = [json.loads((tmp_path / f"fold-{i}" / "report.json").read_text()) for i in range(3)]
    assert json.loads((tmp_path / "cross_validation.json").read_text()) == reports
    assert sum(report["images"] for report in reports) == 90
    accuracies = [100 * report["accuracy"] for report in reports]
    mean, std = np.mean(accuracies), np.std(accuracies, ddof=1)
    assert f"| mean ± std | accuracy {mean:.2f} ± {std:.2f}%" in table
    assert (tmp_path / "cross_validation.md").read_text() == table
    assert "which chose the weights" not in table
    dataset, differs = data.load("digits", 1), False
    for number in range(3):
        chosen = dataclasses.replace(config.data, fold=(number, 3))
        train, dev, test = data.train_dev_test(dataset, chosen)
        rows = [
            {split.read(i).tobytes() for i in range(len(split))} for split in (train, dev, test)
        ]
        assert not (rows[0] & rows[1] or rows[0] & rows[2] or rows[1] & rows[2])
        assert len(train) + len(dev) + len(test) == 90 and len(dev) < len(test)

        folder = tmp_path / f"fold-{number}"
        report = reports[number]
        assert report["images"] == len(test) and "images_chose" not in report
        predictor, _ = evaluation.open_predictor(folder)
        outputs, labels, _ = predictor.outputs(predictor.batches(test, 64))
        told = evaluation.report(outputs, labels, dataset.class_names, predictor.task)
        assert told["accuracy"] == report["accuracy"]
        found, temperature = (
            predictor.outputs(predictor.batches(dev, 64)),
            predictor.task.temperature,
        )
        logits = temperature * np.log(predictor.as_probabilities(found[0]))
        assert evaluation.fit_temperature(logits, found[1]) == pytest.approx(temperature, rel=0.01)
        on_test = evaluation.fit_temperature(temperature * outputs, labels)
        differs |= abs(on_test - temperature) > 0.01 * temperature
        figures = json.loads((folder / "metrics.json").read_text())
        assert figures[-1]["step"] == 90
    assert differs  # the fold would have chosen another temperature
