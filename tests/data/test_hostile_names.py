"""Files that vanish, that are none, that lead in circles, or whose names are no text."""

import os
import signal

import numpy as np
import pytest

from tests.data.gray_pictures import write
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.sources import fingerprint
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once
NAMES = (
    *("-dash.png", "line\nbreak.png", '"quoted".png', "ä" * 120 + ".png"),
    *(os.fsdecode(b"no\xfftext.png"), "a" * 251 + ".png"),
)


@pytest.fixture(autouse=True)
def in_time():
    """Ends a test that hangs."""
    signal.alarm(120)
    yield
    signal.alarm(0)


@pytest.fixture
def root(tmp_path):
    """Three gray pictures of each of two classes."""
    for i in range(6):
        write(tmp_path / "images" / "ab"[i % 2] / f"{i}.png", 20 * i)
    return tmp_path / "images"


def load(root, on_corrupt="skip"):
    return data.load(f"folder:{root}", 3, DataConfig(test_percent=0, on_corrupt=on_corrupt))


def read(split):
    """The gray level of each image as training reads it."""
    options = {"image_size": (4, 6), "preprocessing": Preprocessing(mean=(0,), std=(1 / 255,))}
    images = [batch for batch, _ in data.eval_batches(split, batch=4, **options)]
    return np.concatenate(images)[:, 0, 0, 0].round().astype(int).tolist()


def test_any_name_is_read_and_recorded(root, tmp_path):
    odd = [root / "a" / name for name in NAMES]
    for path in odd:
        write(path, 200)
        assert data.read_image(path, 1)[0, 0, 0] == 200
    assert {*map(str, odd)} <= {*map(str, data.expand_pictures([root]))}
    (tmp_path / "run").mkdir()
    for _ in range(2):
        dataset = load(root, "stop")
        data.check_unchanged(dataset, tmp_path / "run")
    assert sorted(read(dataset.split("train"))) == [0, 20, 40, 60, 80, 100, *[200] * len(odd)]
    for path in odd:
        path.write_bytes(b"")
    log = tmp_path / "unreadable.txt"
    for _ in range(2):  # a run and its resumption
        dataset = load(root)
        dataset.unreadable.record_in(log)
        assert len(read(dataset.split("train"))) == 6 + len(odd)
        assert dataset.unreadable.names == {*map(str, odd)}
        dataset.unreadable.report().encode()  # can be printed
        assert len(log.read_text().splitlines()) == len(odd)


def test_what_leads_nowhere_or_is_gone_is_unreadable(root):
    (root / "a" / "nowhere.png").symlink_to(root / "none")
    (root / "a" / "loop.png").symlink_to(root / "a" / "loop.png")
    (root / "circle").symlink_to(root / "circle")
    assert root / "a" / "loop.png" in data.expand_pictures([root])
    dataset = load(root)
    split = dataset.split("train")
    (root / "b" / "1.png").unlink()
    (root / "b" / "3.png").unlink()
    (root / "b" / "3.png").mkdir()
    fingerprint(dataset)  # which reads all files
    assert len(read(split)) == 8
    gone = {"a/nowhere.png", "a/loop.png", "b/1.png", "b/3.png"}
    assert dataset.unreadable.names == {str(root / name) for name in gone}
    for name in gone:
        with pytest.raises(FileNotFoundError, match=f"There is no image at '.*{name}'"):
            data.read_image(root / name, 3)


def test_pipes_and_devices_are_not_waited_for(root):
    os.mkfifo(root / "a" / "pipe.png")
    (root / "a" / "zeros.png").symlink_to("/dev/zero")
    (root / "b" / "pipes.png").symlink_to(root / "a" / "pipe.png")
    dataset = load(root)
    fingerprint(dataset)  # which reads all files
    read(dataset.split("train"))
    pipes = {str(root / name) for name in ("a/pipe.png", "a/zeros.png")}  # "b" is a second label
    assert dataset.unreadable.names == pipes
    for name in ("a/pipe.png", "a/zeros.png"):
        with pytest.raises(FileNotFoundError, match="There is no image at"):
            data.read_image(root / name, 3)


def test_folders_that_lead_in_circles_are_read_once(root):
    for depth in range(25):  # 2^25 paths
        folder = root / "a" / f"d{depth}"
        folder.mkdir()
        for link in "xy":
            (folder / link).symlink_to(root / "a" / f"d{depth + 1}")
    (root / "a" / "up").symlink_to(root)
    (root / "a" / "self").symlink_to(root / "a")
    linked = root.parent / "linked"
    write(linked / "7.png", 140)
    (root / "b" / "linked").symlink_to(linked)
    assert sorted(set(read(load(root).split("train")))) == [0, 20, 40, 60, 80, 100, 140]


def test_names_of_classes_are_text_on_one_line(root):
    for name in ("two\nlines", os.fsdecode(b"no\xfftext"), "tab\there"):
        write(root / name / "1.png", 7)
        with pytest.raises(ValueError, match=r"a class must be text on one line\. Received: \['"):
            load(root)
        (root / name / "1.png").unlink()
        (root / name).rmdir()


def test_classes_that_differ_in_case_alone_are_told(root):
    write(root / "A" / "1.png", 7)
    review = data.Review()
    dataset = data.load(f"folder:{root}", 1)
    review.add_labels(dataset, dataset.splits)
    assert any("upper and lower case: A, a. Rename" in text for text in review.warnings)
    assert load(root).class_names == ("A", "a", "b")
