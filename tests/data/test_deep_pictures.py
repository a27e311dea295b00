"""Pictures of 8, 12, and 16 bits and of floats, with any number of channels."""

import dataclasses
import io
import struct
from functools import partial

import numpy as np
import pytest
import tifffile
from PIL import Image, ImageOps

from tests.data.crafted_pictures import chunk
from tests.data.deep_pictures import npy, png, stored, tiff, write_textures
from tests.helpers import assert_close
from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.data.augment import Augmentation
from vit_keras.data.picture_files import read_encoded
from vit_keras.models import Preprocessing

pytestmark = pytest.mark.once

SIDES = (17, 23)
BANDS = {"photometric": "minisblack", "planarconfig": "contig"}
CYX = {"axes": "CYX"}


def levels(rng, *shape, dtype="uint16"):
    if np.dtype(dtype).kind == "f":
        return rng.normal(size=(*SIDES, *shape)).astype(dtype)
    return rng.integers(0, np.iinfo(dtype).max, (*SIDES, *shape)).astype(dtype)


def with_alpha(pixels, form):
    return stored(Image.fromarray(pixels), form, lossless=True, exact=True)


RGB = {"photometric": "rgb"}
TIFFS = {  # tifffile's options, the number of channels, and their type
    "RGB, lzw": (RGB | {"compression": "lzw", "predictor": True}, 3, "uint16"),
    "RGB, zstd": (RGB | {"compression": "zstd", "predictor": True}, 3, "uint16"),
    "RGB and alpha": (RGB | {"extrasamples": ["unassalpha"]}, 4, "uint16"),
    "2, 8 bits": (BANDS, 2, "uint8"),
    "4, 8 bits": (BANDS, 4, "uint8"),
    "13 floats": (BANDS | {"compression": "zlib", "predictor": True}, 13, "float32"),
    "tiles": (BANDS | {"tile": (16, 16), "bigtiff": True, "compression": "zlib"}, 5, "uint16"),
    "an array": ({}, 6, "uint16"),
}
CHANNELS_FIRST = {
    "planes": {"photometric": "minisblack", "planarconfig": "separate"},
    "pages": {"photometric": "minisblack", "metadata": CYX},
    "ImageJ": {"imagej": True, "metadata": CYX},
    "OME": {"ome": True, "metadata": CYX},
    "an array, channels first": {},
}
NPY = {"uint8": "uint8", ">u2": "uint16", "int64": "uint16", "float64": "float32"}
# How pixels `(H, W, C)` are written, and their number of channels and type.
WRITTEN = {
    "png of gray": (lambda x: png(x[..., 0]), 1, "uint16"),
    **{f"png of {n}": (png, n, "uint16") for n in (2, 3, 4)},
    "tiff from a big-endian machine": (lambda x: tiff(x[..., 0], byteorder=">"), 1, "uint16"),
    "tiff, white is 0": (lambda x: tiff(65535 - x[..., 0], photometric="miniswhite"), 1, "uint16"),
    "tiff of a float": (lambda x: tiff(x[..., 0]), 1, "float32"),
    **{f"tiff of {n}": (partial(tiff, **options), *of) for n, (options, *of) in TIFFS.items()},
    **{
        f"tiff of {n}": (lambda x, of=of: tiff(np.moveaxis(x, -1, 0), **of), 6, "uint16")
        for n, of in CHANNELS_FIRST.items()
    },
    **{f"npy of {k}": (lambda x, k=k: npy(x.astype(k)), 5, dtype) for k, dtype in NPY.items()},
    **{
        f"{form} of 8 bits": (lambda x, form=form: with_alpha(x, form), 4, "uint8")
        for form in ("png", "webp", "tiff")
    },
    "npy in Fortran's order": (lambda x: npy(np.asfortranarray(x)), 3, "float32"),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_levels_and_channels_are_those_of_the_file(tmp_path, rng, name):
    write, channels, dtype = WRITTEN[name]
    pixels = levels(rng, channels, dtype=dtype)
    path = tmp_path / f"picture.{name[:4].strip()}"
    path.write_bytes(write(pixels))
    np.testing.assert_array_equal(data.read_image(path, channels), pixels, strict=True)
    bands = tuple(rng.permutation(channels)[:3] + 1)
    chosen = data.read_image(path, len(bands), bands=bands)
    np.testing.assert_array_equal(chosen, pixels[..., np.array(bands) - 1], strict=True)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_deep_pictures_stand_upright(rng, orientation):
    pixels, exif = levels(rng, 3), Image.Exif()
    exif[0x0112] = orientation
    planes = [Image.fromarray(pixels[..., c]) for c in range(3)]
    for plane in planes:
        plane.getexif()[0x0112] = orientation
    expected = np.stack([*map(np.asarray, map(ImageOps.exif_transpose, planes))], axis=-1)
    tag = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    for written, channels in ((png(pixels), 3), (png(pixels[..., 0]), 1)):
        for place in (33, len(written) - 12):  # after the header, and after the pixels
            turned = read_encoded(written[:place] + tag + written[place:], channels)
            np.testing.assert_array_equal(turned, expected[..., :channels])
    written = tiff(pixels, photometric="rgb", extratags=[(274, 3, 1, orientation, True)])
    np.testing.assert_array_equal(read_encoded(written, 3), expected)


def test_the_first_page_is_the_picture_unless_pages_are_channels(rng):
    pages = levels(rng, 4).transpose(2, 0, 1)
    file = io.BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for page in pages:
            writer.write(page, contiguous=False, metadata=None)
    stack = tiff(pages, imagej=True, metadata={"axes": "ZYX"})
    for written in (file.getvalue(), stack):
        np.testing.assert_array_equal(read_encoded(written, 1)[..., 0], pages[0])


def test_gray_becomes_rgb_and_rgb_gray_but_nothing_else_is_guessed(rng):
    gray, rgb = levels(rng, 1), levels(rng, 3)
    np.testing.assert_array_equal(read_encoded(npy(gray), 3), gray.repeat(3, axis=-1))
    expected = np.rint(rgb @ (0.299, 0.587, 0.114))[..., None]
    np.testing.assert_array_equal(read_encoded(png(rgb), 1), expected)
    with pytest.raises(ValueError, match="6 channels, .* takes 3. Set .* to 6, or .*bands 1 2 3"):
        read_encoded(tiff(levels(rng, 6), **BANDS), 3)
    with pytest.raises(ValueError, match="it has 3 channels, but the model takes 5"):
        read_encoded(png(rgb), 5)
    with pytest.raises(ValueError, match="it has 3 channels, but `data.bands` asks for band 4"):
        read_encoded(png(rgb), 2, None, (4, 1))


@pytest.mark.parametrize("white", [255, 4095, 65535, 1])
def test_pictures_of_other_depths_keep_their_white(rng, white):
    for top, dtype in ((255, "uint8"), (65535, "uint16")):
        pixels = levels(rng, 3, dtype=dtype)
        pixels[0, 0], pixels[0, 1] = 0, top
        expected = pixels.astype("float64") * white / top
        if (top, white) == (65535, 4095):  # which holds levels as they are
            pixels = expected = pixels // 16
        expected = expected if white == 1 else np.rint(expected)
        actual = read_encoded(npy(pixels), 3, white)
        assert_close(actual.astype("float32"), expected.astype("float32"))
        assert actual.dtype == {255: "uint8", 1: "float32"}.get(white, "uint16")


@pytest.mark.parametrize(
    ("highest", "white", "message"),
    [
        (
            4095,
            255,
            "levels reach 4095, too low .12 bits, perhaps.* white at 255.*--data.levels 4095",
        ),
        (4096, 4095, "16-bit levels reach 4096, too low .* white at 4095"),
    ],
)
def test_a_depth_that_is_not_certain_is_refused(highest, white, message):
    pixels = np.zeros((5, 6, 1), "uint16")  # black in every depth
    assert not read_encoded(npy(pixels), 1, white).any()
    pixels[3, 2] = highest
    with pytest.raises(ValueError, match=message):
        read_encoded(npy(pixels), 1, white)


def refused():
    header = lambda text: b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
    huge = b"{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d%s), }\n"
    whole = tiff(np.ones((20, 30, 6), "uint16"), **BANDS)
    place = whole.index(struct.pack("<HHI", 256, 4, 1)) + 8  # the width
    return {
        "a.npy it has 1000000x1000000 pixels": header(huge % (b"<u2", 10**6, 10**6, b"")),
        "b.npy 30x20 pixels of 4800000 bytes, but must": header(
            huge % (b"<f8", 20, 30, b", 600000")
        ),
        "c.npy buffer is smaller": npy(np.ones((20, 30, 3), "uint16"))[:-1],
        "d.npy Object arrays|must contain numbers": npy(np.array([[{}, print]])),
        "e.npy must contain numbers .H, W. or .H, W, C.": npy(np.ones((2, 3, 4, 5))),
        "f.npy be from 0 to 65535, not -1 to 3; save them as float32": npy(np.array([[-1, 3]])),
        "g.npy its values must be finite": npy(np.array([[0.5, 1e300]])),
        "i.tif pixels": whole[:place] + struct.pack("<I", 10**9) + whole[place + 4 :],
        "j.tif the file is truncated|EXIF|page": whole[: len(whole) // 2],
        "m.png the file is empty": b"",
        "l.png [Tt]runcated": png(np.ones((20, 30, 3), "uint16"))[:-20],
    }


@pytest.mark.parametrize("case", refused())
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_hostile_and_damaged_files_are_refused_by_name(tmp_path, case):
    name, message = case.split(" ", 1)
    (tmp_path / name).write_bytes(refused()[case])
    with pytest.raises(ValueError, match=f"{name}' cannot be read as an image .*(?:{message})"):
        data.read_image(tmp_path / name, 3)


@pytest.mark.parametrize(
    ("found", "files"),
    [
        (255, {"a.jpg": None, "b.png": "uint8", "c.npy": "uint8"}),
        (4095, {"a.jpg": None, "b.png": 4095, "c.tif": 300}),
        (65535, {"a.jpg": None, "b.png": 4096, "c.png": 12}),
        ("float", {"a.npy": "float64", "b.png": 60_000}),
        ("float", {"a.tif": "float32", "b.jpg": None}),
    ],
)
def test_levels_are_what_the_whole_data_set_holds(tmp_path, rng, found, files):
    for name, kind in files.items():
        path = tmp_path / "train" / name[0] / name
        path.parent.mkdir(parents=True)
        pixels = np.zeros((4, 5), kind if isinstance(kind, str) else "uint16")
        pixels[1, 2] = kind if isinstance(kind, int) else 1
        write = {".png": png, ".tif": tiff, ".npy": npy}.get(path.suffix)
        # The run says that a picture is unreadable.
        path.write_bytes(write(pixels) if write else b"\xff\xd8\xff nothing")
    config = DataConfig(test_percent=0)
    dataset = data.load(f"folder:{tmp_path}", 1, config)
    assert data.complete_levels(config, dataset).levels == found
    explicit = dataclasses.replace(config, levels=255)
    assert data.complete_levels(explicit, dataset) == explicit


@pytest.mark.parametrize("crop", [None, 0.8])
def test_deep_pictures_are_resized_in_float_channel_by_channel(rng, crop):
    pixels = rng.integers(0, 65536, (60, 41, 6)).astype("uint16")
    sides = (36, 25) if crop else (20, 20)  # the shorter side becomes 25, and the middle is cut out
    planes = [Image.fromarray(plane) for plane in np.moveaxis(pixels.astype("float32"), -1, 0)]
    planes = [np.asarray(plane.resize(sides[::-1], Image.BILINEAR)) for plane in planes]
    top, left = (round((length - 20) / 2) for length in sides)
    expected = np.stack(planes, axis=-1)[top : top + 20, left : left + 20]
    how = Preprocessing(levels=65535, crop_fraction=crop)
    assert_close(data.resize(pixels, (20, 20), how), expected)


@pytest.mark.parametrize("changes", [{"randaugment_layers": 2}, {"color_jitter": 0.3}])
def test_augmentation_of_rgb_is_refused_by_name_for_other_pictures(rng, changes):
    change = Augmentation(AugmentConfig(**changes), (8, 8), Preprocessing(levels=65535))
    with pytest.raises(ValueError, match="8-bit channels. Received: 3 channels with levels=65535"):
        change.example(levels(rng, 3), 0, rng)


def test_deep_pictures_are_packed_whole_or_not_at_all(tmp_path, rng):
    images = rng.integers(0, 65536, (4, 30, 20, 6)).astype("uint16")
    split = data.from_arrays(images, [0, 1, 0, 1])
    dataset = dataclasses.replace(data.load("digits", 1), splits={"train": split})
    data.pack_shards(dataset, tmp_path / "tar")
    config = DataConfig(test_percent=0)
    packed = data.load(f"shards:{tmp_path / 'tar'}", 6, config).split("train")
    for i, image in enumerate(images):
        np.testing.assert_array_equal(packed.read(i), image, strict=True)
    write = lambda path, pixels: path.with_suffix(".png").write_bytes(png(pixels[..., 0]))
    write_textures(tmp_path / "folder", rng, 1, write)
    folder = data.load(f"folder:{tmp_path / 'folder'}", 1)
    with pytest.raises(ValueError, match=r"pictures can be reduced. Received: '.*0.png' of uin"):
        data.pack_shards(folder, tmp_path / "small", image_size=8)
