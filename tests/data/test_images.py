"""Pictures of every format are read as by Pillow, unless they ask for too much."""

import functools
import io
import struct
import zlib

import numpy as np
import PIL.Image
import pillow_heif
import pytest
from PIL import Image, ImageOps

from tests.data import crafted_pictures as crafted
from tests.data.deep_pictures import stored
from tests.fuzz.pictures import whole_pictures
from vit_keras import data
from vit_keras.data.picture_files import ORIENTATION, read_encoded

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:Image size")]
pillow_heif.register_heif_opener()  # for what the tests write and expect


def exif(orientation):
    tags = Image.Exif()
    tags[ORIENTATION] = orientation
    return tags


read_rgb = functools.partial(read_encoded, channels=3)
WAYS = {name: content for name, content in whole_pictures().items() if "16 bits" not in name}
FORMS = ("AVIF", "BMP", "GIF", "HEIF", "JPEG", "PNG", "TIFF", "WEBP")


@pytest.mark.parametrize("way", WAYS)
def test_every_format_has_pillows_pixels(way):
    theirs = ImageOps.exif_transpose(Image.open(io.BytesIO(WAYS[way]))).convert("RGB")
    for channels, mode in ((3, "RGB"), (1, "L")):
        expected = np.asarray(theirs.convert(mode)).reshape(*theirs.size[::-1], channels)
        actual = read_encoded(WAYS[way], channels)
        np.testing.assert_array_equal(actual, expected, strict=True)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "HEIF"])
def test_pictures_stand_upright(rng, form, orientation):
    """AVIF and HEIC hold the turn beside the pixels; EXIF may not say it again."""
    picture = Image.fromarray(rng.integers(0, 256, (5, 7, 3), dtype="uint8")).resize((56, 40))
    options = {"exif": exif(orientation).tobytes(), "lossless": form == "WEBP"}
    written = stored(picture, form, **options, quality=95)
    png = io.BytesIO(stored(picture, "PNG", exif=exif(orientation)))
    turned, actual = ImageOps.exif_transpose(Image.open(png)), read_encoded(written, 3)
    assert actual.shape == (turned.height, turned.width, 3)
    # The pixels differ by 85 on average if the picture lies otherwise.
    most = 0 if form in ("PNG", "WEBP", "TIFF") else 12
    assert np.abs(actual.astype(int) - np.asarray(turned)).mean() <= most


@pytest.mark.parametrize("way", [way for way in WAYS if " " not in way])
def test_a_truncated_picture_is_named(tmp_path, way):
    (tmp_path / "b").write_bytes(WAYS[way][: len(WAYS[way]) * 2 // 3])
    with pytest.raises(ValueError, match=r"b' cannot be read as an image .*whole jpg, jpeg, jfif"):
        data.read_image(tmp_path / "b", 3)


@pytest.mark.parametrize("form", FORMS)
def test_more_pixels_than_the_bound_are_refused(monkeypatch, form):
    written = stored(Image.new("RGB", (64, 48), (9, 200, 30)), form)
    for bound in (64 * 48, None):
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", bound)
        assert read_rgb(written).shape == (48, 64, 3)
    for bound in (64 * 48 - 1, 100):  # above twice its bound, Pillow refuses
        monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", bound)
        with pytest.raises(
            ValueError, match=r"64x48 pixels.*; make it smaller, or raise|\(3072 pixels"
        ):
            read_rgb(written)


def bombs():
    """Files that ask for gigabytes of memory."""
    blank = Image.new("RGB", (8, 8))
    jpeg, webp = (stored(blank, form, lossless=True) for form in ("JPEG", "WEBP"))
    place = jpeg.index(b"\xff\xc0") + 5
    inflating = lambda name: crafted.chunk(name, b"a\0\0" + zlib.compress(bytes(10**7), 9))
    return {
        "png": crafted.png(60_000, 60_000, bytes(7500), depth=1, color=0),
        "jpeg": jpeg[:place] + struct.pack(">HH", 65500, 65500) + jpeg[place + 4 :],
        "webp": webp[:21] + struct.pack("<I", 16382 << 14 | 16382) + webp[25:],
        "texts": crafted.png(2, 2, bytes(12), extra=inflating(b"zTXt") * 4),
        "profile": crafted.png(2, 2, bytes(12), extra=inflating(b"iCCP")),
    }


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_takes_no_memory(name):
    written = bombs()[name]
    read_rgb(stored(Image.new("RGB", (8, 8)), "PNG"))
    crafted.reset_peak()
    before = crafted.peak_mb()
    with pytest.raises(
        ValueError, match="make it smaller|exceeds limit|Decompressed data too large"
    ):
        read_rgb(written)
    assert crafted.peak_mb() - before < 4 * len(written) / 2**20 + 64


def test_the_tiles_of_a_tiff_are_bounded():
    """The picture has 4x4 pixels, and its tile more than a picture may have."""
    values = {256: 4, 257: 4, 258: 8, 259: 1, 262: 1, 277: 1, 322: 60_000, 323: 60_000}
    values |= {324: 200, 325: 16}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in values.items())
    head = b"II*\0" + struct.pack("<IH", 8, len(values)) + entries + bytes(4)
    with pytest.raises(ValueError, match="60000x60000 pixels of 12 bytes, but must have 1 to"):
        read_rgb(head.ljust(200, b"\0") + bytes(16))


def test_a_jpeg_of_many_scans_is_refused():
    written = stored(Image.new("RGB", (64, 64)), "JPEG", progressive=True)
    scan = written[written.rindex(b"\xff\xda") : written.rindex(b"\xff\xd9")]
    assert read_rgb(written[:-2] + scan * 80 + b"\xff\xd9").shape == (64, 64, 3)
    with pytest.raises(ValueError, match=r"it has 2\d\d scans, more than 100; save it again"):
        read_rgb(written[:-2] + scan * 200 + b"\xff\xd9")


def test_every_checksum_of_a_png_is_checked(rng):
    picture = Image.fromarray(rng.integers(0, 256, (9, 7, 3), dtype="uint8"))
    written = stored(picture, "PNG", exif=b"Exif\0\0MM\0*", dpi=(72, 72))
    place = 8
    while place < len(written) - 12:  # the end holds nothing
        length = int.from_bytes(written[place : place + 4], "big")
        flipped = bytearray(written)
        flipped[place + 8 + max(0, length - 1)] ^= 16  # the last byte, or the checksum itself
        with pytest.raises(ValueError, match="bad header checksum|cannot identify"):
            read_rgb(bytes(flipped))
        place += 12 + length
    with pytest.raises(ValueError, match="truncated PNG file"):
        read_rgb(written[:-12])
