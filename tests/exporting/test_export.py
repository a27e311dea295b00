"""Whole exports: what the files and documents hold, and what is refused before any work."""

import functools
import hashlib
import json
import re
import resource
import subprocess
import types
import zipfile

import numpy as np
import onnx
import onnxruntime
import pytest
from flatbuffers.table import Table

from tests.exporting.builds import export_files, small_model
from tests.helpers import assert_close, randomize, to_numpy
from tests.reference import softmax
from vit_keras import applications, exporting, inspection, models, runtimes, weights
from vit_keras.commands import main
from vit_keras.evaluation import open_predictor
from vit_keras.exporting import exporter, tflite_file
from vit_keras.exporting.manifest import facts
from vit_keras.exporting.serving import in_float32, serving_model
from vit_keras.exporting.targets import TARGETS
from vit_keras.exporting.verification import MEASURES
from vit_keras.models import Preprocessing
from vit_keras.runtimes import litert_interpreter


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """An export of a model in mixed precision, which replaced an earlier export.

    It has its folder and rows, images of it, and Keras' probabilities and rollouts in float32.
    """
    rng = np.random.default_rng(1)
    model = small_model(rng, 2, dtype="mixed_bfloat16", classifier="map")
    model.preprocessing = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    model.class_names = list("abcde")
    images = rng.integers(0, 256, (64, 8, 12, 3), dtype="uint8")
    plain = small_model(rng, 2, classifier="map")
    plain.set_weights(model.get_weights())
    prepared = ((images / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]).astype("float32")
    expected = softmax(to_numpy(plain(prepared)))
    margins = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    clear = margins.argsort()[-8:]  # rounding does not change the class of these images
    images, expected = images[clear], expected[clear]
    folder = tmp_path_factory.mktemp("export") / "out"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    (folder / "stale.txt").write_text("from an earlier export")
    options = {"formats": ["savedmodel", "litert", "onnx"], "precisions": ["fp32", "int8"]}
    options |= {"attention": True, "labels": expected.argmax(axis=-1)}
    rows = exporting.export(model, folder, images=images, **options)
    rollout = inspection.attention_views(plain, prepared[clear]).rollout
    return types.SimpleNamespace(
        folder=folder, rows=rows, images=images, expected=expected, rollout=rollout
    )


FILES = dict.fromkeys(("saved_model", "model.tflite", "model.onnx"), "fp32")
FILES |= dict.fromkeys(("saved_model_int8", "model_int8.tflite", "model_int8.onnx"), "int8")


@pytest.mark.once
def test_every_file_answers_in_its_runtime_as_keras_does(exported):
    assert {row["file"]: row["precision"] for row in exported.rows} == FILES
    for row in exported.rows:
        outputs = runtimes.open(exported.folder / row["file"])(exported.images)
        bound = 1e-5 if row["precision"] == "fp32" else 0.05
        assert np.abs(outputs - exported.expected).max() < bound, row["file"]
        agreement = (outputs.argmax(axis=-1) == exported.expected.argmax(axis=-1)).mean()
        assert row["agreement"] == row["accuracy"] == agreement == 1


@pytest.mark.once
def test_files_have_the_rollout_as_second_output(exported):
    import tensorflow as tf

    session = onnxruntime.InferenceSession(exported.folder / "model.onnx")
    (source,), targets = session.get_inputs(), session.get_outputs()
    assert (source.name, source.shape) == ("images", ["batch", 8, 12, 3])
    shapes = {target.name: target.shape for target in targets}
    assert shapes == {"output": ["batch", 5], "attention": ["batch", 2, 3]}
    (attention,) = session.run(["attention"], {"images": exported.images})
    served = tf.saved_model.load(exported.folder / "saved_model").signatures["serving_default"]
    phone = litert_interpreter(exported.folder / "model.tflite")
    phone.set_tensor(phone.get_input_details()[0]["index"], exported.images[:1])
    phone.invoke()
    outputs = [phone.get_tensor(output["index"]) for output in phone.get_output_details()]
    rows = {
        "onnx": attention,
        "savedmodel": served(images=tf.constant(exported.images))["output_1"],
        "litert": {output.ndim: output for output in outputs}[3],
    }
    for name, row in rows.items():
        assert_close(row, exported.rollout[: len(row)], rtol=1e-5, name=name)


@pytest.mark.once
def test_documents_describe_the_files(exported):
    folder = exported.folder
    documents = ["labels.txt", "manifest.json"]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*FILES, *documents])
    assert [p.name for p in folder.parent.iterdir()] == ["out"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["files"] == exported.rows and manifest["output"] == "softmax"
    assert manifest["input"]["preprocessing"]["std"] == [0.2, 0.3, 0.4]
    by_name = {row["file"]: row for row in exported.rows}
    content = (folder / "model.onnx").read_bytes()
    assert by_name["model.onnx"]["sha256"] == hashlib.sha256(content).hexdigest()
    assert by_name["model.onnx"]["bytes"] == len(content)
    assert by_name["model.tflite"]["batch"] == 1 and by_name["model.onnx"]["batch"] is None
    assert (folder / "labels.txt").read_text() == "a\nb\nc\nd\ne\n"
    for name in ("model.tflite", "model_int8.tflite"):
        with zipfile.ZipFile(folder / name) as archive:
            assert archive.read("labels.txt").decode().split("\n") == list("abcde")


@pytest.mark.once
def test_the_metadata_is_read_by_the_numbers_of_its_schema(exported):
    """The numbers of fields come from TensorFlow's metadata_schema.fbs, not from our writer."""
    place = lambda table, number: table.Offset(4 + 2 * number)
    text = lambda table, number: table.String(table.Pos + place(table, number)).decode()

    def tables(table, number):
        start, count = (read(place(table, number)) for read in (table.Vector, table.VectorLen))
        return [Table(table.Bytes, table.Indirect(start + 4 * i)) for i in range(count)]

    path = exported.folder / "model_int8.tflite"
    model = tflite_file.read(path)
    (entry,) = (entry for entry in model.metadata if entry.name == b"TFLITE_METADATA")
    data = bytes(model.buffers[entry.buffer].data)
    assert data[4:8] == b"M001" and path.read_bytes().index(data) % 16 == 0  # aligned
    (graph,) = tables(Table(data, int.from_bytes(data[:4], "little")), 3)
    (source,), targets = tables(graph, 2), tables(graph, 3)
    (target,) = (each for each in targets if text(each, 0) == "output")
    assert text(source, 0) == "image" and not place(source, 4)
    (labels,) = tables(target, 6)
    assert text(labels, 0) == "labels.txt"
    assert data[labels.Pos + place(labels, 2)] == 2  # TENSOR_AXIS_LABELS


FACTS = [  # of a row of MEASURES, what the row of a file says
    ("classes", "same class': '99.88%' | of a logit"),
    ("labels", "same labels': '99.88%' | of a logit"),
    ("numbers", "R²': '0.9988' | of a number, in standard deviations"),
    ("masks", "same class of a pixel': '99.88%' | of a logit"),
    ("features", "mean cosine': '0.9988' | of a feature"),
]


@pytest.mark.parametrize(("name", "texts"), FACTS)
@pytest.mark.once
def test_a_row_in_words_says_what_was_measured(name, texts):
    row = {"agreement": 0.99875, "largest_difference": 0.1, "agreement_is": MEASURES[name][0]}
    said = str(facts(row))
    assert [text for text in texts.split(" | ") if text not in said] == []


def test_a_served_model_holds_preprocessing_and_output(rng):
    model = small_model(rng)
    model.preprocessing = models.Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    pixels = rng.integers(0, 256, (3, 8, 12, 3), dtype="uint8")
    prepared = ((pixels / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]).astype("float32")
    logits = to_numpy(model(prepared))
    served = lambda images, *options: to_numpy(serving_model(model, *options)(images))
    assert_close(served(pixels), softmax(logits))
    assert_close(served(pixels, "logits"), logits)
    assert_close(served(prepared, "logits", True), logits, rtol=2e-6)
    features, head = served(pixels, "features"), model.get_layer("head")
    kernel, bias = map(to_numpy, head.weights)
    assert_close(features @ kernel + bias, logits)


@pytest.mark.on("torch")
def test_an_application_gets_no_second_softmax(rng):
    model = applications.ViTTi16(input_shape=(16, 16, 3), classes=4)
    randomize(model, rng, scale=0.1)
    pixels = rng.integers(0, 256, (2, 16, 16, 3), dtype="uint8")
    expected = to_numpy(model(applications.preprocess_input(pixels.astype("float32"))))
    probabilities = to_numpy(serving_model(in_float32(model))(pixels))
    assert_close(probabilities, expected)
    logits = to_numpy(serving_model(in_float32(model), "logits")(pixels))
    assert_close(softmax(logits), expected)


IMPOSSIBLE = [
    ({"precisions": ["fp16"]}, "`precision of savedmodel` must be one of 'fp32', 'int8'"),
    ({"formats": ["tflite"]}, "`format` must be one of 'savedmodel', 'litert'"),
    ({"batch": 1, "dynamic_batch": True}, "give only one of them. Received: 1 and True"),
    ({"dynamic_size": True}, "works only with savedmodel, onnx, openvino"),
    ({"formats": ["onnx"], "opset": 19}, "an opset must be from 20 to 23 and needs the f"),
    ({"formats": ["huggingface_onnx", "onnx"]}, "must be the only format, and `output`"),
    ({"output": "classes"}, "`output of a model of classes` must be one of 'softmax', 'logits'"),
]


@pytest.mark.once
@pytest.mark.parametrize(("plan", "message"), IMPOSSIBLE)
def test_impossible_plans_are_refused_before_any_work(rng, tmp_path, monkeypatch, plan, message):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(ValueError, match=re.escape(message)):
        exporting.export(small_model(rng), tmp_path / "out", **plan)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.once
def test_files_take_images_of_any_size(rng, tmp_path, monkeypatch):
    model, options = small_model(rng), {"formats": ["savedmodel", "onnx"], "dynamic_size": True}
    images = rng.integers(0, 256, (3, 8, 12, 3), dtype="uint8")
    rows = export_files(model, tmp_path / "out", images, **options)
    for row in rows:
        assert row["image_sizes"] == [[8, 12], [12, 20]] and row["largest_difference"] < 1e-5
        for size in [(8, 12), (16, 8)]:
            pixels = rng.integers(0, 256, (2, *size, 3), dtype="uint8")
            expected = to_numpy(models.with_image_size(model, size)(pixels / np.float32(127.5) - 1))
            probabilities = runtimes.open(tmp_path / "out" / row["file"])(pixels)
            assert_close(probabilities, softmax(expected))
            predictor, _ = open_predictor(tmp_path / "out" / row["file"], size)
            assert predictor.input_shape == (*size, 3)
    file, opened, runtime = tmp_path / "out" / "model.onnx", [], runtimes.open
    assert open_predictor(file)[0].input_shape == (8, 12, 3)
    record = lambda path, threads=None: opened.append(threads) or runtime(path, threads)
    monkeypatch.setattr(runtimes, "open", record)
    for size in ([], ["--image_size", "16", "8"]):
        assert main(["bench", str(file), "--threads", "1", "--rounds", "1", *size]) == 0
        assert 1 in opened  # the file that is timed
        opened.clear()
    (tmp_path / "out" / "manifest.json").unlink()
    with pytest.raises(ValueError, match="`image_size` must be given.*model.onnx"):
        open_predictor(file)


@pytest.mark.once
def test_a_folder_that_holds_something_else_is_left_alone(rng, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ValueError, match="an earlier export.*holds something else"):
        exporting.export(small_model(rng), tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


@pytest.mark.once
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("converter", "The export failed:\\n.*exit status 1"),
        ("outputs", r"model\.onnx: largest difference of .*at most 0.0001"),
        ("interrupt", None),
    ],
)
def test_a_failed_export_leaves_the_folder_as_it_was(rng, tmp_path, monkeypatch, fault, message):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("good")
    outputs = rng.normal(size=(64, 5)).astype("float32")

    def write(job, waiting, scratch):
        for file in waiting:
            file.path.write_bytes(b"")
        if fault == "interrupt":
            raise KeyboardInterrupt

    if fault == "converter":
        monkeypatch.setattr("sys.executable", "/bin/false")
    else:
        monkeypatch.setattr(exporter, "_convert", write)
    monkeypatch.setitem(runtimes.RUNTIMES, ".onnx", lambda path, threads: lambda images: outputs)
    options = {"images": rng.integers(0, 256, (64, 8, 12, 3), dtype="uint8")}
    options |= {"formats": ["onnx"], "output": "logits"}
    with pytest.raises(ValueError if message else KeyboardInterrupt, match=message):
        exporting.export(small_model(rng), tmp_path / "out", **options)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["manifest.json", "out"]


@pytest.mark.once
def test_a_format_that_fails_does_not_lose_the_others(rng, tmp_path, monkeypatch, capsys):
    (tmp_path / "broken").mkdir()
    fault = "raise RuntimeError('out of\\nideas')"
    (tmp_path / "broken" / "onnxscript.py").write_text(fault)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    weights.save_model(small_model(rng), tmp_path / "a.keras")
    formats = ["onnx", "litert"]
    out = ["--out", str(tmp_path / "out"), "--precision", "fp32", "--format", *formats]
    assert main(["export", str(tmp_path / "a.keras"), *out]) == 1
    told = r"has model.tflite, but other files failed:\nmodel.onnx: .*RuntimeError: out of ideas"
    assert re.search(told, capsys.readouterr().err)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"model.tflite", "manifest.json", "labels.txt"}
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [row["file"] for row in manifest["files"]] == ["model.tflite"]
    assert runtimes.open(tmp_path / "out/model.tflite")(np.zeros((1, 8, 12, 3), "uint8")).shape


@pytest.mark.once
def test_a_full_disk_leaves_nothing(rng, tmp_path, monkeypatch):
    """The converter may write files of 10 kB."""
    limit = functools.partial(resource.setrlimit, resource.RLIMIT_FSIZE, (10_000, 10_000))
    run = functools.partial(subprocess.run, preexec_fn=limit)
    monkeypatch.setattr(exporter.subprocess, "run", run)
    options = {"formats": ["litert"], "precisions": ["fp32"]}
    with pytest.raises(OSError, match=f"File too large: '{tmp_path}/out'"):
        exporting.export(small_model(rng), tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "format",
    [
        pytest.param("savedmodel", marks=pytest.mark.on("tensorflow")),
        pytest.param("pt2", marks=pytest.mark.on("torch")),
    ],
)
def test_weights_are_stored_once(tmp_path, format):
    target = TARGETS[format]
    model = serving_model(models.VisionTransformer(8, 4, 256, 1, 4, 512, 5))
    path = tmp_path / target.name("fp32")
    target.precisions["fp32"](model, path, None)
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    assert 1 <= size / (4 * model.count_params()) < 1.2


@pytest.mark.on("torch")
def test_the_zeros_that_bits_resnet_pools_stay_zeros_in_onnx(rng, tmp_path):
    model = randomize(models.ResNet(32, (1,), 0.5, num_classes=3), rng, scale=0.05)
    (row,) = exporting.export(model, tmp_path / "files", formats=["onnx"], precisions=["fp32"])
    assert row["largest_difference"] < 1e-5


@pytest.mark.once
def test_attention_is_one_operation_from_opset_23_on(rng, tmp_path):
    """The file in int8 has it too, and both keep their promises."""
    options = {"formats": ["onnx"], "precisions": ["fp32", "int8-static"], "opset": 23}
    rows = exporting.export(small_model(rng, 2), tmp_path / "out", **options)
    for row in rows:
        model = onnx.load(tmp_path / "out" / row["file"])
        assert [x.version for x in model.opset_import if not x.domain] == [23]
        assert [node.op_type for node in model.graph.node].count("Attention") == 2
    assert rows[0]["largest_difference"] < 1e-5 and rows[1]["agreement"] >= 0.99
