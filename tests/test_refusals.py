"""Arguments that do not fit are refused with the rule, what was received, and the remedy.

What a file, a command line or a data set holds is refused in the tests of its own room.
"""

import functools

import keras
import numpy as np
import pytest

from vit_keras import applications, data, evaluation, exporting, layers, models, retrieval, runtimes
from vit_keras.config import (
    AugmentConfig,
    Config,
    DataConfig,
    DinoConfig,
    ModelConfig,
    OptimizerConfig,
    PretextConfig,
)
from vit_keras.experiments import planning
from vit_keras.support.tasks import Task
from vit_keras.training import SGD, AdamW, SetPrediction, build_optimizer, freeze

pytestmark = pytest.mark.once

SIZES = {"hidden_size": 12, "num_layers": 2, "num_heads": 3, "mlp_dim": 20, "num_classes": 5}
GRID, NONE, RELATIVE = (2, 3), {"position_embedding": "none"}, {"position_embedding": "relative_2d"}


@functools.cache
def vit(**options):
    return models.VisionTransformer(**{"image_size": 8, "patch_size": 4, **SIZES, **options})


@functools.cache
def detector():
    return models.with_joined_boxes(models.detector(vit(), 3, num_tokens=4))


@functools.cache
def resnet():
    return models.ResNet(32, (1,), 0.5, 5)


@functools.cache
def hybrid():
    return models.HybridViT(32, (1,), 0.5, 1, **SIZES)


@functools.cache
def predictor():
    return evaluation.make_predictor(vit())


def plan(arguments, **fields):
    fields = {"batch": 64, "model": ModelConfig("Ti/16", image_size=32), **fields}
    return planning.plan(Config(**fields), **{"device": "h100", **arguments})


def attention(**arguments):
    options = {"num_heads": 3, "grid": GRID, "options": {"window_size": 2}, **arguments}
    layers.MultiHeadDotProductAttention(**options).build((2, 6, 12))


def rows(function, *table):
    """A row of the tables below for each of `(arguments, message)`."""
    return [(functools.partial(function, **arguments), message) for arguments, message in table]


LAYERS = [
    *rows(
        attention,
        ({"grid": None}, "`window_size` needs the `grid`.*window_size=.2, 2., grid=None"),
        ({"position_embedding": "relative"}, "must be None with.*'relative'"),
        ({"position_embedding": "rope2d"}, "must divide the grid.*grid=.2, 3.*'rope2d'"),
        ({"options": {"window_size": 2, "qk_norm": True}}, "must divide.*qk_norm=True"),
    ),
    (lambda: layers.TakeClassToken([0]), r"`index` must be a nonnegative int. .*=\[0\]"),
    (lambda: layers.StdConv(4, 2), "`kernel_size` must be odd.*kernel_size=2"),
    (lambda: layers.PatchEmbedding(8, 4)(keras.Input((None, None, 3))), "images must be known"),
    (
        lambda: layers.PatchEmbedding(8, 4)(np.zeros((1, 8, 10, 3), "float32")),
        r"`patch_size` must divide `image_size`.*=\(8, 10\)",
    ),
    (lambda: layers.AddSinCosPositions(GRID).build((1, 5, 8)), "has 6 patches.*Received: 5"),
    (lambda: layers.RotaryPositions(GRID).build((1, 6, 2, 6)), "4 must divide the size of a"),
]
MODELS = [
    *rows(
        vit,
        ({"image_size": None}, "must be known when a Vision Transformer is.*`image_size`"),
        ({"image_size": None, "crop_to_patches": True}, "must be known when a Vision"),
        ({"num_heads": 5}, "`num_heads` must divide `hidden_size`.*num_heads=5, hidden_size=12"),
        ({"dropout_rate": 1.0}, "`dropout_rate` must be at least 0 and below 1.*=1.0"),
        ({"patch_keep_rate": 2}, "keep_rate` must be the fraction of patches.*=2"),
        ({**NONE, "position_embedding_at": "every"}, "must be 'stem' unless.*'none', .*'every'"),
    ),
    (lambda: models.detector(vit(**RELATIVE), 3), "use head='patches'.*'relative_2d'"),
    (lambda: models.detector(vit(position_embedding_at="every"), 3), "_at='every'"),
    (lambda: models.detector(resnet(), 3), "needs a model with one PatchEmbedding layer"),
    (lambda: models.explain(vit(), np.zeros((1, 8, 8, 3)), 5), "from 0 to 4. .*class_index=5"),
    (lambda: models.with_image_size(vit(), 16, "area"), "`positions` must be one of .*'area'"),
    (lambda: models.with_patch_size(hybrid(), 1), "into patches itself.*begins with StdConv"),
    (lambda: models.with_image_size(hybrid(), 22), "multiple of the total stride"),
    (lambda: models.feature_pyramid(vit(), levels=(3,)), "strides in pixels.*Received: 3 for"),
    (lambda: models.add_lora(vit(), 2, ["queries"]), "has query, key, value, out"),
    (lambda: models.add_lora(vit(), 10**6), r"`rank` must be at most \d+, .*rank=1000000"),
    (lambda: models.add_lora(vit(), 2, alpha=0), "`alpha` must be above 0, .* rank=2, alpha=0"),
    (lambda: models.add_lora(vit(), 2, train=["heed"]), "`train` must hold patterns.*'heed'"),
    (lambda: models.pretext_model(resnet(), PretextConfig("mae")), "its only input into patches"),
    *rows(
        applications.ViTTi16,
        ({"class_names": "cat"}, "must be 3 names, one for each class. Received: 'cat'"),
        ({"class_names": ["a", "b"], "classes": 3}, "must be 3 names.*Received: ..a', 'b'."),
        ({"weights": "nowhere.keras"}, r"`weights` must be None.*'nowhere\.keras'"),
        ({"input_shape": (None, None, 3)}, "height and width of the images must be known"),
    ),
]
RUNS = [
    (lambda: OptimizerConfig(learning_rate=0.0), "`optimizer.learning_rate` must be above 0"),
    *rows(
        Config,
        ({"loss": "sigmoid", "label_smoothing": 0.1}, "and `loss`: the first needs"),
        (
            {"task": "classes", "augment": AugmentConfig(crop="objects")},
            "`augment.crop` and `task`: crops of objects need task boxes",
        ),
        (
            {"task": "boxes", "augment": AugmentConfig(rotation_degrees=5)},
            "`augment.rotation_degrees` must be 0.0 with `task` boxes",
        ),
    ),
    (lambda: DinoConfig(local_scale=(0.5, 0.2)), "`pretext.dino.local_scale` must be"),
    (lambda: DataConfig(fold=(5, 5)), r"`data.fold` must be \[i, k\] with i from 0 to k - 1"),
    (lambda: freeze(vit.__wrapped__(), ["embedings"]), "'embedings', which matches none. Similar"),
    (lambda: freeze(vit.__wrapped__(), ["*"]), r"must leave at least one layer that trains.*'\*'"),
    (lambda: build_optimizer(OptimizerConfig(layer_decay=0.5), 10, resnet()), "a model with"),
    (lambda: SGD(momentum_dtype="float16"), "`momentum_dtype` must be one of 'float32', 'bf"),
    (lambda: AdamW(use_ema=True, ema_overwrite_frequency=5), "`ema_overwrite_frequency` must be"),
    (lambda: plan({"devices": 3}), "`batch` must be a multiple of devices.*devices=3"),
    (lambda: plan({}, pretext=PretextConfig("mae")), "`pretext.objective` must be none with a pl"),
    (lambda: plan({}, folds=5), "`folds` must be 0 with a plan, which covers one run .*Received: "),
    (lambda: plan({}, model=ModelConfig("R50x1")), "Measure one update of this model instead"),
]
TILES, NO_CLASSES = evaluation.TileOptions(tiles=True), data.Dataset("d", {}, "ab", kind="labels")
USES = [
    (
        lambda: evaluation.predict_files(predictor(), [], tiles=TILES),
        "`tiles` needs a model of masks or boxes. Received: a model of classes",
    ),
    *rows(
        lambda **arguments: evaluation.predict_files(
            evaluation.make_predictor(detector()), [], **arguments
        ),
        ({"coverage": 0.9}, "`coverage` does not apply to a model of boxes. Leave it out"),
        ({"abstain": 0.05}, "`abstain` does not apply to a model of boxes"),
        ({"attention": True}, "`attention` does not apply to a model of boxes"),
    ),
    *rows(
        lambda probe: probe(predictor(), NO_CLASSES, batch=1),
        (
            {"probe": evaluation.evaluate_knn},
            "need a data set of classes. Received: 'd', whose lab",
        ),
        ({"probe": evaluation.evaluate_few_shot}, "need a data set of classes. Received: 'd'"),
    ),
    (
        lambda: evaluation.evaluate(
            predictor(),
            data.from_arrays(np.zeros((1, 8, 8, 3)), [0]),
            "abcde",
            batch=1,
            tiles=TILES,
        ),
        "`tiles` needs a model of masks or boxes",
    ),
    (
        lambda: SetPrediction()(np.zeros((1, 4, 5)), np.zeros((1, 3, 7))),
        "a prediction for each object.*4 objects for 3 predictions. Give a larger model.num_boxes",
    ),
    (
        lambda: evaluation.report(np.zeros((1, 2, 7)), np.zeros((1, 1, 6)), "ab", Task("boxes")),
        "judged in the pixels of their pictures. Received: task boxes",
    ),
    *rows(
        lambda model, **options: exporting.export(model(), "out", **options),
        ({"model": detector, "attention": True}, "boxes do not support `attention`"),
        ({"model": resnet, "attention": True}, "model with EncoderBlock layers"),
        ({"model": vit, "attention": True, "token_merging": 1}, "merging or with attention.*=1"),
        ({"model": vit, "attention": True, "formats": ["pt2"]}, "savedmodel, litert, onnx.*pt2"),
        ({"model": vit, "images": np.zeros((2, 8, 8, 3))}, r"uint8 of shape \(N"),
    ),
    (lambda: exporting.for_inference(vit(), 3), "half of its tokens. Received: r=3 for the 5"),
    (lambda: evaluation.possible_answers(np.eye(2), Task(), 0.9), "coverage=0.9; .* has none"),
    (
        lambda: evaluation.intervals(np.eye(2), Task("numbers", quantiles=((0.8, 1, 2),)), 0.95),
        "coverage=0.95; the model has 0.8. Train with --data.dev_percent",
    ),
    *rows(
        lambda **told: evaluation.write_file_predictions((), None, "csv", "numbers", **told),
        ({"names": ["error"]}, r"numbers named \['error'\]. Give --format jsonl"),
        ({"names": ["age", "age_low"], "coverage": 0.9}, "need different column names .*'age_low'"),
    ),
    (lambda: evaluation.abstains(np.eye(2), Task(), 0.05), "abstain=0.05; the model has none"),
    (lambda: [*evaluation.predict_boxes(predictor(), [])], "task='boxes'. Received: a model of cl"),
    (lambda: evaluation.predict_mask(predictor(), np.zeros((8, 8, 3))), "with task='masks'"),
    (lambda: runtimes.open("model.mlpackage"), r"an existing \.tflite, \.onnx, \.xml, \.pt2"),
    (lambda: retrieval.embedding_model(vit(), None, "cls"), "`tokens` must be one of 'pool', 'cl"),
    (
        lambda: retrieval.embedding_model(vit(), "block_0"),
        "must be the input of .* 'head'.*'block_0",
    ),
]


@pytest.mark.parametrize(("call", "message"), [*LAYERS, *MODELS, *RUNS, *USES])
def test_an_argument_that_does_not_fit_is_refused_by_name(tmp_path, monkeypatch, call, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ValueError, TypeError), match=message):
        call()
    assert not list(tmp_path.iterdir())
