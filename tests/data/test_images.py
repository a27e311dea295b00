"""Pictures of every format, read as Pillow reads them and turned upright."""

import io

import numpy as np
import pillow_heif
import pytest
from PIL import Image, ImageOps

from vit_keras import data
from vit_keras.data import pillow_images

pytestmark = pytest.mark.once
pillow_heif.register_heif_opener()  # for what the tests write and expect


@pytest.fixture
def picture(rng):
    """A smooth picture of many colors, 40x56."""
    coarse = rng.integers(0, 256, (5, 7, 3), dtype="uint8")
    return Image.fromarray(coarse).resize((56, 40), Image.Resampling.BICUBIC)


@pytest.fixture
def read(tmp_path):
    """Reads an encoded picture: `(bytes, channels) -> (H, W, channels)` uint8."""

    def read(written, channels):
        (tmp_path / "picture").write_bytes(written)
        return data.read_image(tmp_path / "picture", channels)

    return read


def stored(picture, form, **options):
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def with_alpha(picture):
    picture = picture.convert("RGBA")
    picture.putalpha(Image.linear_gradient("L").resize(picture.size))
    return picture


def picture_of(written):
    return Image.open(io.BytesIO(written))


def exif(orientation):
    tags = Image.Exif()
    tags[pillow_images.ORIENTATION] = orientation
    return tags


WAYS = {
    "jpeg": lambda p: stored(p, "JPEG", quality=90),
    "progressive jpeg": lambda p: stored(p, "JPEG", progressive=True),
    "gray jpeg": lambda p: stored(p.convert("L"), "JPEG"),
    "cmyk jpeg": lambda p: stored(p.convert("CMYK"), "JPEG", quality=95),
    "png": lambda p: stored(p, "PNG"),
    "gray png": lambda p: stored(p.convert("L"), "PNG"),
    "one bit png": lambda p: stored(p.convert("1"), "PNG"),
    "palette png": lambda p: stored(p.convert("P"), "PNG", transparency=3),
    "transparent png": lambda p: stored(with_alpha(p), "PNG"),
    "gray transparent png": lambda p: stored(with_alpha(p).convert("LA"), "PNG"),
    "gif": lambda p: stored(p, "GIF"),
    "moving gif": lambda p: stored(p, "GIF", save_all=True, append_images=[p.rotate(180)]),
    "webp": lambda p: stored(p, "WEBP", quality=80),
    "transparent webp": lambda p: stored(with_alpha(p), "WEBP", lossless=True, exact=True),
    "bmp": lambda p: stored(p, "BMP"),
    "palette bmp": lambda p: stored(p.convert("P"), "BMP"),
    "transparent bmp": lambda p: stored(with_alpha(p), "BMP"),
    "gray bmp": lambda p: stored(p.convert("L"), "BMP"),
    "tiff": lambda p: stored(p, "TIFF"),
    "compressed tiff": lambda p: stored(p, "TIFF", compression="tiff_lzw"),
    "cmyk tiff": lambda p: stored(p.convert("CMYK"), "TIFF"),
    "many pages": lambda p: stored(p, "TIFF", save_all=True, append_images=[p.rotate(180)]),
    "gray tiff": lambda p: stored(p.convert("L"), "TIFF", big_tiff=True),
    "transparent tiff": lambda p: stored(with_alpha(p), "TIFF"),
    "avif": lambda p: stored(p, "AVIF"),
    "transparent avif": lambda p: stored(with_alpha(p), "AVIF"),
    "heic": lambda p: stored(p, "HEIF"),
    "gray heic": lambda p: stored(p.convert("L"), "HEIF"),
    "transparent heic": lambda p: stored(with_alpha(p), "HEIF"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_format_has_pillows_pixels(picture, read, way):
    written = WAYS[way](picture)
    theirs = Image.open(io.BytesIO(written)).convert("RGB")
    for channels, mode in ((3, "RGB"), (1, "L")):
        expected = np.asarray(theirs.convert(mode)).reshape(40, 56, channels)
        actual = read(written, channels)
        assert actual.dtype == np.uint8
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_pictures_stand_upright(picture, read, form, orientation):
    lossless = {"lossless": True} if form == "WEBP" else {}
    written = stored(picture, form, exif=exif(orientation), **lossless)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(written))).convert("RGB")
    np.testing.assert_array_equal(read(written, 3), np.asarray(upright))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["AVIF", "HEIF"])
def test_pictures_whose_encoder_turns_them_stand_upright(picture, read, form, orientation):
    """These formats hold the turn beside the pixels; EXIF may not say it again."""
    written = stored(picture, form, exif=exif(orientation).tobytes(), quality=95)
    turned = ImageOps.exif_transpose(picture_of(stored(picture, "PNG", exif=exif(orientation))))
    actual = read(written, 3)
    assert actual.shape == (turned.height, turned.width, 3)
    assert np.abs(actual.astype(int) - np.asarray(turned)).mean() < 12  # of 85 if it lay otherwise


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "the file is empty"),
        (b"BM", "cannot identify image file"),
        (b"not a picture", r"cannot identify image file\)"),
        (b"\xff\xd8\xff", "cannot identify image file"),
    ],
)
def test_what_is_no_picture_is_named(tmp_path, content, reason):
    (tmp_path / "a.png").write_bytes(content)
    with pytest.raises(ValueError, match=rf"a\.png' cannot be read as an image \({reason}"):
        data.read_image(tmp_path / "a.png", 3)


@pytest.mark.parametrize("way", ["jpeg", "png", "gif", "webp", "bmp", "tiff", "avif", "heic"])
def test_a_truncated_picture_is_named(tmp_path, picture, way):
    written = WAYS[way](picture)
    (tmp_path / "b").write_bytes(written[: len(written) * 2 // 3])
    with pytest.raises(ValueError, match=r"b' cannot be read as an image .*whole jpg, jpeg, jfif"):
        data.read_image(tmp_path / "b", 3)
