"""What `survey_pictures` sees of pictures, and which pairs of them look alike."""

import hashlib

import imagehash
import numpy as np
import pillow_heif
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.data.gray_shards import write
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data.picture_files import ORIENTATION
from vit_keras.data.review import Picture, hashes, near_hashes

pytestmark = pytest.mark.once
pillow_heif.register_heif_opener()


def integer(image_hash):
    return int("".join(str(int(bit)) for bit in image_hash.hash.ravel()).ljust(8, "0"), 2)


def test_every_picture_is_described(tmp_path, rng):
    coarse, upright = rng.integers(0, 256, (5, 7, 3), dtype="uint8"), Image.Exif()
    photo = Image.fromarray(coarse).resize((90, 60), Image.Resampling.BICUBIC)
    upright[ORIENTATION] = 6
    deep = Image.fromarray(rng.integers(0, 65536, (60, 90), dtype="uint16"))
    files = {
        "a/rgb.jpg": (photo, {}, "RGB"),
        "a/turned.jpg": (photo, {"exif": upright}, "RGB"),
        "a/gray.png": (photo.convert("L"), {}, "L"),
        "a/deep.png": (deep, {}, "uint16 of 1 channels"),
        "a/deep.tiff": (deep, {}, "uint16 of 1 channels"),
        "b/alpha.png": (photo.convert("RGBA"), {}, "RGBA, transparent"),
        "b/key.png": (photo.convert("P"), {"transparency": 3}, "P, transparent"),
        "b/palette.gif": (photo.convert("P"), {}, "P"),
        "b/cmyk.jpg": (photo.convert("CMYK"), {}, "CMYK"),
        "b/phone.heic": (photo, {}, "RGB"),
    }
    for name, (made, options, _) in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        made.save(tmp_path / name, **options)
    (tmp_path / "b" / "bad.png").write_bytes((tmp_path / "b" / "alpha.png").read_bytes()[:200])
    config = DataConfig(test_percent=0, test_split="train[:50%]")
    dataset = data.load(f"folder:{tmp_path}", 3, config)
    seen = {p.name: p for p in data.survey_pictures(dataset, dataset.splits)}
    bad = seen.pop(str(tmp_path / "b" / "bad.png"))
    assert bad.error.startswith(f"{bad.name!r} cannot be read as an image (")
    assert (bad.split, bad.class_name) == ("train", "b")
    for name, (_, _, kind) in files.items():
        path = tmp_path / name
        p = seen.pop(str(path))
        sides = (60, 90) if "turned" in name else (90, 60)
        assert ((p.width, p.height), p.kind) == (sides, kind), name
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
    for photo in 5 * [*map(Image.fromarray, load_sample_images().images)]:
        left, top = rng.integers((240, 127)).tolist()
        large = photo.crop((left, top, left + 400, top + 300)).resize((1600, 1200))
        ours, _ = hashes(np.asarray(large))
        differing.append((ours ^ integer(imagehash.phash(large))).bit_count())
    assert np.median(differing) == 0 and max(differing) <= 4


@pytest.mark.parametrize("distance", [0, 4, 16])
def test_near_hashes_are_those_of_all_pairs(rng, distance):
    numbers = rng.integers(0, 2**63, 300, dtype="uint64") * np.uint64(2)
    for i in range(150):  # at every distance up to 20, and some twice the same
        flipped = rng.choice(64, i % 20, replace=False)
        numbers[i] = numbers[i + 150] ^ np.uint64(sum(1 << int(bit) for bit in flipped))
    bits = np.bitwise_count(numbers[:, None] ^ numbers)
    pairs = zip(*np.nonzero(np.triu(bits <= distance, 1)))
    expected = {(int(i), int(j), int(bits[i, j])) for i, j in pairs}
    found = near_hashes(numbers, distance)
    assert set(found) == expected and len(found) == len(expected) >= 7


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


def test_the_splits_of_a_run_are_looked_at(tmp_path):
    for i, split in enumerate(("train", "val", "test") * 8):
        write(tmp_path / split / "ab"[i % 2] / f"{i}.png", i)
    dataset = data.load(f"folder:{tmp_path}", 3)

    def sizes(**fields):
        splits = data.splits_of_run(dataset, DataConfig(**fields))
        return {name: len(split) for name, split in splits.items()}

    assert sizes() == {"train": 8, "test": 8, "val": 8}
    assert sizes(test_split="dev") == {"train": 8, "val": 8, "test": 8}
    assert sizes(train_split="train+val") == {"train+val": 16, "test": 8}
    assert sizes(dev_percent=25) == {"train": 6, "25% of train": 2, "test": 8, "val": 8}
    with pytest.raises(ValueError, match="Received: split='other'"):
        sizes(test_split="other")
