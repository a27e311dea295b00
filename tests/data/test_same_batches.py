"""Every source gives the same batches, whatever computes them, and `fit` sees them in order."""

import csv
import hashlib
import io
import json
import textwrap
from unittest import mock

import keras
import numpy as np
import pytest
from PIL import Image

from tests.data.deep_pictures import stored
from tests.helpers import run_script
from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.models import Preprocessing

COUNT, STEPS, BATCH = 23, 7, 8  # 7 batches of 8 are two epochs and a part of the third
CLASSES = ["ant", "bee", "cat"]
IMAGES = {"image_size": (12, 16), "preprocessing": Preprocessing()}
once = pytest.mark.once


def pictures():
    rng, made = np.random.default_rng(3), []
    for i in range(COUNT):
        pixels = rng.integers(0, 256, (*rng.integers(9, 40, 2), 3), dtype="uint8")
        made.append((stored(Image.fromarray(pixels), ("jpeg", "png")[i % 2]), 3 * i // COUNT))
    return made


def write_folder(root, encoded):
    for number, (content, label) in enumerate(encoded):
        suffix = "png" if content.startswith(b"\x89PNG") else "jpg"
        path = root / CLASSES[label] / f"{number:02}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return f"folder:{root}"


def write_table(root, encoded):
    write_folder(root, encoded)
    paths = sorted(root.glob("*/*"), key=lambda path: path.name)
    rows = [(path.relative_to(root), path.parent.name) for path in paths]
    with open(root / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    return f"table:{root / 'rows.csv'}"


def write_shards(kind):
    def write(root, encoded):
        """Several shards of unequal numbers of pictures; loading compares sizes and hashes."""
        dataset, shards = opened(write_table(root / "table", encoded)), root / "shards"
        with mock.patch.object(data.shards, "MEGABYTE", 1000):
            manifest = data.pack_shards(dataset, shards, format=kind, shard_mb=10)
        counts = [entry["images"] for entry in manifest["splits"]["train"]]
        assert len(counts) > 2 and len({*counts}) > 1 and sum(counts) == COUNT
        written = json.loads((shards / "shards.json").read_text())
        assert written["splits"] == manifest["splits"] and written["format"] == kind
        return f"shards:{shards}"

    return write


def write_hf(root, encoded):
    import datasets

    contents, labels = zip(*encoded)
    columns = {"image": [{"bytes": x, "path": None} for x in contents], "label": [*labels]}
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    made.save_to_disk(root)
    return f"hf:{root}"


def write_tfds(root, encoded):
    from tests.data.test_tfds import prepare

    prepare(root, {"train": [(io.BytesIO(content), k) for content, k in encoded]})
    return f"tfds:tiny_pictures/{root}"


SOURCES = {
    "table": write_table,
    **{kind: write_shards(kind) for kind in ("tar", "parquet", "tfrecord")},
    "hf": write_hf,
    "tfds": write_tfds,
}


def opened(name):
    config = {"test_percent": 0, "test_split": "train"}
    if name.startswith("tfds:"):
        name, _, folder = name.partition("/")
        config["data_dir"] = f"/{folder.lstrip('/')}"
    return data.load(name, 3, DataConfig(**config))


def train_batches(dataset, start_step=0, shard=(0, 1), threads=0):
    changes = {"crop": "inception", "flip": True, "mixup_alpha": 0.2, "cutmix_alpha": 1.0}
    options = {"augment_config": AugmentConfig(**changes), "seed": 5, "num_classes": 3}
    options |= {"start_step": start_step, "total_steps": STEPS, "shard": shard, "threads": threads}
    return data.train_batches(dataset.split("train"), **IMAGES, batch=BATCH, **options)


def held_out_batches(dataset, shard=(0, 1), threads=0):
    options = {"batch": BATCH, "shard": shard, "threads": threads}
    return data.eval_batches(dataset.split("train"), **IMAGES, **options)


def assert_equal(batches, expected, rows=slice(None)):
    for batch, other in zip(batches, expected, strict=True):
        for one, two in zip(batch, other, strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two[rows])


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Batches of the folder, which one thread computes in order."""
    dataset = opened(write_folder(tmp_path_factory.mktemp("expected"), pictures()))
    return dataset, list(train_batches(dataset)), list(held_out_batches(dataset))


@pytest.fixture(scope="module")
def names(tmp_path_factory, expected):
    root, train = tmp_path_factory.mktemp("sources"), expected[0].split("train")
    encoded = [(train.encoded(i), train.labels[i]) for i in range(COUNT)]
    write = lambda source: SOURCES[source](root / source.replace(" ", "_"), encoded)
    return {source: write(source) for source in SOURCES} | {"folder": expected[0].name}


@once
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_batches_of_the_folder(names, expected, source):
    _, training, held_out = expected
    dataset = opened(names[source])
    assert dataset.class_names == tuple(CLASSES)
    assert_equal(train_batches(dataset), training)
    assert_equal(held_out_batches(dataset, (0, 2), threads=4), held_out, slice(4))
    assert_equal(train_batches(dataset, 3, (1, 2), threads=4), training[3:], slice(4, 8))


def digest(batches):
    sha = hashlib.sha256()
    for array in keras.tree.flatten(list(batches)):
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


@once
@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.nightly)])
def test_other_backends_have_the_same_batches_and_train_without_tensorflow(
    names, expected, backend, tmp_path
):
    sizes = {"variant": "null", "image_size": 16, "patch_size": 8, "hidden_size": 12}
    sizes |= {"num_layers": 1, "num_heads": 2, "mlp_dim": 16, "dropout_rate": 0.1}
    changes = {"crop": "inception", "mixup_alpha": 0.2, "randaugment_layers": 2}
    options = {f"model.{name}": value for name, value in sizes.items()}
    options |= {f"augment.{name}": value for name, value in changes.items()}
    run, features = tmp_path / "run", tmp_path / "features.parquet"
    options |= {"dataset": names["table"], "workdir": run, "batch": 8, "total_steps": 4}
    options["kernels"] = "default"
    picture = expected[0].split("train").name(0)
    commands = [
        ["check", names["folder"]],
        ["train", *(text for name, value in options.items() for text in (f"--{name}", value))],
        ["evaluate", run, "--dataset", names["tfrecord"]],
        ["predict", run, picture, "--out", tmp_path / "predicted.csv"],
        ["embed", run, names["folder"], "--out", features],
        ["search", features, picture],
    ]
    code = f"""
        from tests.data.hide_tensorflow import WANTED
        from tests.data.test_same_batches import digest, opened, train_batches
        from vit_keras.commands import run

        for source, name in {names}.items():
            print("digest of", digest(train_batches(opened(name), threads=2)), source)
            assert not WANTED, (source, WANTED)
        for command in {[[*map(str, command)] for command in commands]}:
            assert run(command) in (None, 0), command
            assert not WANTED, (command, WANTED)
    """
    printed = run_script("-c", textwrap.dedent(code), backend=backend).stdout.splitlines()
    digests = [line.split()[2] for line in printed if line.startswith("digest of")]
    assert digests == [digest(expected[1])] * len(names)
    assert features.is_file() and "0" in (tmp_path / "predicted.csv").read_text()


@pytest.mark.parametrize("form", ["itself", "dataset"])
def test_fit_sees_the_batches_in_order(expected, form):
    """In three epochs, of which the last one has a single step and begins with new batches."""
    dataset, training, _ = expected
    layers = [keras.Input((12, 16, 3)), keras.layers.Flatten(), keras.layers.Dense(3)]
    model, losses = keras.Sequential(layers), []
    model.compile(keras.optimizers.SGD(0.0), "mse")
    keep = lambda number, logs: losses.append(float(logs["loss"]))
    note = keras.callbacks.LambdaCallback(on_train_batch_end=keep)
    for first, last, steps in ((0, 2, 3), (2, 3, 1)):
        batches = train_batches(dataset, start_step=3 * first, threads=2)
        batches = batches if form == "itself" else batches.as_dataset()
        epochs = {"initial_epoch": first, "epochs": last, "steps_per_epoch": steps}
        model.fit(batches, **epochs, shuffle=False, verbose=0, callbacks=[note])
    kernel, bias = model.get_weights()
    each = [np.mean((x.reshape(BATCH, -1) @ kernel + bias - y) ** 2) for x, y in training]
    means = [np.mean(each[number // 3 * 3 : number + 1]) for number in range(STEPS)]  # of the epoch
    np.testing.assert_allclose(losses, means, rtol=1e-4)
