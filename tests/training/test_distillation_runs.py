"""Runs with a teacher are resumed to the same bits, and leave the student alone."""

import dataclasses

import numpy as np
import pytest
from PIL import Image

import vit_keras
from tests.helpers import to_numpy, weights_by_path
from tests.training.small import assert_same_run, by_path, killed_after_a_save
from tests.training.test_distillation import vit
from vit_keras import experiments
from vit_keras.config import (
    Config,
    DistillConfig,
    LoraConfig,
    ModelConfig,
    PretextConfig,
    read_config,
)
from vit_keras.experiments.starting_point import check_teacher, complete_model, initial_model
from vit_keras.models import (
    Preprocessing,
)
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.on("torch")


def small(folder, teacher=None, **fields):
    """Six updates of a model of one block, evaluated twice."""
    config = read_config("digits")
    sizes = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "mlp_dim": 16, "patch_size": 8}
    model = {**sizes, "dropout_rate": 0.1, **fields.pop("model", {})}
    distill = {"teacher": teacher and str(teacher), **fields.pop("distill", {})}
    shared = {"batch": 16, "total_steps": 6, "eval_every": 3, "checkpoint_every": 2}
    return dataclasses.replace(
        config,
        model=dataclasses.replace(config.model, **model),
        distill=DistillConfig(**distill),
        workdir=str(folder),
        **{**shared, **fields},
    )


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    pixels = Preprocessing((0.4,), (0.3,))
    model = vit(np.random.default_rng(5), 16, 8, 10, pixels, hidden_size=24)
    model.class_names = tuple("0123456789")
    model.save(folder / "model.keras")
    return folder / "model.keras"


KINDS = {
    "hard": {"distill": {"kind": "hard"}, "model": {"classifier": "distilled"}},
    "features": {
        "distill": {"kind": "features", "patches": True},
        "label_smoothing": 0.0,
        "fewshot_every": 1,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hard", pytest.param("features", marks=pytest.mark.nightly)])
def test_a_stopped_run_ends_as_if_it_had_not_been(tmp_path, teacher, kind):
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    before = teacher.read_bytes()
    report = experiments.train_run(small(straight, teacher, **KINDS[kind]))

    with killed_after_a_save():
        experiments.train_run(small(stopped, teacher, **KINDS[kind]))
    again = experiments.train_run(small(stopped, teacher, **KINDS[kind]))
    rows = assert_same_run(straight, stopped, 6)
    assert again == report
    assert teacher.read_bytes() == before

    trained, student = by_path(straight, 6), vit_keras.open(straight / "model.keras")
    for variable in student.weights:
        np.testing.assert_array_equal(to_numpy(variable), trained[variable.path])
    shapes = {tuple(value.shape) for value in trained.values()}
    assert (8, 8, 1, 16) in shapes and (8, 8, 1, 24) not in shapes  # the student's alone
    if kind == "hard":
        assert student.output_shape == (None, 10) and report["images"] == 360
        assert rows[-1]["val_accuracy"] == pytest.approx(report["accuracy"])
        assert 0 <= rows[-1]["val_agreement"] <= 1
    else:
        assert student.output_shape == (None, 16) and student.class_names is None
        after = {f"fewshot_{row['shots']}": row["mean"] for row in report["fewshot"]}
        assert {name: rows[-1][name] for name in after} == after
        assert rows[0]["val_loss"] > rows[-1]["val_loss"]


def test_another_teacher_is_noticed(tmp_path, teacher):
    config, path = DistillConfig(str(tmp_path / "model.keras")), tmp_path / "model.keras"
    path.write_bytes(teacher.read_bytes())
    check_teacher(config, tmp_path)
    check_teacher(config, tmp_path)
    model = vit_keras.open(path)
    model.get_layer("head").bias.assign(np.ones(10))
    model.save(path)
    with pytest.raises(ValueError, match=r"has changed since the run .* \(model.keras\). Restore"):
        check_teacher(config, tmp_path)
    with pytest.raises(FileNotFoundError, match="`distill.teacher` must be a run's folder"):
        check_teacher(DistillConfig(str(tmp_path / "nothing")), tmp_path)


TEACHER = {"teacher": "runs/teacher"}
BAD = [
    ({**TEACHER, "weight": 0.0}, {}, r"`distill.weight` must be above 0 and at most 1"),
    ({**TEACHER, "temperature": 0.0}, {}, r"`distill.temperature` must be above 0"),
    ({"kind": "hard"}, {}, r"need `distill.teacher`.*Received: teacher=null"),
    (
        {**TEACHER, "kind": "hard", "temperature": 3.0},
        {},
        r"`distill.temperature` must be 2.0 with `distill.kind` hard. Received: distill.temp.*=3",
    ),
    (
        {**TEACHER, "kind": "features", "weight": 0.9},
        {},
        r"`distill.weight` must be 0.5 with `distill.kind` features. Received: distill.weight=0.9",
    ),
    (TEACHER, {"pretext": PretextConfig("mae")}, "`pretext.objective` must be none with .*=mae"),
    (TEACHER, {"lora": LoraConfig(rank=4)}, "`lora.rank` must be null with `distill.teacher`"),
    (TEACHER, {"loss": "sigmoid"}, r"`loss` softmax. Received: task=auto, loss=sigmoid"),
    (TEACHER, {"task": "numbers"}, r"`task` must be classes .*task=numbers.*=features"),
    (
        {**TEACHER, "kind": "features"},
        {"sweep": True},
        r"`sweep` must be false with `distill.kind` features",
    ),
    ({**TEACHER, "kind": "features"}, {"label_smoothing": 0.1}, r"`label_smoothing` must be 0.0"),
    ({**TEACHER, "kind": "features"}, {"patience": 3}, r"`patience` must be null"),
    (
        {**TEACHER, "kind": "features", "patches": True},
        {"model": ModelConfig("Ti/16", patch_keep_rate=0.5)},
        r"`model.patch_keep_rate` must be 1.0 with `distill.patches`.*patch_keep_rate=0.5",
    ),
]


@pytest.mark.parametrize(("distill", "fields", "message"), BAD)
def test_what_does_not_go_together_is_named(distill, fields, message):
    with pytest.raises(ValueError, match=message):
        Config(**fields, distill=DistillConfig(**distill))


def test_a_student_learns_from_unlabeled_pictures(tmp_path, teacher, capsys):
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for i in range(12):
        pixels = rng.integers(0, 256, (20, 20, 3), dtype="uint8")
        Image.fromarray(pixels).save(photos / ("more" if i % 2 else ".") / f"{i}.png")
    shared = {"dataset": f"folder:{photos}", "label_smoothing": 0.0, "batch": 4}
    distill = {"kind": "features"}
    run = tmp_path / "run"
    report = experiments.train_run(small(run, teacher, distill=distill, total_steps=2, **shared))
    assert report == {}
    assert "11 pictures without labels, and 1 (8.3%) held out" in capsys.readouterr().out
    student = vit_keras.open(run / "model.keras")
    tuned = small(tmp_path / "tuned", total_steps=0, eval_every=1, model={"weights": str(run)})
    start = initial_model(complete_model(tuned), "0123456789", Task("classes"))
    for path, value in weights_by_path(student).items():
        np.testing.assert_array_equal(value, weights_by_path(start)[path])
    with pytest.raises(ValueError, match="at least two classes"):
        experiments.train_run(small(tmp_path / "soft", teacher, **shared))
    with pytest.raises(ValueError, match="need classes, so `fewshot_every` must be 0 for pictures"):
        experiments.train_run(
            small(tmp_path / "few", teacher, distill=distill, fewshot_every=1, **shared)
        )
