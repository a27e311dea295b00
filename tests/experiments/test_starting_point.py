"""A run that starts from weights needs nothing else to know its model."""

import dataclasses
import json

import keras
import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import assert_close, randomize, to_numpy
from vit_keras import experiments, runs
from vit_keras.commands import run
from vit_keras.config import Config, DataConfig, ModelConfig, parse_config
from vit_keras.experiments.starting_point import complete_model
from vit_keras.models import (
    HybridViT,
    Preprocessing,
    ResNet,
    VisionTransformer,
    from_model_config,
)
from vit_keras.weights import load, save

pytestmark = pytest.mark.on("torch")

ODD = {"hidden_size": 20, "num_layers": 5, "num_heads": 4, "mlp_dim": 28, "num_classes": 6}
RECIPE = """
total_steps: 400
model: {variant: B/16, image_size: 384, channels: 1}
augment: {flip: true}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Hugging Face folder of 5 odd layers, with torchvision's pixels."""
    model = VisionTransformer((24, 32), 8, **ODD, name="odd")
    randomize(model, np.random.default_rng(1), scale=0.2)
    model.preprocessing = Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    place = tmp_path_factory.mktemp("odd") / "hf"
    save(model, place, format="huggingface")
    return place


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Colored pictures in two classes."""
    home, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(2)
    for number, name in enumerate(("dark", "light")):
        (home / name).mkdir()
        for k in range(6):
            pixels = rng.integers(120 * number, 120 * number + 130, (20, 30, 3), dtype="uint8")
            Image.fromarray(pixels).save(home / name / f"{k}.png")
    return home


def test_a_folder_of_odd_layers_is_fine_tuned_by_its_name_alone(folder, photos, tmp_path, capsys):
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    run(
        [
            *("train", "--config", str(tmp_path / "recipe.yaml"), "--model.weights", str(folder)),
            *("--dataset", f"folder:{photos}", "--workdir", str(tmp_path / "run")),
            *("--epochs", "1", "--batch", "4", "--optimizer.learning_rate", "1e-9"),
        ]
    )
    assert "num_layers=5" in capsys.readouterr().out
    trained = vit_keras.open(tmp_path / "run" / "model.keras")
    source = json.loads((folder / "config.json").read_text())
    assert trained.input_shape == (None, 24, 32, 3) and trained.output_shape == (None, 2)
    assert trained.preprocessing.mean == (0.485, 0.456, 0.406)
    assert trained.get_layer("encoderblock_4").num_heads == source["num_attention_heads"]
    recorded = runs.find_run(tmp_path / "run").config
    assert recorded.model.is_complete and recorded.model.num_layers == 5
    assert recorded.total_steps == recorded.eval_every == 2  # 10 pictures, 4 at a time
    # The rate changes no weight by more than 1e-9 an update, so the features are the source's.
    images = np.random.default_rng(3).normal(size=(2, 24, 32, 3)).astype("float32")
    cut = lambda model: keras.Model(model.input, model.get_layer("token").output)
    features = [to_numpy(cut(model)(images)) for model in (trained, vit_keras.open(folder))]
    assert_close(*features)


def test_the_variant_on_a_colored_folder_is_the_whole_variant(photos, tmp_path):
    options = ["--dataset", f"folder:{photos}", "--model.variant", "Ti/16", "--total_steps", "0"]
    run(["train", *options, "--workdir", str(tmp_path / "run")])
    model = vit_keras.open(tmp_path / "run" / "model.keras")
    assert model.input_shape == (None, 224, 224, 3)
    assert model.count_params() == 5_717_416 - 998 * 193  # Ti/16's with 2 of 1000 classes


SOURCES = {
    "rope": (VisionTransformer, (16, 4), {**ODD, "num_heads": 5, "position_embedding": "rope2d"}),
    "gray": (VisionTransformer, (16, 4), {**ODD, "channels": 1}),
    "hybrid": (HybridViT, (32, (1, 2), 0.5, 1), ODD),
    "resnet": (ResNet, (32, (2, 2), 0.5, 6), {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_model_of_a_file_is_the_files(name, rng, tmp_path):
    constructor, sizes, options = SOURCES[name]
    source = randomize(constructor(*sizes, **options), rng, scale=0.1)
    source.save(tmp_path / "model.keras")
    config = Config(model=ModelConfig(weights=str(tmp_path / "model.keras")))
    model = complete_model(config).model
    assert complete_model(dataclasses.replace(config, model=model)).model == model
    built = from_model_config(model, num_classes=6)
    ours, theirs = ({v.path: v.shape for v in m.weights} for m in (built, source))
    assert ours == theirs and built.input_shape == source.input_shape
    load(built, tmp_path / "model.keras")
    images = rng.normal(size=(2, *source.input_shape[1:])).astype("float32")
    assert_close(built(images), source(images))


def test_what_contradicts_the_weights_or_is_missing_is_named(folder, tmp_path, rng):
    def completed(*options):
        return complete_model(parse_config(["--model.weights", str(folder), *options]))

    assert completed("--model.image_size", "48").model.image_size == 48
    with pytest.raises(ValueError, match=r"have num_layers=5, and .*num_layers=7\. Leave it out"):
        completed("--model.num_layers", "7")
    with pytest.raises(ValueError, match=r"have hidden_size=20, and .*variant='B/16'\. Leave it"):
        completed("--model.variant", "B/16")
    with pytest.raises(ValueError, match=r"published checkpoint of variant 'B/16'.*'nowhere'"):
        complete_model(parse_config(["--model.weights", "nowhere"]))
    model = randomize(VisionTransformer(16, 4, **ODD), rng)
    save(model, tmp_path / "a.weights.h5")
    bare = ["--model.weights", str(tmp_path / "a.weights.h5")]
    with pytest.raises(ValueError, match=r"do not say the model's `model\.gelu`\. Give `model\.g"):
        complete_model(parse_config(bare))
    assert complete_model(parse_config([*bare, "--model.gelu", "exact"])).model.gelu == "exact"


@pytest.mark.parametrize("recipe", ["", "/full", "/linear", "/lora", "/probe"])
@pytest.mark.parametrize("more", [[], ["--folds", "3"], ["--model.variant", "Ti/16"]])
def test_recipes_that_fine_tune_ask_for_weights(tmp_path, recipe, more):
    arguments = ["--config", f"finetune{recipe}", "--dataset", "digits", *more]
    config = parse_config([*arguments, "--workdir", str(tmp_path)])
    learn = experiments.cross_validate if config.folds else experiments.train_run
    with pytest.raises(ValueError, match="so `model.weights` must name them.*--model.weights"):
        learn(config)
    assert not [*tmp_path.rglob("config.yaml")]
    random = parse_config([*arguments, "--model.weights", "null", "--model.variant", "Ti/16"])
    assert random.model.weights is None and random.model.is_complete


@pytest.mark.parametrize(("batch", "images"), [(100_000, 1437), (640, 20), (641, 10)])
def test_a_batch_above_the_images_is_said_or_refused(tmp_path, capsys, batch, images):
    sizes = {"patch_size": 4, "hidden_size": 8, "num_layers": 1, "num_heads": 1, "mlp_dim": 8}
    config = Config(
        model=ModelConfig(image_size=8, channels=1, **sizes),
        data=DataConfig(train_split=f"train[:{images}]"),
        batch=batch,
        total_steps=1,
        kernels="default",
        workdir=str(tmp_path),
    )
    if batch > 32 * images:
        with pytest.raises(ValueError, match=f"at most 64 times.*batch={batch} for {images} i"):
            experiments.train_run(config)
        assert not [*tmp_path.iterdir()]
    else:
        experiments.train_run(config)
        said = f"batch: {batch} images an update, more than the {images} to train on"
        assert capsys.readouterr().out.count(said) == 1
    sizes["patch_size"] = 2**18
    large = ModelConfig(image_size=2**20, channels=1, **sizes)  # 4 TB for each picture
    with pytest.raises(ValueError, match="fit in memory.*GB as floats. Give a smaller --batch"):
        experiments.train_run(dataclasses.replace(config, batch=2, model=large))
