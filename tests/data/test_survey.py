"""What `survey_pictures` sees of pictures, and which pairs of them look alike."""

import hashlib

import imagehash
import numpy as np
import pillow_heif
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.pillow_images import ORIENTATION
from vit_keras.data.review import Picture, hashes, near_hashes

pytestmark = pytest.mark.once
pillow_heif.register_heif_opener()


def smooth(rng, size=(90, 60)):
    """A smooth picture of many colors."""
    coarse = rng.integers(0, 256, (5, 7, 3), dtype="uint8")
    return Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)


def integer(image_hash):
    return int("".join(str(int(bit)) for bit in image_hash.hash.ravel()).ljust(8, "0"), 2)


def test_every_picture_is_described(tmp_path, rng):
    picture = smooth(rng)
    upright = Image.Exif()
    upright[ORIENTATION] = 6
    deep = rng.integers(0, 65536, (60, 90), dtype="uint16")
    files = {
        "a/rgb.jpg": (lambda p: picture.save(p), 90, 60, "RGB"),
        "a/turned.jpg": (lambda p: picture.save(p, exif=upright), 60, 90, "RGB"),
        "a/gray.png": (lambda p: picture.convert("L").save(p), 90, 60, "grayscale"),
        "a/deep.png": (lambda p: Image.fromarray(deep).save(p), 90, 60, "16 bits of gray"),
        "a/deep.tiff": (lambda p: Image.fromarray(deep).save(p), 90, 60, "16 bits of gray"),
        "b/alpha.png": (lambda p: picture.convert("RGBA").save(p), 90, 60, "with transparency"),
        "b/key.png": (lambda p: picture.convert("P").save(p, transparency=3), 90, 60,
                      "with transparency"),
        "b/palette.gif": (lambda p: picture.convert("P").save(p), 90, 60, "with a palette"),
        "b/cmyk.jpg": (lambda p: picture.convert("CMYK").save(p), 90, 60, "CMYK"),
        "b/phone.heic": (lambda p: picture.save(p), 90, 60, "RGB"),
    }  # fmt: skip
    for name, (save, *_) in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        save(tmp_path / name)
    (tmp_path / "b" / "bad.png").write_bytes((tmp_path / "b" / "alpha.png").read_bytes()[:200])
    config = DataConfig(test_percent=0, test_split="train[:50%]")
    dataset = data.load(f"folder:{tmp_path}", 3, config)
    seen = {p.name: p for p in data.survey_pictures(dataset, dataset.splits)}
    bad = seen.pop(str(tmp_path / "b" / "bad.png"))
    assert bad.error.startswith(f"{bad.name!r} cannot be read as an image (")
    assert (bad.split, bad.class_name) == ("train", "b")
    for name, (_, width, height, kind) in files.items():
        path = tmp_path / name
        p = seen.pop(str(path))
        assert (p.width, p.height, p.kind) == (width, height, kind), name
        assert (p.split, p.class_name, p.error) == ("train", name[0], None)
        assert p.digest == hashlib.sha256(path.read_bytes()).hexdigest()
        if "deep" not in name:  # noise, whose hash hangs on the last bit
            pixels = Image.fromarray(data.read_image(path, 3))
            assert p.phash == integer(imagehash.phash(pixels))
            halves = np.split(np.asarray(pixels, float), 2)
            quarters = [q.mean(axis=(0, 1)) for h in halves for q in np.split(h, 2, axis=1)]
            np.testing.assert_allclose(p.colors, np.ravel(quarters), atol=1)
    assert not seen


def test_large_pictures_hash_as_imagehash_does(rng):
    """The copy that is reduced first changes few bits, of about 32 between two pictures."""
    differing = []
    for photo in map(Image.fromarray, load_sample_images().images):
        for _ in range(5):
            left, top = int(rng.integers(240)), int(rng.integers(127))
            large = photo.crop((left, top, left + 400, top + 300)).resize((1600, 1200))
            ours, _ = hashes(np.asarray(large))
            differing.append((ours ^ integer(imagehash.phash(large))).bit_count())
    assert np.median(differing) == 0 and max(differing) <= 4


@pytest.mark.parametrize("distance", [0, 3, 4, 16])
def test_near_hashes_are_those_of_all_pairs(rng, distance):
    numbers = rng.integers(0, 2**63, 300, dtype="uint64") * np.uint64(2)
    for i in range(150):  # at every distance up to 20, and some twice the same
        flipped = rng.choice(64, i % 20, replace=False)
        numbers[i] = numbers[i + 150] ^ np.uint64(sum(1 << int(bit) for bit in flipped))
    expected = {
        (i, j, bits)
        for i in range(300)
        for j in range(i + 1, 300)
        if (bits := (int(numbers[i]) ^ int(numbers[j])).bit_count()) <= distance
    }
    assert len(expected) >= 7
    found = near_hashes(numbers, distance)
    assert set(found) == expected and len(found) == len(expected)


def test_the_distance_is_imagehashs(rng, tmp_path):
    pictures = [smooth(rng, (200, 160)) for _ in range(4)]
    pictures += [picture.resize((100, 80)) for picture in pictures]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for i, picture in enumerate(pictures):
        picture.save(tmp_path / "ab"[i % 2] / f"{i}.png")
    dataset = data.load(f"folder:{tmp_path}", 3, DataConfig(test_percent=0))
    pairs = data.find_pairs(list(data.survey_pictures(dataset, dataset.splits)), 8)
    theirs = {
        frozenset((i, i + 4)): imagehash.phash(pictures[i]) - imagehash.phash(pictures[i + 4])
        for i in range(4)
    }
    number = lambda picture: int(picture.name.rpartition("/")[2].removesuffix(".png"))
    ours = {frozenset((number(p.first), number(p.second))): p.distance for p in pairs}
    assert ours == theirs and not any(pair.is_exact for pair in pairs)


def picture(name, split="train", class_name="a", phash=0, colors=(0,) * 12, digest=None, side=50):
    digest = digest or hashlib.sha256(name.encode()).hexdigest()
    return Picture(name, split, class_name, None, side, side, "RGB", digest, phash, colors)


def found(pictures, distance=4):
    return {(p.first.name, p.second.name, p.distance) for p in data.find_pairs(pictures, distance)}


def test_a_picture_is_paired_within_and_across_splits_and_classes():
    pictures = [
        picture("first"),
        picture("other class", class_name="b", phash=1),
        picture("test", "test", phash=3),
        picture("far", phash=0b11111),
        picture("other color", colors=(*[16] * 11, 17)),
        picture("light", colors=(200,) * 12),
        picture("as light", "test", colors=(184,) * 12),
    ]
    assert found(pictures) == {
        ("first", "other class", 1),
        ("first", "test", 2),  # another split
        ("other class", "test", 1),  # another split and class
        ("other class", "far", 4),
        ("test", "far", 3),
        ("light", "as light", 0),
    }
    assert found(pictures, 5) - found(pictures) == {("first", "far", 5)}


def test_tiny_and_unreadable_pictures_only_repeat_as_files():
    tiny = [picture("a", side=8), picture("b", side=8), picture("c", side=8)]
    tiny[2] = tiny[2]._replace(digest=tiny[0].digest)
    bad = [picture(name)._replace(error="no picture") for name in ("d", "e")]
    (pair,) = data.find_pairs([*tiny, *bad])
    assert (pair.first.name, pair.second.name, pair.is_exact) == ("a", "c", True)
    assert data.find_pairs([]) == data.find_pairs(bad) == []


def test_the_splits_of_a_run_are_looked_at(rng, tmp_path):
    for split in ("train", "val", "test"):
        for name in ("a", "b"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(4):
                smooth(rng).save(tmp_path / split / name / f"{i}.png")
    dataset = data.load(f"folder:{tmp_path}", 3)
    sizes = lambda **fields: {
        name: len(split)
        for name, split in data.splits_of_run(dataset, DataConfig(**fields)).items()
    }
    assert sizes() == {"train": 8, "test": 8, "val": 8}
    assert sizes(test_split="dev") == {"train": 8, "val": 8, "test": 8}
    assert sizes(train_split="train+val") == {"train+val": 16, "test": 8}
    assert sizes(dev_percent=25) == {"train": 6, "25 % of train": 2, "test": 8, "val": 8}
    with pytest.raises(ValueError, match="Received: split='other'"):
        sizes(test_split="other")
