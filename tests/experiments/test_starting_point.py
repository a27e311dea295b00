"""A run that starts from weights needs nothing else to know its model, and keeps its commit."""

import dataclasses
import functools

import numpy as np
import pytest

import vit_keras
from tests.designs import DESIGNS, images_for, random_design
from tests.helpers import assert_close, randomize, weights_by_path
from tests.weights.hub_server import COMMIT
from vit_keras import experiments, models, runs
from vit_keras.commands import run
from vit_keras.config import (
    Config,
    DataConfig,
    DistillConfig,
    ModelConfig,
    dump_config,
    parse_config,
    read_config,
)
from vit_keras.experiments.run_model import complete_model, pin_weights
from vit_keras.models.architectures import VisionTransformerArchitecture
from vit_keras.weights import load, save

pytestmark = pytest.mark.on("torch")

ODD = {"hidden_size": 20, "num_layers": 5, "num_heads": 4, "mlp_dim": 28, "num_classes": 6}


def options_of(model):
    return VisionTransformerArchitecture.from_model(model).options


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Hugging Face folder of 5 odd layers, with torchvision's pixels."""
    model = models.VisionTransformer((24, 32), 8, **ODD, name="odd")
    randomize(model, np.random.default_rng(1), scale=0.2)
    model.preprocessing = models.Preprocessing((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    place = tmp_path_factory.mktemp("odd") / "hf"
    save(model, place, format="huggingface")
    return place


def odd(constructor, *sizes, **options):
    model = constructor(*sizes, **options)
    return randomize(model, np.random.default_rng(4), scale=0.1)


ROPE = {**ODD, "num_heads": 5, "position_embedding": "rope2d"}
SOURCES = {
    **{name: functools.partial(random_design, name) for name in DESIGNS},
    "rope": functools.partial(odd, models.VisionTransformer, 16, 4, **ROPE),
    "gray": functools.partial(odd, models.VisionTransformer, 16, 4, **ODD, channels=1),
    "hybrid": functools.partial(odd, models.HybridViT, 32, (1, 2), 0.5, 1, **ODD),
    "resnet": functools.partial(odd, models.ResNet, 32, (2, 2), 0.5, 6),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_weights_bring_all_that_differs_from_the_papers_model(name, tmp_path):
    source = SOURCES[name]()
    source.save(tmp_path / "model.keras")
    config = Config(model=ModelConfig(weights=str(tmp_path / "model.keras")))
    completed = complete_model(config)
    assert complete_model(completed).model == completed.model
    (tmp_path / "config.yaml").write_text(dump_config(completed))
    model = read_config(tmp_path / "config.yaml").model
    assert model == completed.model
    built = models.from_model_config(model, num_classes=source.output_shape[-1])
    load(built, tmp_path / "model.keras", head="drop")
    if name in DESIGNS:
        assert options_of(built) == dataclasses.replace(options_of(source), head_use_bias=True)
    theirs, is_head = weights_by_path(source), lambda path: path.startswith("head")
    for path, value in weights_by_path(built).items():
        if not is_head(path):
            np.testing.assert_array_equal(value, theirs.pop(path), err_msg=path)
    assert all(map(is_head, theirs))
    for variable in filter(lambda v: is_head(v.path), built.weights):
        variable.assign(np.resize(theirs.get(variable.path, [0.0]), variable.shape))
    images = images_for(source)
    assert_close(built(images), source(images))


def test_what_contradicts_the_weights_or_is_missing_is_named(folder, tmp_path, rng):
    def completed(*options):
        return complete_model(parse_config(["--model.weights", str(folder), *options]))

    assert completed("--model.image_size", "48").model.image_size == 48
    with pytest.raises(ValueError, match=r"num_layers=5. Received: num_layers=7\. Leave it out"):
        completed("--model.num_layers", "7")
    with pytest.raises(ValueError, match=r"hidden_size=20. Received: variant='B/16'\. Leave it"):
        completed("--model.variant", "B/16")
    with pytest.raises(ValueError, match=r"published checkpoint of variant 'B/16'.*'nowhere'"):
        complete_model(parse_config(["--model.weights", "nowhere"]))
    model = randomize(models.VisionTransformer(16, 4, **ODD), rng)
    save(model, tmp_path / "a.weights.h5")
    bare = ["--model.weights", str(tmp_path / "a.weights.h5")]
    with pytest.raises(ValueError, match=r"do not give `model\.gelu`\. Give `model\.g"):
        complete_model(parse_config(bare))
    assert complete_model(parse_config([*bare, "--model.gelu", "exact"])).model.gelu == "exact"


@pytest.mark.parametrize(("recipe", "more"), [("/full", ["--folds", "3"]), ("/lora", [])])
def test_recipes_that_fine_tune_ask_for_weights(tmp_path, recipe, more):
    arguments = ["--config", f"finetune{recipe}", "--dataset", "digits", *more]
    config = parse_config([*arguments, "--workdir", str(tmp_path)])
    learn = experiments.cross_validate if config.folds else experiments.train_run
    with pytest.raises(ValueError, match="so `model.weights` must name them.*--model.weights"):
        learn(config)
    assert not [*tmp_path.rglob("config.yaml")]
    plain = ["--model.weights", "null", "--model.variant", "Ti/16", "--lora.rank", "null"]
    random = parse_config([*arguments, *plain])
    assert random.model.weights is None and random.model.is_complete


def test_a_batch_far_above_the_images_is_refused(tmp_path):
    sizes = {"patch_size": 4, "hidden_size": 8, "num_layers": 1, "num_heads": 1, "mlp_dim": 8}
    parts = {"model": ModelConfig(image_size=8, channels=1, **sizes)}
    parts["data"] = DataConfig(train_split="train[:10]")
    shared = {"total_steps": 1, "kernels": "default", "workdir": str(tmp_path)}
    with pytest.raises(ValueError, match="at most 64 times.*batch=641 for 10 i"):
        experiments.train_run(Config(**parts, batch=641, **shared))
    assert not [*tmp_path.iterdir()]


ADDRESS, LATER = "hf://ann/pets", "f" * 40
NO_UPDATES = ("--dataset", "digits", "--total_steps", "0", "--kernels", "default")


def upload(server, folder, seed, commit):
    """Puts another model on the hub, at another commit; returns it."""
    model = randomize(models.VisionTransformer(16, 8, 12, 1, 2, 16, 3), np.random.default_rng(seed))
    save(model, folder / str(seed), format="huggingface")
    files = {file.name: file.read_bytes() for file in (folder / str(seed)).iterdir()}
    server.upload(files, commit)
    return model


def blocks(model):
    return {p: v for p, v in weights_by_path(model).items() if p.startswith("encoderblock_0")}


def train(folder, *options):
    """Writes the model that a run of no updates starts from; returns the blocks and the address."""
    run(["train", *NO_UPDATES, "--model.weights", ADDRESS, *options])
    (model,) = folder.rglob("model.keras")
    recorded = runs.find_run(model.parent).config.model.weights
    return blocks(vit_keras.open(model)), recorded


def test_a_run_goes_on_from_the_commit_that_it_began_with(serve_hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server = serve_hub({})
    first = blocks(upload(server, tmp_path, 1, COMMIT))
    folder = tmp_path / "runs"
    np.testing.assert_equal(train(folder), (first, f"{ADDRESS}@{COMMIT}"))

    second = blocks(upload(server, tmp_path, 2, LATER))
    (model,) = folder.rglob("model.keras")
    model.unlink()  # as of a run that was stopped before
    np.testing.assert_equal(train(folder), (first, f"{ADDRESS}@{COMMIT}"))
    other = tmp_path / "other"
    np.testing.assert_equal(train(other, "--workdir", str(other)), (second, f"{ADDRESS}@{LATER}"))
    with pytest.raises(ValueError, match=f"model.weights: '{ADDRESS}@{COMMIT}' there, '{ADDRESS}@"):
        train(folder, "--model.weights", f"{ADDRESS}@{LATER}")


def test_a_teacher_is_pinned_and_a_branch_is_not(serve_hub, tmp_path):
    upload(serve_hub({}), tmp_path, 1, COMMIT)
    config = Config(
        dataset="digits",
        workdir=str(tmp_path / "run"),
        model=ModelConfig(weights=f"{ADDRESS}@v1.0"),
        distill=DistillConfig(teacher=f"{ADDRESS}/model.safetensors"),
    )
    pinned = pin_weights(config)
    assert pinned.distill.teacher == f"{ADDRESS}@{COMMIT}/model.safetensors"
    assert pinned.model.weights == config.model.weights
    assert pin_weights(pinned) == pinned
    later = [dataclasses.replace(c, workdir=None) for c in (config, pinned)]
    assert len({*map(runs.default_workdir, later)}) == 1  # one command, one folder
