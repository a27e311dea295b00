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
from keras import ops
from PIL import Image

from tests.helpers import run_script
from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.data.shards import packing
from vit_keras.models import Preprocessing

COUNT, STEPS, BATCH = 23, 7, 8  # 7 batches of 8 are two epochs and a part of the third
CLASSES = ["ant", "bee", "cat"]
IMAGES = {"image_size": (12, 16), "preprocessing": Preprocessing()}
once = pytest.mark.once


def pictures():
    """Encoded pictures of two formats and many sizes, and the numbers of their classes."""
    rng, made = np.random.default_rng(3), []
    for i in range(COUNT):
        pixels = rng.integers(0, 256, (*rng.integers(9, 40, 2), 3), dtype="uint8")
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, ("jpeg", "png")[i % 2])
        made.append((file.getvalue(), 3 * i // COUNT))
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
        """Several shards of unequal numbers of pictures, with their sizes and hashes."""
        dataset, shards = opened(write_table(root / "table", encoded)), root / "shards"
        with mock.patch.object(packing, "MEGABYTE", 1000):
            manifest = data.pack_shards(dataset, shards, format=kind, shard_mb=10)
        entries = manifest["splits"]["train"]
        counts = [entry["images"] for entry in entries]
        assert len(counts) > 2 and len({*counts}) > 1 and sum(counts) == COUNT
        written = json.loads((shards / "shards.json").read_text())
        assert written["splits"] == manifest["splits"] and written["format"] == kind
        names = {path.name for path in shards.iterdir()}
        assert names == {"shards.json", *(entry["file"] for entry in entries)}
        for entry in entries:
            content = (shards / entry["file"]).read_bytes()
            assert entry["bytes"] == len(content)
            assert entry["sha256"] == hashlib.sha256(content).hexdigest()
        return f"shards:{shards}"

    return write


def write_hf(root, encoded):
    import datasets

    columns = {
        "image": [{"bytes": content, "path": None} for content, _ in encoded],
        "label": [label for _, label in encoded],
    }
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=CLASSES)}
    made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
    made.save_to_disk(root)
    return f"hf:{root}"


def write_tfds(form):
    def write(root, encoded):
        import tensorflow_datasets as tfds

        class SamePictures(tfds.core.GeneratorBasedBuilder, skip_registration=True):
            VERSION = tfds.core.Version("1.0.0")

            def _info(self):
                features = {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "label": tfds.features.ClassLabel(names=CLASSES),
                }
                features = tfds.features.FeaturesDict(features)
                return tfds.core.DatasetInfo(
                    builder=self, features=features, disable_shuffling=True
                )

            def _split_generators(self, dl_manager):
                return {"train": self._generate_examples()}

            def _generate_examples(self):
                for number, (content, label) in enumerate(encoded):
                    yield number, {"image": io.BytesIO(content), "label": label}

        SamePictures(data_dir=root, file_format=form).download_and_prepare()
        return f"tfds:same_pictures/{root}"

    return write


HELD_OUT_BY_HAND = DataConfig(test_percent=0, test_split="train")
SOURCES = {
    "table": write_table,
    **{kind: write_shards(kind) for kind in ("tar", "parquet", "tfrecord", "array_record")},
    "hf": write_hf,
    **{f"tfds {form}": write_tfds(form) for form in ("tfrecord", "array_record")},
}


def opened(name):
    if not name.startswith("tfds:"):
        return data.load(name, 3, HELD_OUT_BY_HAND)
    name, _, root = name.partition("/")
    config = DataConfig(test_percent=0, test_split="train", data_dir=f"/{root.lstrip('/')}")
    return data.load(name, 3, config)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("sources")


def train_batches(dataset, start_step=0, shard=(0, 1), threads=0, total_steps=STEPS, **changes):
    augment = {"crop": "inception", "flip": True, "mixup_alpha": 0.2, "cutmix_alpha": 1.0}
    return data.train_batches(
        dataset.split("train"),
        **IMAGES,
        batch=BATCH,
        augment_config=AugmentConfig(**{**augment, **changes}),
        seed=5,
        start_step=start_step,
        total_steps=total_steps,
        num_classes=3,
        shard=shard,
        threads=threads,
    )


def held_out_batches(dataset, shard=(0, 1), threads=0):
    return data.eval_batches(
        dataset.split("train"), **IMAGES, batch=BATCH, shard=shard, threads=threads
    )


def assert_equal(batches, expected, rows=slice(None)):
    """The same types, shapes and bits; the rows of each expected batch are compared."""
    for batch, other in zip(batches, expected, strict=True):
        for one, two in zip(batch, other, strict=True):
            assert one.dtype == two.dtype
            np.testing.assert_array_equal(one, two[rows])


@pytest.fixture(scope="module")
def expected(root):
    """Batches of the folder, which one thread computes in order."""
    dataset = opened(write_folder(root / "expected", pictures()))
    return dataset, list(train_batches(dataset)), list(held_out_batches(dataset))


@pytest.fixture(scope="module")
def names(root, expected):
    """The name of each source; a folder is not sorted, and all others have its order."""
    encoded = [expected[0].split("train").encoded(i) for i in range(COUNT)]
    write = lambda source: SOURCES[source](root / source.replace(" ", "_"), encoded)
    return {source: write(source) for source in SOURCES} | {"folder": expected[0].name}


@once
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_has_the_batches_of_the_folder(names, expected, source):
    _, training, held_out = expected
    dataset = opened(names[source])
    assert dataset.class_names == tuple(CLASSES)
    assert_equal(train_batches(dataset), training)
    assert_equal(held_out_batches(dataset), held_out)
    assert_equal(train_batches(dataset, 3, (1, 2), threads=4), training[3:], slice(4, 8))


@once
@pytest.mark.parametrize("threads", [0, 1, 4])
def test_threads_processes_and_places_to_begin_change_nothing(expected, threads):
    dataset, training, held_out = expected
    for shard, rows in (((0, 1), slice(None)), ((0, 2), slice(4)), ((1, 2), slice(4, 8))):
        for start in range(STEPS):
            batches = train_batches(dataset, start, shard, threads)
            assert_equal(batches, training[start:], rows)
            assert_equal(
                [batches[len(batches) - 1], batches[0]], [training[-1], training[start]], rows
            )
        assert_equal(held_out_batches(dataset, shard, threads), held_out, rows)


def digest(batches):
    sha = hashlib.sha256()
    for array in keras.tree.flatten(list(batches)):
        sha.update(np.ascontiguousarray(array).tobytes())
    return sha.hexdigest()


@once
@pytest.mark.parametrize("backend", ["torch", pytest.param("jax", marks=pytest.mark.nightly)])
def test_other_backends_have_the_same_batches_without_tensorflow(names, expected, backend):
    code = f"""
        from tests.data.hide_tensorflow import WANTED
        from tests.data.test_same_batches import digest, opened, train_batches

        for source, name in {names}.items():
            print("digest of", digest(train_batches(opened(name), threads=2)), source)
            assert not WANTED, (source, WANTED)
    """
    printed = run_script("-c", textwrap.dedent(code), backend=backend).stdout.splitlines()
    digests = [line.split()[2] for line in printed if line.startswith("digest of")]
    assert digests == [digest(expected[1])] * len(names)


class Flat(keras.layers.Layer):
    """The pixels as they are, over a weight that learns nothing."""

    def build(self, input_shape):
        self.weight = self.add_weight(name="weight", initializer="zeros")

    def call(self, x):
        return ops.reshape(x, (ops.shape(x)[0], -1)) + 0.0 * self.weight


class Seen(keras.metrics.Metric):
    """Keeps all targets and outputs of a run."""

    def __init__(self, shapes):
        super().__init__(name="seen")
        add = lambda shape: self.add_weight(shape=(STEPS, *shape), initializer="zeros")
        self.kept = [*map(add, shapes)]
        self.number = self.add_weight(shape=(), initializer="zeros", dtype="int32")

    def update_state(self, targets, outputs, sample_weight=None):
        for kept, value in zip(self.kept, (targets, outputs)):
            start = ops.stack([self.number.value, *[0] * (len(kept.shape) - 1)])
            kept.assign(ops.slice_update(kept.value, start, ops.cast(value, "float32")[None]))
        self.number.assign(self.number + 1)

    def result(self):
        return ops.convert_to_tensor(self.number)

    def reset_state(self):  # at the end of each epoch
        pass


@pytest.mark.parametrize("form", ["itself", "dataset"])
def test_fit_sees_the_batches_in_order(expected, form):
    """In three epochs, of which the last one has a single step and begins with new batches."""
    dataset, training, _ = expected
    seen = Seen([(BATCH, 3), (BATCH, 12 * 16 * 3)])
    model = keras.Sequential([keras.Input((12, 16, 3)), Flat()])
    model.compile("sgd", lambda targets, outputs: 0.0 * ops.mean(outputs, axis=-1), metrics=[seen])
    batches = train_batches(dataset, threads=2)
    batches = batches if form == "itself" else batches.as_dataset()
    model.fit(batches, epochs=2, steps_per_epoch=3, shuffle=False, verbose=0)
    batches = train_batches(dataset, start_step=6, threads=2)
    batches = batches if form == "itself" else batches.as_dataset()
    model.fit(batches, initial_epoch=2, epochs=3, steps_per_epoch=1, shuffle=False, verbose=0)
    targets, images = (ops.convert_to_numpy(kept) for kept in seen.kept)
    np.testing.assert_array_equal(images, [x.reshape(BATCH, -1) for x, _ in training])
    np.testing.assert_array_equal(targets, [y for _, y in training])
