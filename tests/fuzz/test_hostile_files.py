"""Damaged, crafted and forged files are refused by name, or say what they said before.

`python -m tests.fuzz.count` does the same with thousands of files, in processes that may crash.
"""

import json
import os
import re
import struct

import pytest

import vit_keras
from tests.fuzz.cases import FINE, REFUSED, Case, Cases
from tests.fuzz.crafted import YAML
from tests.fuzz.damage import CONTENTS, places, put_text, replaced, texts_of
from tests.fuzz.run_subjects import RUN_FILES
from tests.fuzz.subjects import SUBJECTS, made
from vit_keras import weights
from vit_keras.config import UsageError, read_config
from vit_keras.models import VisionTransformer
from vit_keras.runs import run_of
from vit_keras.weights.containers import h5_names

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore")]
SIZES = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "mlp_dim": 64, "num_classes": 5}


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return Cases(tmp_path_factory.mktemp("cases"))


@pytest.mark.parametrize("name", SUBJECTS)
def test_changed_files_are_refused_or_have_no_effect(cases, name):
    subject = SUBJECTS[name]
    numbers = {"crafted": len(cases.prepared(name)[2]), "damaged": 12 if subject.quick else 3}
    numbers["forged"] = numbers["damaged"] if subject.forge else 0
    for kind, count in numbers.items():
        for number in range(count):
            verdict = cases.judge(case := Case(name, kind, number))
            assert verdict.outcome in FINE, f"{case}: {verdict}"


NPZ, PTH, KERAS = "google .npz", "timm .pth", "vit_keras .keras"
TENSORS = "timm .safetensors"
POINTER = r"is a Git LFS pointer\. Run `git lfs pull`"


@pytest.mark.parametrize(
    ("name", "craft", "message"),
    [
        (NPZ, "shape of 10**12", r"claims the shape \(1000000, 1000000\) of float32 but has 64"),
        (NPZ, "deflate bomb", r"bytes that claim \d+ bytes of tensors; the file is not opened"),
        (NPZ, "entry twice", r"a\.npz' must hold each name once, .* Received: .* twice"),
        (PTH, "runs code", "holds Python objects.*, which loading would run"),
        (PTH, "strides of 0", "times the bytes of their file.* claim 4000000002072 bytes"),
        (PTH, "sparse", r"must be floats\. Received: .* Sparse layout"),
        (TENSORS, "offsets outside", "is not a safetensors file"),
        (TENSORS, "note of lists", "note in .* is damaged .its `architecture` must be an object"),
        (TENSORS, "pointer of git", POINTER),
        (KERAS, "soft link", "holds the link .* elsewhere"),
        (KERAS, "claims 400 GB in chunks", r"that claim \d{12} bytes of tensors"),
        ("open_clip folder, foreign", "no model", "has a field of a type that no project writes"),
    ],
)
def test_a_refusal_says_what_is_wrong(cases, name, craft, message):
    number = list(cases.prepared(name)[2]).index(craft)
    verdict = cases.judge(Case(name, "crafted", number))
    assert verdict.outcome == REFUSED and re.search(message, verdict.message), verdict


@pytest.mark.parametrize("name", [*RUN_FILES, "configuration .yaml"])
def test_a_folder_or_a_pipe_in_the_place_of_a_file_is_refused(tmp_path, name):
    path = tmp_path / SUBJECTS[name].path
    file = path / name if path.suffix == "" else path
    file.mkdir(parents=True)
    with pytest.raises((ValueError, OSError), match=file.name):
        SUBJECTS[name].open(path)
    file.rmdir()
    os.mkfifo(file)
    with pytest.raises((ValueError, OSError), match=file.name):
        SUBJECTS[name].open(path)


def test_wrong_configurations_are_usage_errors(tmp_path):
    path = tmp_path / "config.yaml"
    section, deep = YAML["list in a section's place"], CONTENTS["brackets"]
    for read, place, content, message in (
        (read_config, path, section, "Give a field of `pretext.dino`"),
        (read_config, path, deep, "more than 20 levels"),  # minutes of PyYAML
        (run_of, tmp_path, deep, "more than 20 levels.* Restore it, or begin another"),
    ):
        path.write_bytes(content)
        with pytest.raises(UsageError, match=f"config.yaml' .*{message}"):
            read(place)


HELD = 15_141  # weights of the Vision Transformer


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("mlp_dim", 10**9, f"describes {HELD + 65 * (10**9 - 64)} weights, .* the file has {HELD}"),
        ("units", 10**5, f"describes {HELD + 3299835} weights, .* the file has {HELD}"),
    ],
)
def test_a_model_that_the_file_cannot_hold_is_refused(tmp_path, field, value, message):
    """The file's configuration is changed."""
    model = VisionTransformer(16, 8, **SIZES)
    weights.save_model(model, path := tmp_path / "a.keras")
    config = json.loads(texts_of(path)["config.json"])
    place = next(place for place in places(config) if place[-1] == field)
    put_text(path, "config.json", replaced(config, place, str(value)))
    with pytest.raises(ValueError, match=f"a.keras': .*{message}"):
        vit_keras.open(path)


# HDF5's library crashes or loops on some damaged texts, so another process reads them first.
HEAP, OBJECT = b"GCOL\x01\x00\x00\x00", struct.Struct("<HH4xQ")


@pytest.fixture
def file(tmp_path):
    return made("vit_keras .weights.h5", tmp_path)


def refuse(path, message="", data=None):
    if data is not None:
        path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=f"a.weights.h5'{message}"):
        vit_keras.open(path, num_heads=2, gelu="exact")


# What an attribute with a text holds: its length, the address of its heap, and its number there.
@pytest.mark.parametrize(
    ("offset", "new"),
    [
        (0, struct.pack("<I", 100_000)),  # a longer text
        (4, struct.pack("<Q", 2**63)),  # a place beyond the end
    ],
)
def test_a_text_that_no_heap_has_is_refused(file, offset, new):
    data = bytearray(file.read_bytes())
    heap, at = struct.pack("<Q", data.index(b"GCOL")), 0
    for _ in range(4):  # the fourth attribute that refers to the heap of the file
        at = data.find(heap, at + 1)
    at += offset - 4
    data[at : at + len(new)] = new
    refuse(file, data=data)


def test_a_heap_that_does_not_end_is_refused(file, monkeypatch):
    monkeypatch.setattr(h5_names, "LONGEST_SECONDS", 3)
    data = bytearray(file.read_bytes())
    first = data.index(HEAP) + 16
    _, uses, length = OBJECT.unpack_from(data, first)
    OBJECT.pack_into(data, first + OBJECT.size + (length + 7) // 8 * 8, 7, uses, 2**64 - 16)
    refuse(file, data=data)


def test_a_process_that_ends_is_a_damaged_file(file, tmp_path, monkeypatch):
    program = tmp_path / "ends.py"
    program.write_text("import os; os.abort()")
    monkeypatch.setattr(h5_names, "__file__", str(program))
    refuse(file, " is not .* ended with -6")
