"""Keras opens the model of every recipe's run, in an empty process that imports vit_keras."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.data.mask_pictures import write_folder
from tests.helpers import ROOT, assert_close, randomize, run_script, to_numpy
from vit_keras import variants
from vit_keras.commands import run
from vit_keras.config import parse_config
from vit_keras.models import VisionTransformer
from vit_keras.weights import save

CONFIGS = ROOT / "configs"
NAMES = [str(path.relative_to(CONFIGS).with_suffix("")) for path in sorted(CONFIGS.rglob("*.yaml"))]
FEW = ("pretrain/jft_r50",)  # other tests open models of the other kinds
OWN_PICTURES = ("finetune", *(f"finetune/{name}" for name in ("linear", "full", "lora", "probe")))
SIZES = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 8}
DECODER = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}
DINO = {"local_size": 8, "prototypes": 16, "head_hidden_size": 8, "bottleneck_size": 4}
SCRIPT = """
import json, sys
import keras, vit_keras
import numpy as np

found = []
for file in sys.argv[1:]:
    model = keras.saving.load_model(f"{file}/model.keras")
    inner = keras.Model(model.inputs, [model.layers[-2].output, model.output])
    outputs = inner(np.load(f"{file}/images.npy"), training=False)
    as_list = lambda x: keras.ops.convert_to_numpy(keras.ops.cast(x, "float32")).tolist()
    found.append([model.task.kind, *map(as_list, outputs)])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Pictures with classes, masks, and a table of labels and numbers; weights to start from."""
    folder, rng = tmp_path_factory.mktemp("sources"), np.random.default_rng(0)
    rows = ["path,even,third,size,split"]
    for split, count in (("train", 36), ("test", 12)):
        for i in range(count):
            place = folder / "photos" / split / "abc"[i % 3]
            place.mkdir(parents=True, exist_ok=True)
            picture = rng.integers(0, 256, (20, 24, 3), dtype="uint8")
            Image.fromarray(picture).save(place / f"{i}.png")
            path, labels = place / f"{i}.png", (i % 2, int(i % 3 == 0))
            rows.append(f"{path},{labels[0]},{labels[1]},{picture.mean()},{split}")
    (folder / "rows.csv").write_text("\n".join(rows))
    write_folder(folder / "masks")
    model = randomize(VisionTransformer(16, 8, **SIZES, num_classes=5), rng, scale=0.2)
    save(model, folder / "vit.npz", format="google")
    return folder


def words(names, folder):
    """The arguments of a run of two updates, or an epoch, of a small model by these recipes."""
    recipes = [word for name in names for word in ("--config", name)]
    config = parse_config(recipes, default="")
    fields = {"batch": 8, "batch_eval": 8, "eval_every": 2, "kernels": "default"}
    fields |= {"epochs": 1} if config.epochs else {"total_steps": 2, "checkpoint_every": 2}
    fields |= {"optimizer.warmup_steps": 1} if config.optimizer.warmup_steps else {}
    fields["optimizer.accumulation_steps"] = min(config.optimizer.accumulation_steps, 2)
    fields |= {"data.train_split": "train", "data.test_split": "test"}
    fields["dataset"] = {
        "labels": f"table:{folder / 'rows.csv'}",
        "numbers": f"table:{folder / 'rows.csv'}",
        "masks": f"folder:{folder / 'masks'}",
    }.get(config.task, f"folder:{folder / 'photos'}")
    columns = {"labels": "even,third", "numbers": "size"}
    fields |= {"data.label_columns": columns[config.task]} if config.task in columns else {}
    fields |= {"distill.teacher": folder / "teacher"} if config.distill.is_active else {}
    fields |= _pretext(config.pretext) | _model(config.model, names[-1] in OWN_PICTURES, folder)
    return recipes + [f"--{name}={value}" for name, value in fields.items()]


def _pretext(config):
    if config.is_dino:
        return {f"pretext.dino.{name}": size for name, size in DINO.items()}
    is_mae = config.objective == "mae"
    return {f"pretext.{name}": size for name, size in DECODER.items()} if is_mae else {}


def _model(config, brings_weights, folder):
    """The fields of a small model of the recipe's kind."""
    if config.weights or brings_weights:
        return {"model.weights": folder / "vit.npz", "model.variant": "null"} | (
            {"model.image_size": 24} if config.image_size else {}
        )
    kind = type(variants.get(config.variant)) if config.variant else None
    fields = {"image_size": 32} if config.variant else {}
    if kind is not variants.ResNetVariant:
        fields |= SIZES
    if kind in (variants.ResNetVariant, variants.HybridVariant):
        fields |= {"resnet_layers": "[1]", "resnet_width": 0.5}
    elif config.variant:
        fields |= {"patch_size": 8}
    fields |= {"representation_size": 8} if config.representation_size else {}
    return {f"model.{name}": value for name, value in fields.items()}


def in_order(name):
    """The recipe after the one that it changes."""
    if name in ("labels", "numbers"):
        return "digits", name
    if name.startswith("augreg/") and "imagenet" not in name:
        return "augreg/imagenet", name
    return (name,)


@pytest.mark.on("torch")
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(FEW, id="few"),
        pytest.param(
            [name for name in NAMES if name not in FEW], id="others", marks=pytest.mark.nightly
        ),
    ],
)
def test_keras_opens_the_models_of_recipes_runs(names, folder, tmp_path):
    if any(name.startswith("distill/") for name in names):
        run(["train", *words(("digits",), folder), "--workdir", str(folder / "teacher")])
    expected, files = {}, []
    for number, name in enumerate(names):
        files.append(tmp_path / str(number))
        run(["train", *words(in_order(name), folder), "--workdir", str(files[-1])])
        model = vit_keras.open(files[-1] / "model.keras")
        rng = np.random.default_rng(number)
        images = rng.normal(size=(2, *model.input_shape[1:])).astype("float32")
        np.save(files[-1] / "images.npy", images)
        inner = keras.Model(model.inputs, [model.layers[-2].output, model.output])
        outputs = [to_numpy(keras.ops.cast(x, "float32")) for x in inner(images, training=False)]
        expected[name] = model.task.kind, *outputs
    found = json.loads(run_script("-c", SCRIPT, *files).stdout.splitlines()[-1])
    for (name, (kind, *outputs)), other in zip(expected.items(), found, strict=True):
        assert kind == other[0] and np.abs(outputs[0]).max() > 0.01, name
        for ours, theirs in zip(outputs, other[1:], strict=True):  # the features, and the head's
            assert_close(np.array(theirs, "float32"), ours, name=name)
