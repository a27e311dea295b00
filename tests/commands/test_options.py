"""The options that several commands share."""

import argparse
import types

import pytest

from vit_keras.commands import options
from vit_keras.config import Config, DataConfig

pytestmark = pytest.mark.once

RUN = types.SimpleNamespace(
    config=Config(dataset="folder:photos", data=DataConfig(data_dir="tfds", test_percent=25))
)


def choose(trained, *arguments):
    parser = argparse.ArgumentParser()
    options.add_dataset(parser)
    return options.dataset_of(parser.parse_args(arguments), trained)


def test_the_data_set_is_the_runs_unless_another_is_named():
    assert choose(None) == (None, DataConfig())
    assert choose(RUN) == ("folder:photos", RUN.config.data)
    assert choose(RUN, "--dataset", "digits") == ("digits", RUN.config.data)
    assert choose(None, "--dataset", "digits") == ("digits", DataConfig())


def test_a_given_data_folder_replaces_the_runs_alone():
    _, config = choose(RUN, "--data_dir", "other")
    assert config == DataConfig(data_dir="other", test_percent=25)
    assert choose(None, "--data_dir", "other")[1] == DataConfig(data_dir="other")


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("digits", "digits"),
        ("folder:photos/flowers", "flowers"),
        ("folder:photos/flowers/", "flowers"),
        ("table:lists/birds.csv", "birds.csv"),
        ("tfds:oxford_iiit_pet:4.0.0", "oxford_iiit_pet:4.0.0"),
        ("vtab:cifar100", "cifar100"),
    ],
)
def test_figures_carry_the_name_of_their_data_set(name, label):
    assert options.dataset_label(name) == label


def test_a_folder_that_is_the_current_one_has_a_name(tmp_path, monkeypatch):
    (tmp_path / "flowers").mkdir()
    monkeypatch.chdir(tmp_path / "flowers")
    assert options.dataset_label("folder:.") == "flowers"
