"""`keras.saving.load_model` opens every kind of file after `import vit_keras` alone."""

import json

import keras
import numpy as np
import pytest

from tests.helpers import ROOT, randomize, run_script, to_numpy
from vit_keras import exporting, models
from vit_keras import vit as version_0
from vit_keras.config import Config, DinoConfig, OptimizerConfig, PretextConfig
from vit_keras.exporting.serving import serving_model
from vit_keras.models import VisionTransformer
from vit_keras.support.tasks import Task
from vit_keras.training.loop import compile_model

pytestmark = pytest.mark.on("torch")

SIZES = {"hidden_size": 8, "num_layers": 2, "num_heads": 2, "mlp_dim": 8, "num_classes": 3}
SHARES = (0.2, 0.3, 0.5)
SOURCE = (4, 1, 4, 4)  # three of four patches are masked
DINO = DinoConfig(local_size=16, prototypes=8, head_hidden_size=8, bottleneck_size=4)
DECODER = {"decoder_hidden_size": 8, "decoder_num_layers": 1, "decoder_num_heads": 2}
SGD = OptimizerConfig(name="sgd", momentum_dtype="bfloat16", accumulation_steps=2)
ADAMW = OptimizerConfig(ema_decay=0.9, layer_decay=0.8)


def vit(**options):
    return VisionTransformer(16, 8, **{**SIZES, **options})


def of_run(model=vit, task="classes", **fields):
    """A model that is compiled as the run of a configuration compiles it."""

    def build():
        config, made = Config(total_steps=4, task=task, **fields), model()
        if config.pretext.is_active:
            made = models.pretext_model(made, config.pretext, 0, 4)
        else:
            made.task = Task(task, shares=SHARES)
        compile_model(made, config)
        return made

    return build


def adapted():
    model = vit()
    models.add_lora(model, rank=2)
    return model


def old():
    sizes = {name: size for name, size in SIZES.items() if name != "num_classes"}
    return version_0.build_model(16, patch_size=8, classes=3, name="old", **sizes)


RUNS = {
    "classes": of_run(optimizer=SGD),
    "classes_adjusted": of_run(loss="logit_adjusted", balance="weights", optimizer=ADAMW),
    "classes_focal": of_run(loss="focal"),
    "labels": of_run(loss="focal", task="labels"),
    "numbers": of_run(loss="huber", task="numbers"),
    "masks": of_run(lambda: models.segmenter(vit(), 3, width=4), task="masks"),
    "mae": of_run(pretext=PretextConfig(objective="mae", **DECODER)),
    "colors": of_run(pretext=PretextConfig(objective="masked_patch")),
    "dino": of_run(pretext=PretextConfig(objective="dino", dino=DINO)),
}
OTHERS = {
    "adapted": adapted,
    "version_0": old,
    "hybrid": lambda: models.HybridViT(32, (1, 1), 0.5, 1, **SIZES),
    "for_inference": lambda: exporting.for_inference(vit(), with_attention=True),
    "for_inference_map": lambda: exporting.for_inference(vit(classifier="map")),
    "boxes": lambda: serving_model(
        models.with_joined_boxes(models.detector(vit(), 3, num_tokens=4)), "boxes"
    ),
    "tokens": lambda: models.detector(vit(), 3, num_tokens=4),
    "patches": lambda: models.detector(vit(), 3, "patches"),
    "mask": lambda: serving_model(models.segmenter(vit(), 3, "linear"), "mask"),
}
WHOLE_H5 = ("classes_focal", "masks", "for_inference_map", "version_0")
SCRIPT = """
import json, sys
import keras, vit_keras
import numpy as np

loaded, folder, found = [*sys.modules], sys.argv[1], {}
for name in sys.argv[2:]:
    model = keras.saving.load_model(f"{folder}/{name}")
    arrays = np.load(f"{folder}/{name.split('.')[0]}.npz")
    images = [arrays[key] for key in arrays.files]
    outputs = keras.tree.flatten(model(images if images[1:] else images[0], training=False))
    config = model.get_compile_config() if model.compiled else None
    found[name] = [[keras.ops.convert_to_numpy(x).tolist() for x in outputs], config]
print(json.dumps([found, loaded]))
"""


def draw(tensor, rng):
    """A batch of two for an input of a model."""
    if tensor.name == "source":
        return np.array([SOURCE] * 2)
    high = 256 if tensor.dtype == "uint8" else 2
    return rng.integers(0, high, (2, *tensor.shape[1:])).astype(tensor.dtype)


def test_every_kind_of_file_opens_in_an_empty_process_that_registers_all_names(tmp_path, rng):
    saved = {}
    for name, build in {**RUNS, **OTHERS}.items():
        model = randomize(build(), rng)
        images = [draw(x, rng) for x in model.inputs]
        np.savez(tmp_path / f"{name}.npz", *images)
        outputs = keras.tree.flatten(model(images if images[1:] else images[0], training=False))
        config = json.loads(json.dumps(model.get_compile_config())) if name in RUNS else None
        for suffix in (".keras", ".h5") if name in WHOLE_H5 else (".keras",):
            model.save(tmp_path / f"{name}{suffix}")
            saved[f"{name}{suffix}"] = [to_numpy(x) for x in outputs], config
    printed = run_script("-c", SCRIPT, tmp_path, *saved).stdout.splitlines()[-1]
    found, loaded = json.loads(printed)
    for path in (ROOT / "vit_keras").rglob("*.py"):
        if "@keras.saving.register_keras_serializable" in path.read_text():
            assert ".".join(path.relative_to(ROOT).with_suffix("").parts) in loaded
    for name, (outputs, config) in saved.items():
        there, config_there = found[name]
        for one, other in zip(there, outputs, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * np.abs(other).max())
        if config and name.endswith(".h5"):  # which holds the loss alone
            config, config_there = config["loss"], config_there["loss"]
        assert config_there == config, name
