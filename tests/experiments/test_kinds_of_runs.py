"""Runs that learn more or less than a whole model end with the same bits if they are stopped."""

import json

import numpy as np
import pytest

import vit_keras
from tests.designs import random_design
from tests.helpers import assert_close, randomize, to_numpy, weights_by_path, write_picture
from tests.training import small
from tests.training.kill import model_differences
from tests.training.test_distillation import vit
from vit_keras import commands, data, evaluation, experiments, models, runs, weights
from vit_keras.experiments.run_model import check_teacher, complete_model, initial_model
from vit_keras.models import VisionTransformer, merge_lora

on_torch, nightly_on = pytest.mark.on("torch"), pytest.mark.nightly_on
nightly, slow = pytest.mark.nightly, pytest.mark.slow
NAMES, DIGITS = ("cat", "dog", "small owl"), "0123456789"
FEW = {"dataset": "digits", "data.train_split": "train[:60]", "data.test_split": "test[:21]"}
PRETEXT = {"config": "masked_patch_digits", **small.SIZES, "batch": 16, "batch_eval": 360}
FROZEN = {"cache_features": "true", "model.dropout_rate": 0, "optimizer.learning_rate": 0.03}
DINO = {"local_crops": 2, "local_size": 8, "prototypes": 8, "head_hidden_size": 8}
DINO |= {"bottleneck_size": 4}


def masked_patch(folder):
    return PRETEXT


def dino(folder):
    fields = {f"pretext.dino.{name}": value for name, value in DINO.items()}
    fields |= {"pretext.objective": "dino", "fewshot_every": 0, "optimizer.accumulation_steps": 2}
    return PRETEXT | fields


def teacher(folder):
    """Writes another model, and returns the fields of runs that learn from it."""
    pixels = models.Preprocessing((0.4,), (0.3,))
    model = vit(np.random.default_rng(5), 16, 8, 10, pixels, hidden_size=24)
    model.class_names = tuple(DIGITS)
    model.save(folder / "teacher.keras")
    return {"config": "digits", **small.SIZES, "distill.teacher": folder / "teacher.keras"}


def hard(folder):
    return teacher(folder) | {"distill.kind": "hard", "model.classifier": "distilled"}


def features(folder):
    fields = {"distill.kind": "features", "distill.patches": "true", "label_smoothing": 0}
    return teacher(folder) | fields | {"fewshot_every": 1}


def from_weights(model, folder, **fields):
    weights.save_model(model, folder / "base.keras")
    return {"dataset": "digits", "model.weights": folder / "base.keras", **fields}


def lora(folder):
    model = VisionTransformer(16, 8, 8, 1, 2, 12, num_classes=3, channels=1, gelu="tanh")
    fields = {"lora.rank": 2, "lora.alpha": 4, "lora.layers": "[query,value,Dense_0]"}
    fields |= {"optimizer.weight_decay": 0.1, "optimizer.ema_decay": 0.9}
    return from_weights(randomize(model, np.random.default_rng(0), 0.2), folder, **fields)


def dinov2(folder):
    size = {"image_size": 8, "channels": 1, "num_classes": None, "classifier": "token"}
    model = random_design("DINOv2", **size, layer_norm_epsilon=1e-6)
    return from_weights(model, folder, **{"optimizer.learning_rate": 0.003})


def cached(folder):
    """On weights whose features tell pictures apart."""
    model = VisionTransformer(32, 8, 24, 2, 3, 40, 7, classifier="gap", gelu="tanh")
    fields = {"optimizer.freeze": '["[!h]*"]', "optimizer.ema_decay": 0.7}
    fields |= {"optimizer.accumulation_steps": 2, "batch_eval": 8}  # a last batch of 5
    randomize(model, np.random.default_rng(0))
    return from_weights(model, folder, **FEW, **FROZEN, **fields)


def texts(folder, kind="softmax"):
    """A CLIP of transformers or a SigLIP's image tower, pictures, and embeddings of texts."""
    rng = np.random.default_rng(0)
    if kind == "softmax":
        options = {"pre_norm": True, "head_use_bias": False, "gelu": "quick"}
        image = VisionTransformer(16, 8, 24, 1, 3, 40, 10, **options)
        text = models.TextTransformer(20, 8, 16, 1, 2, 32, 10, gelu="quick")
        tower = models.ImageText(models.with_unit_length(randomize(image, rng)), text, 2.0)
    else:
        image = VisionTransformer(16, 8, 24, 1, 3, 40, None, classifier="map")
        tower = randomize(image, rng)
    weights.save(tower, folder / "tower", format="huggingface")
    rows = rng.normal(size=(4, 10 if kind == "softmax" else 24)).astype("float32")
    names = ("small owl", "dog", "bee", "cat")
    embeddings = weights.TextEmbeddings(names, rows, 9.0, -0.5, kind)
    weights.write_text_embeddings(folder / "texts.npz", embeddings)
    for name, level in zip(NAMES, (40, 120, 200)):
        for split, count in (("train", 6), ("test", 4)):
            for i in range(count):
                path = folder / "photos" / split / name / f"{i}.png"
                write_picture(path, rng, low=level - 40, high=level + 50)
    fields = {"dataset": f"folder:{folder / 'photos'}", "model.weights": folder / "tower"}
    fields |= {"model.labels": folder / "texts.npz", "model.adapter_dim": 5}
    return {**fields, **FROZEN, "optimizer.freeze": '["[!a]*"]'}


KINDS = (masked_patch, dino, hard, features, lora, dinov2, cached, texts)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return small.trainer(tmp_path_factory, {kind.__name__: kind for kind in KINDS})


def opened(run):
    return vit_keras.open(run.folder / "model.keras")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("masked_patch", marks=nightly_on("tensorflow")),
        pytest.param("dino", marks=nightly_on("tensorflow", "jax")),
        pytest.param("hard", marks=on_torch),
        pytest.param("features", marks=[nightly, on_torch]),
        pytest.param("lora", marks=nightly_on("tensorflow", "jax")),
        pytest.param("dinov2", marks=on_torch),
        pytest.param("texts", marks=nightly_on("tensorflow")),
    ],
)
def test_a_stopped_run_ends_as_if_it_had_not_been(trained, tmp_path, kind):
    rows = small.assert_killed_run_is(trained(kind), tmp_path)
    assert [row["step"] for row in rows] == [3, 6]


@on_torch
def test_features_are_judged_by_few_shots(trained):
    run = trained("masked_patch")
    rows = json.loads((run.folder / "metrics.json").read_text())
    assert json.loads((run.folder / "report.json").read_text()) == run.report
    assert [row["shots"] for row in run.report["fewshot"]] == [1, 5, 10]
    for before, after in zip(run.report["fewshot_before"], run.report["fewshot"], strict=True):
        assert rows[-1][f"fewshot_{after['shots']}"] == after["mean"]
        assert before["accuracies"] != after["accuracies"]
    assert f"10-shot accuracy {100 * before['mean']:.2f} ± " in evaluation.headline(run.report)


@on_torch
def test_a_pretext_leaves_the_encoder_that_it_trained(tmp_path):
    """Another run starts from it."""
    fields = {"pretext.objective": "mae", "pretext.decoder_num_layers": 1}
    fields |= {"pretext.decoder_hidden_size": 8, "pretext.decoder_num_heads": 2}
    config = small.configured(PRETEXT | fields | {"fewshot_every": 0, "total_steps": 3}, tmp_path)
    assert experiments.train_run(config) == {}
    kept, encoder = small.by_path(tmp_path, 3), vit_keras.open(tmp_path / "model.keras")
    assert encoder.input_shape == (None, 16, 16, 1) and encoder.output_shape == (None, 10)
    heads = [v.path for v in encoder.weights if v.path not in kept]
    assert heads == ["head/kernel", "head/bias"]
    tuned = complete_model(small.configured({"dataset": "digits", "model.weights": tmp_path}))
    fresh = weights_by_path(initial_model(tuned, DIGITS))
    for path, value in weights_by_path(encoder).items():
        np.testing.assert_array_equal(value, kept.get(path, np.zeros(value.shape)))
        np.testing.assert_array_equal(value, fresh[path])
    assert evaluation.feature_model(encoder).output_shape == (None, 16)


@on_torch
def test_self_distillation_keeps_the_teacher(trained):
    run = trained("dino")
    rows = json.loads((run.folder / "metrics.json").read_text())
    assert 0 < rows[-1]["val_teacher_entropy"] <= np.log(8) + 1e-5
    assert int(small.by_path(run.folder, 6)["self_distillation/calls"]) == 12  # two parts each
    untrained = initial_model(small.configured(run.fields), DIGITS)
    pairs = zip(opened(run).weights, untrained.weights, strict=True)
    moved = [np.abs(to_numpy(one) - to_numpy(two)).max() for one, two in pairs]
    assert 0 < max(moved) < 0.02  # an average of a few updates


@on_torch
@pytest.mark.parametrize("kind", ["hard", pytest.param("features", marks=nightly)])
def test_a_run_with_a_teacher_leaves_the_student_alone(trained, kind):
    run = trained(kind)
    rows = json.loads((run.folder / "metrics.json").read_text())
    kept, student = small.by_path(run.folder, 6), opened(run)
    for path, value in weights_by_path(student).items():
        np.testing.assert_array_equal(value, kept[path])
    shapes = {tuple(value.shape) for value in kept.values()}
    assert (8, 8, 1, 16) in shapes and (8, 8, 1, 24) not in shapes  # the student's alone
    if kind == "hard":
        assert student.output_shape == (None, 10) and run.report["images"] == 360
        assert rows[-1]["val_accuracy"] == pytest.approx(run.report["accuracy"])
        assert 0 <= rows[-1]["val_agreement"] <= 1
    else:
        assert student.output_shape == (None, 16) and student.class_names is None
        after = {f"fewshot_{row['shots']}": row["mean"] for row in run.report["fewshot"]}
        assert {name: rows[-1][name] for name in after} == after
        assert rows[0]["val_loss"] > rows[-1]["val_loss"]


@on_torch
def test_another_teacher_is_noticed(tmp_path):
    config = small.configured(teacher(tmp_path)).distill
    check_teacher(config, tmp_path)
    check_teacher(config, tmp_path)
    model = vit_keras.open(config.teacher)
    model.get_layer("head").bias.assign(np.ones(10))
    model.save(config.teacher)
    with pytest.raises(ValueError, match=r"has changed since the run .* \(teacher.keras\). Rest"):
        check_teacher(config, tmp_path)
    (tmp_path / "teacher.keras").unlink()
    with pytest.raises(FileNotFoundError, match="`distill.teacher` must be a run's folder"):
        check_teacher(config, tmp_path)


@on_torch
def test_a_student_learns_from_unlabeled_pictures(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for i in range(12):
        write_picture(tmp_path / "photos" / ("more" * (i % 2)) / f"{i}.png", rng, (20, 20))
    shared = teacher(tmp_path) | {"dataset": f"folder:{tmp_path / 'photos'}", "batch": 4}
    shared |= {"label_smoothing": 0, "distill.kind": "features", "total_steps": 2}
    run_of = lambda name, **fields: small.configured(shared | fields, tmp_path / name)
    assert experiments.train_run(run_of("run")) == {}
    assert "11 pictures without labels, and 1 (8.3%) held out" in capsys.readouterr().out
    with pytest.raises(ValueError, match="data set of classes needs 2 or more"):
        experiments.train_run(run_of("soft", **{"distill.kind": "soft"}))
    with pytest.raises(ValueError, match="need classes, so `fewshot_every` must be 0 for pictures"):
        experiments.train_run(run_of("few", fewshot_every=1))


@on_torch
def test_adapters_are_written_and_merged(trained):
    folder, _, fields = trained("lora")
    base, run = fields["model.weights"], runs.find_run(folder)
    before, after = weights_by_path(vit_keras.open(base)), small.by_path(folder, 6)
    for name, value in before.items():  # the whole training changed nothing of the base
        if not name.startswith("head"):
            np.testing.assert_array_equal(after[name], value, err_msg=name)
    adapted = vit_keras.open(base, adapters=run.folder / "adapters.safetensors")
    merged = vit_keras.open(folder)
    images = np.random.default_rng(1).normal(size=(4, 16, 16, 1)).astype("float32")
    expected = adapted.predict(images, verbose=0)
    assert np.ptp(expected) > 0.1 and expected.shape == (4, 10)
    assert_close(merged.predict(images, verbose=0), expected)
    for name, value in weights_by_path(merge_lora(adapted)).items():
        assert_close(weights_by_path(merged)[name], value, rtol=1e-6, name=name)


@on_torch
@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_training_starts_from_the_answer_without_training(tmp_path, kind):
    """To the bit, for the classes of the data among the labels of the file."""
    config = complete_model(small.configured(texts(tmp_path, kind)))
    images = np.random.default_rng(1).normal(size=(5, 16, 16, 3)).astype("float32")
    tower, file = lambda: vit_keras.open(tmp_path / "tower"), tmp_path / "texts.npz"
    model = initial_model(config, NAMES)
    plain = weights.with_text_head(tower(), file, NAMES)
    np.testing.assert_array_equal(to_numpy(model(images)), to_numpy(plain(images)))
    whole = weights.with_text_head(tower(), file)
    assert_close(model(images), to_numpy(whole(images))[:, [3, 1, 0]], rtol=1e-6)
    adapter, rng = model.get_layer("adapter"), np.random.default_rng(2)
    down, up = (0.5 * rng.normal(size=w.shape) for w in adapter.get_weights())
    adapter.set_weights([down, up])
    x = to_numpy(tower()(images)).astype("float64")
    x = x + np.maximum(x @ down, 0) @ up
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    kernel, bias = map(to_numpy, model.get_layer("head").weights)
    assert_close(model(images), x @ kernel + bias, rtol=1e-5)
    with pytest.raises(ValueError, match=r"the names of all classes. .*without .*bear"):
        initial_model(config, ("cat", "bear"))


@on_torch
def test_a_run_on_texts_trains_the_adapter_alone(trained, tmp_path, capsys):
    folder, report, fields = run = trained("texts")
    start = initial_model(complete_model(small.configured(fields)), NAMES)
    pairs = zip(opened(run).weights, start.weights, strict=True)
    changed = {v.path for v, w in pairs if not np.array_equal(to_numpy(v), to_numpy(w))}
    assert {path.split("/")[0] for path in changed} == {"adapter"}
    assert opened(run).class_names == list(NAMES) and report["images"] == 12
    commands.run(["evaluate", str(folder), "--out", str(tmp_path)])
    again = json.loads((tmp_path / "report.json").read_text())
    assert {name: again[name] for name in report} == report
    commands.run(["predict", str(folder), f"{folder.parent}/photos/test/cat", "--format", "csv"])
    assert "small owl" in capsys.readouterr().out


@on_torch
def test_cached_features_give_the_model_that_training_through_the_model_gives(trained, tmp_path):
    run = trained("cached")
    through = run.again(tmp_path, cache_features="false")
    ours, theirs = map(weights_by_path, (vit_keras.open(tmp_path), opened(run)))
    assert ours.keys() == theirs.keys() and np.abs(ours["head/kernel"]).max() > 0.01
    for name in ours:
        assert_close(ours[name], theirs[name], name=name)
    rows = [json.loads((f / "metrics.json").read_text()) for f in (tmp_path, run.folder)]
    for one, other in zip(*map(small.without_rate, rows), strict=True):
        assert one == pytest.approx(other, rel=1e-4, abs=1e-4)
    assert through["confusion_matrix"] == run.report["confusion_matrix"]


@on_torch
def test_a_stopped_run_reads_its_features(trained, tmp_path, monkeypatch):
    """It dies between the features of the two splits, then after its first checkpoint."""
    write = data.write_features

    def die(*arguments, **options):
        raise small.Killed

    def write_or_die(place, *arguments, **options):
        write(place, *arguments, **options) if place.name == "train" else die()

    with monkeypatch.context() as patch, pytest.raises(small.Killed):
        patch.setattr(data, "write_features", write_or_die)
        trained("cached").again(tmp_path)
    assert not list(tmp_path.glob("*features*"))
    small.assert_killed_run_is(trained("cached"), tmp_path)
    folder = small.copy_as_killed(tmp_path, tmp_path / "again", 2)
    monkeypatch.setattr(data, "write_features", die)  # nothing is computed again
    trained("cached").again(folder)
    assert not model_differences(tmp_path, folder)


@on_torch
def test_damaged_features_and_other_weights_are_refused(trained):
    run = trained("cached")
    meta, file = (run.folder / "features" / name for name in ("meta.json", "test/features.npy"))
    whole, text = file.read_bytes(), meta.read_text()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match=r"damaged or .*checksum of test/features.npy differs. R"):
        run.again(run.folder)
    file.write_bytes(whole)
    meta.write_text(json.dumps({**json.loads(text), "weights": "0" * 64}))
    with pytest.raises(ValueError, match="belong to other weights .*checksum of weights differs"):
        run.again(run.folder)
    meta.write_text(text)
