"""Files without hashes: their SHA-256 is recorded at the first use and compared later."""

import concurrent.futures
import hashlib
import json
import os
import warnings

import pytest

from tests.helpers import weights_by_path
from tests.weights.builds import build
from tests.weights.server import ROW
from vit_keras import weights
from vit_keras.weights import first_use
from vit_keras.weights.published import download, integrity

pytestmark = pytest.mark.once


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The cache of this test; its file of records."""
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models" / "vit_keras" / "first_use.json"


@pytest.fixture
def foreign(rng, tmp_path):
    """A file that another program wrote."""
    from safetensors.numpy import load_file, save_file

    file = tmp_path / "foreign.safetensors"
    weights.save(build(rng), file, format="timm")
    save_file(load_file(file), file)
    return file


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()


def flip(file):
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(bytes(data))


def load_quietly(file):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        weights.load(build(), file)


def test_the_first_use_is_on_record_and_shown(foreign, home):
    assert weights.describe(foreign)["files"][0]["first_used"] is None  # a look is no use
    load_quietly(foreign)
    ((path, record),) = json.loads(home.read_text()).items()
    assert path == os.path.realpath(foreign) and record["sha256"] == digest(foreign)
    assert record["bytes"] == foreign.stat().st_size
    described = weights.describe(foreign)["files"][0]
    assert described["first_used"] == record["first_used"] and described["unchanged"] is True
    flip(foreign)
    assert weights.describe(foreign)["files"][0]["unchanged"] is False


def test_what_this_package_writes_needs_no_record(rng, tmp_path, home):
    for name in ("a.keras", "a.weights.h5"):
        weights.save(build(rng), tmp_path / name)
        load_quietly(tmp_path / name)
    weights.open_model(tmp_path / "a.keras")
    assert not home.exists()


def test_content_that_changed_without_its_time_is_damage(foreign, home):
    load_quietly(foreign)
    before, state = digest(foreign), foreign.stat()
    flip(foreign)
    os.utime(foreign, ns=(state.st_atime_ns, state.st_mtime_ns))
    model = build()
    old = weights_by_path(model)
    message = f"foreign.safetensors' is damaged: .*was {before} and is {digest(foreign)}.* touch "
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            weights.load(model, foreign)
    assert all((old[path] == value).all() for path, value in weights_by_path(model).items())
    foreign.touch()  # as the message says
    with pytest.warns(UserWarning, match="not the file that was first used"):
        weights.load(model, foreign)


def test_another_file_in_its_place_is_told_once(foreign, home):
    load_quietly(foreign)
    before = digest(foreign)
    flip(foreign)
    message = f"first used on 2.*SHA-256 was {before} and is {digest(foreign)}. If you replaced it"
    with pytest.warns(UserWarning, match=message):
        weights.load(build(), foreign)
    load_quietly(foreign)
    assert json.loads(home.read_text())[os.path.realpath(foreign)]["sha256"] == digest(foreign)


def test_a_copy_of_equal_content_is_the_same_file(foreign, home):
    load_quietly(foreign)
    (first,) = json.loads(home.read_text()).values()
    foreign.touch()
    load_quietly(foreign)
    (second,) = json.loads(home.read_text()).values()
    assert second["first_used"] == first["first_used"]
    assert second["modified_ns"] == foreign.stat().st_mtime_ns  # damage is still told apart


def test_a_keras_archive_of_another_program_is_on_record(rng, tmp_path, home):
    build(rng).save(tmp_path / "a.keras")
    weights.open_model(tmp_path / "a.keras")
    assert [os.path.basename(path) for path in json.loads(home.read_text())] == ["a.keras"]


def test_a_cache_that_cannot_be_written_stops_nothing(foreign, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "file"))
    load_quietly(foreign)
    monkeypatch.setenv("KERAS_HOME", "/proc/nowhere")
    load_quietly(foreign)


@pytest.mark.parametrize("text", ["", "[]", "{", "\0", "[" * 10**5, '{"a": 5, "b": {"sha256": 1}}'])
def test_spoiled_records_are_begun_anew(foreign, home, text):
    home.parent.mkdir(parents=True)
    home.write_text(text)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The records of first uses in .*first_use.json' are dam")
        weights.load(build(), foreign)
    assert list(json.loads(home.read_text())) == [os.path.realpath(foreign)]


def test_records_are_bounded_and_the_oldest_go_first(tmp_path, home, monkeypatch):
    monkeypatch.setattr(first_use, "MOST_FILES", 3)
    for number in range(5):
        (tmp_path / f"{number}").write_text(f"{number}")
        first_use.check(str(tmp_path / f"{number}"))
    kept = [os.path.basename(path) for path in json.loads(home.read_text())]
    assert sorted(kept) == ["2", "3", "4"]


def test_records_of_several_at_once_are_all_kept(tmp_path, home):
    files = [tmp_path / f"{number}" for number in range(12)]
    for file in files:
        file.write_text(file.name)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda file: first_use.check(str(file)), files))
    assert set(json.loads(home.read_text())) == {os.path.realpath(file) for file in files}


def test_downloads_are_recorded_beside_themselves_alone(serve, target):
    serve()
    path = weights.fetch(ROW)
    first_use.check(path)
    assert not os.path.exists(first_use.records_file())
    integrity._CHECKED.clear()  # as in another process
    first_use.check(path)
    assert not os.path.exists(first_use.records_file())
    flip(target)
    with pytest.raises(ValueError, match="ViT-B_16.npz' is not the file that was downloaded"):
        first_use.check(path)


def test_records_lie_in_the_cache_of_downloads(home):
    assert first_use.records_file() == str(home)
    assert download.cached_path(ROW).startswith(str(home.parent))
