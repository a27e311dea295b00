"""A run that starts from a family's weights, or from its name, trains the family's model."""

import dataclasses

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS, images_for, random_design
from tests.helpers import assert_close, weights_by_path
from tests.training.kill import model_differences
from tests.training.small import copy_as_killed
from vit_keras import runs, weights
from vit_keras.commands import run
from vit_keras.config import Config, ModelConfig, dump_config, parse_config, read_config
from vit_keras.experiments.starting_point import complete_model
from vit_keras.models import from_model_config
from vit_keras.weights.architectures import VisionTransformerArchitecture

pytestmark = pytest.mark.on("torch")

SMALL = {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "mlp_dim": 24}
FIELDS = (
    *("--dataset", "digits", "--batch", "16", "--batch_eval", "64", "--total_steps", "4"),
    *("--eval_every", "4", "--checkpoint_every", "2", "--keep_checkpoints", "9"),
    *("--kernels", "default", "--optimizer.learning_rate", "0.003", "--epochs", "null"),
)


def options_of(model):
    return VisionTransformerArchitecture.from_model(model).options


@pytest.mark.parametrize("name", DESIGNS)
def test_the_weights_bring_all_that_differs_from_the_papers_model(name, tmp_path):
    source = random_design(name)
    source.save(tmp_path / "model.keras")
    config = Config(model=ModelConfig(weights=str(tmp_path / "model.keras")))
    completed = complete_model(config)
    assert complete_model(completed).model == completed.model
    (tmp_path / "config.yaml").write_text(dump_config(completed))
    model = read_config(tmp_path / "config.yaml").model
    assert model == completed.model
    built = from_model_config(model, num_classes=5)
    weights.load(built, tmp_path / "model.keras", head="drop")
    expected = dataclasses.replace(options_of(source), head_use_bias=True)
    assert options_of(built) == expected
    theirs = weights_by_path(source)
    for path, value in weights_by_path(built).items():
        if not path.startswith("head"):
            np.testing.assert_array_equal(value, theirs.pop(path), err_msg=path)
    assert all(path.startswith("head") for path in theirs)
    for path, variable in [(v.path, v) for v in built.weights if v.path.startswith("head")]:
        variable.assign(np.resize(weights_by_path(source).get(path, [0.0]), variable.shape))
    if source.output_shape == built.output_shape:
        images = images_for(source)
        assert_close(built(images), source(images))


def test_a_variants_name_stands_for_its_whole_model():
    config = parse_config(["--model.variant", "DINOv2-S/14-reg", "--dataset", "folder:photos"])
    model = config.model
    assert (model.image_size, model.gelu, model.classifier) == (518, "exact", "token")
    small = dataclasses.replace(model, image_size=28, **SMALL)
    built = from_model_config(small, num_classes=2)
    assert options_of(built).changed() == {
        "layer_scale": 1e-5,
        "num_registers": 4,
        "position_cover": "class",
    }
    assert built.get_layer("encoderblock_1").layer_norm_epsilon == 1e-6
    assert built.preprocessing.mean == (0.485, 0.456, 0.406)
    assert built.resizing.positions == "bicubic_antialias"
    clip = ModelConfig("CLIP-B/32", **SMALL)
    assert (clip.gelu, clip.image_size) == ("quick", 224)
    changed = from_model_config(clip, num_classes=2).get_layer("encoderblock_0")
    assert (changed.gelu, changed.layer_norm_epsilon) == ("quick", 1e-5)
    assert ModelConfig().gelu == "tanh"  # of the paper's variants


@pytest.fixture(scope="module")
def dino(tmp_path_factory):
    """A tiny DINOv2 with registers for gray pictures of 8 x 8 pixels, without a head."""
    size = {"image_size": 8, "channels": 1, "num_classes": None, "classifier": "token"}
    model = random_design("DINOv2", **size, layer_norm_epsilon=1e-6)
    path = tmp_path_factory.mktemp("dino") / "dinov2.keras"
    weights.save(model, path)
    return path, model


def test_a_run_that_starts_from_a_dinov2_goes_on_to_the_same_bits(dino, tmp_path):
    path, source = dino
    arguments = ["train", *FIELDS, "--model.weights", str(path)]
    run([*arguments, "--workdir", str(tmp_path / "whole")])
    killed = copy_as_killed(tmp_path / "whole", tmp_path / "killed", 2)
    run([*arguments, "--workdir", str(killed)])
    assert not model_differences(tmp_path / "whole", killed)
    trained = runs.find_run(killed)
    assert trained.config.model.options["num_registers"] == 4
    model = vit_keras.open(trained.model_file)
    assert options_of(model) == options_of(source) and model.output_shape == (None, 10)
    before, after = weights_by_path(source), weights_by_path(model)
    assert np.abs(after["registers/registers"] - before["registers/registers"]).max() > 1e-4
    assert np.abs(after["registers/registers"] - before["registers/registers"]).max() < 0.1
