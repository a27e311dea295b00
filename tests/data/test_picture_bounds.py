"""Pictures that ask for too much are refused before they are decoded."""

import io
import struct
import zlib

import numpy as np
import PIL.Image
import pillow_heif
import pytest
from PIL import Image

from tests.data import crafted_pictures as crafted
from vit_keras import data
from vit_keras.config import DataConfig
from vit_keras.data import deep_images, pillow_images
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.models import Preprocessing

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:Image size")]
pillow_heif.register_heif_opener()  # for what the tests write
FORMS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "AVIF", "HEIF")


def stored(picture, form, **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def read(written):
    return pillow_images.read_encoded(written, 3)


@pytest.mark.parametrize("form", FORMS)
def test_more_pixels_than_the_bound_are_refused(monkeypatch, form):
    written = stored(Image.new("RGB", (64, 48), (9, 200, 30)), form)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 64 * 48)
    assert read(written).shape == (48, 64, 3)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 64 * 48 - 1)
    with pytest.raises(ValueError, match="64x48 pixels, more than 3071; make it smaller, or raise"):
        read(written)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match=r"(64x48|\(3072) pixels.*; make it smaller, or raise"):
        read(written)
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", None)
    assert read(written).shape == (48, 64, 3)


def peak_mb():
    """The most memory of this process since `reset_peak`, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def reset_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def forged_jpeg():
    written = stored(Image.new("RGB", (8, 8)), "JPEG")
    place = written.index(b"\xff\xc0") + 5
    return written[:place] + struct.pack(">HH", 65500, 65500) + written[place + 4 :]


def forged_webp():
    written = stored(Image.new("RGB", (8, 8)), "WEBP", lossless=True)
    return written[:21] + struct.pack("<I", 16382 << 14 | 16382) + written[25:]


BOMBS = {
    "png": lambda: crafted.png(60_000, 60_000, bytes(7500), depth=1, color=0),
    "jpeg": forged_jpeg,
    "webp": forged_webp,
    "texts": lambda: crafted.png(
        2,
        2,
        bytes(12),
        extra=crafted.chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(10**7), 9)) * 4,
    ),
    "profile": lambda: crafted.png(
        2, 2, bytes(12), extra=crafted.chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(10**7), 9))
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_memory(name):
    written = BOMBS[name]()
    read(stored(Image.new("RGB", (8, 8)), "PNG"))
    reset_peak()
    before = peak_mb()
    with pytest.raises(ValueError, match="make it smaller|Decompressed data too large"):
        read(written)
    assert peak_mb() - before < 4 * len(written) / 2**20 + 64


def tiled_tiff(side):
    """A TIFF of 4x4 pixels in one tile of `side` x `side`."""
    values = {
        256: 4,
        257: 4,
        258: 8,
        259: 1,
        262: 1,
        277: 1,
        322: side,
        323: side,
        324: 200,
        325: 16,
    }
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    head = b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4)
    return head.ljust(200, b"\0") + bytes(16)


def test_the_tiles_of_a_tiff_are_bounded():
    with pytest.raises(ValueError, match="60000x60000 pixels, more than"):
        read(tiled_tiff(60_000))


def test_a_jpeg_of_many_scans_is_refused_unless_it_is_small(monkeypatch):
    written = stored(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    scan = written[written.rindex(b"\xff\xda") : written.rindex(b"\xff\xd9")]
    written = written[:-2] + scan * 200 + b"\xff\xd9"
    assert read(written).shape == (64, 64, 3)
    monkeypatch.setattr(deep_images, "MODEST_WORK", 64 * 64 * 100)
    with pytest.raises(ValueError, match=r"it has 2\d\d scans, more than 100; save it again"):
        read(written)


def test_every_checksum_of_a_png_is_checked(rng):
    picture = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype="uint8"))
    written = stored(picture, "PNG", exif=b"Exif\0\0MM\0*", dpi=(72, 72))
    place = 8
    while place < len(written) - 12:  # the end holds nothing
        length = int.from_bytes(written[place : place + 4], "big")
        flipped = bytearray(written)
        flipped[place + 8 + max(0, length - 1)] ^= 16  # the last byte, or the checksum itself
        with pytest.raises(ValueError, match="bad header checksum|cannot identify"):
            read(bytes(flipped))
        place += 12 + length
    with pytest.raises(ValueError, match="truncated PNG file"):
        read(written[:-12])


def test_a_png_without_all_its_rows_is_refused(rng):
    picture = rng.integers(0, 256, (9, 7, 3), dtype="uint8")
    np.testing.assert_array_equal(read(crafted.png(7, 9, picture.tobytes())), picture)
    with pytest.raises(ValueError, match="rows of its pixels are missing"):
        read(crafted.png(7, 10, picture.tobytes()))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (3, 5), (8, 8), (17, 2), (2, 30)])
def test_interlaced_pngs_are_read(rng, height, width):
    """Seven passes of Adam7, each a smaller picture."""
    picture = rng.integers(0, 256, (height, width, 3), dtype="uint8")
    passes = [picture[y::dy, x::dx] for x, y, dx, dy in deep_images.ADAM7]
    rows = b"".join(b"\0" + row.tobytes() for part in passes if part.size for row in part)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 1)
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(rows), b"IEND": b""}
    written = b"\x89PNG\r\n\x1a\n" + b"".join(crafted.chunk(*chunk) for chunk in chunks.items())
    np.testing.assert_array_equal(read(written), picture)


@pytest.fixture
def folder(tmp_path, rng):
    """Six small pictures of two classes and a PNG of 400 megapixels."""
    for i in range(6):
        path = tmp_path / "images" / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), dtype="uint8")).save(path)
    bomb = crafted.png(20_000, 20_000, bytes(2500), depth=1, color=0)
    (tmp_path / "images" / "a" / "bomb.png").write_bytes(bomb)
    return tmp_path / "images"


def batches(folder, on_corrupt):
    config = DataConfig(test_percent=0, on_corrupt=on_corrupt)
    split = data.load(f"folder:{folder}", 3, config).split("train")
    return split, data.eval_batches(
        split, image_size=(8, 8), preprocessing=Preprocessing(), batch=4
    )


def test_a_bomb_stops_a_run_or_is_skipped(folder):
    split, stopping = batches(folder, "stop")
    message = r"^'.*bomb.png' cannot be read as an image \(Image size .400000000 pixels. exceeds"
    with pytest.raises(UnreadableImageError, match=message), split.reading():
        list(stopping)
    split, skipping = batches(folder, "skip")
    assert sum(len(labels) for _, labels in skipping) == 7
    assert split.unreadable.names == {str(folder / "a" / "bomb.png")}
    with pytest.raises(ValueError, match=message):
        data.read_image(folder / "a" / "bomb.png", 3)
