# ruff: noqa: E501 - rows of tables of cases
"""Pictures and masks: what is read, how both are changed alike, and what is refused."""

import shutil

import numpy as np
import pytest
import tifffile
from PIL import Image
from scipy.ndimage import maximum_filter, minimum_filter

from tests.data.mask_pictures import CLASSES, STEP, make_mask, write_folder, write_pair, write_split
from vit_keras import data
from vit_keras.config import AugmentConfig, DataConfig
from vit_keras.data.dataset import UnreadableImageError
from vit_keras.models import Preprocessing
from vit_keras.support.tasks import Task

pytestmark = pytest.mark.once
SIZE = (28, 24)
PIXELS = Preprocessing(mean=(0.0,), std=(1 / 255,))  # the model's input is the pixels


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "photos")


def masks_of(split):
    return {split.name(i).rsplit("/", 1)[-1]: split.example(i)[1] for i in range(len(split))}


def test_a_folder_of_pictures_and_masks_is_found_and_read(folder):
    dataset = data.load(f"folder:{folder}", 3)
    assert dataset.kind == "masks" and dataset.class_names == ("ground", "house", "tree")
    for name, seed, count in (("train", 1, 12), ("test", 2, 4)):
        read, rng = masks_of(dataset.split(name)), np.random.default_rng(seed)
        assert sorted(read) == [f"p{i:02d}.png" for i in range(count)]
        for stem in sorted(read):
            np.testing.assert_array_equal(read[stem], make_mask(rng))
    split = dataset.split("train").part([3, 5])
    image, mask = split.example(1)
    np.testing.assert_array_equal(image[..., 0], mask * STEP)
    present = [[(mask == k).any() for k in range(CLASSES)] for mask in masks_of(split).values()]
    np.testing.assert_array_equal(split.labels, present)
    counts = data.count_classes(dataset, dataset.splits)["test"]
    assert counts == dict.fromkeys(dataset.class_names, 4)


def test_held_out_masks_may_be_the_only_ones(folder):
    held_out = masks_of(data.load(f"folder:{folder}", 3).split("test"))
    shutil.rmtree(folder / "train")
    (folder / "test").rename(folder / "Val")
    assert data.holds_masks(str(folder))
    split = data.load(f"folder:{folder}", 3, DataConfig(train_split="validation")).split("val")
    np.testing.assert_equal(masks_of(split), held_out)


def test_palettes_and_bits_hold_numbers_and_255_is_no_class(tmp_path):
    mask = np.array([[0, 1], [255, 1]], "uint8")
    palette = Image.fromarray(mask).convert("P")
    palette.putpalette([9, 200, 30] * 256)
    for name, made in {"a": palette, "b": Image.fromarray(mask == 1)}.items():  # of one bit
        write_pair(tmp_path, name, mask)
        made.save(tmp_path / "masks" / f"{name}.png")
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(test_percent=0))
    assert dataset.class_names == ("0", "1")  # up to the largest number, without classes.txt
    read = masks_of(dataset.split("train"))
    np.testing.assert_array_equal(read["a.png"], mask)
    np.testing.assert_array_equal(read["b.png"], mask == 1)


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_a_mask_is_turned_upright_as_its_picture_is(tmp_path, kind):
    exif, mask = Image.Exif(), np.array([[0, 1, 1], [0, 0, 1]], "uint8")
    exif[0x0112] = 8
    for folder, pixels in {"images": 100 * mask, "masks": mask}.items():
        (tmp_path / folder).mkdir()
        Image.fromarray(pixels).save(tmp_path / folder / f"a.{kind}", exif=exif)
    dataset = data.load(f"folder:{tmp_path}", 1, DataConfig(test_percent=0))
    image, read = dataset.split("train").example(0)
    np.testing.assert_array_equal(read, np.rot90(mask))
    np.testing.assert_array_equal(image[..., 0], 100 * read)


def test_a_table_names_pictures_and_masks(tmp_path):
    masks = write_split(tmp_path, 6, seed=3)
    rows = [f"images/{n}.png,masks/{n},{'test' if n == 'p04' else 'train'}" for n in masks]
    (tmp_path / "pairs.csv").write_text("\n".join(["path,mask,split", *rows]))
    dataset = data.load(f"table:{tmp_path / 'pairs.csv'}", 3)
    assert any("6 of 6 files have other names than in the table" in n for n in dataset.notes)
    assert dataset.kind == "masks" and len(dataset.split("train")) == 5
    np.testing.assert_array_equal(masks_of(dataset.split("test"))["p04.png"], masks["p04"])
    held_out = [row.replace(",train", ",test") for row in rows]  # to judge a model on
    (tmp_path / "held_out.csv").write_text("\n".join(["path,mask,split", *held_out]))
    assert data.load(f"table:{tmp_path / 'held_out.csv'}", 3).class_names == dataset.class_names
    (tmp_path / "masks" / "p00.png").unlink()
    with pytest.raises(ValueError, match=r"must name one file.*where 1 name none.*p00': \[\]"):
        data.load(f"table:{tmp_path / 'pairs.csv'}", 3)


CHANGES = {
    "none": {},
    "affine": {"rotation_degrees": 20, "scale": 0.3, "shift": 0.2, "flip": True},
    "inception": {"crop": "inception", "flip": True},
    "bit": {"crop": "bit", "flip": True},
}


def batches(split, **changes):
    options = {"image_size": SIZE, "preprocessing": PIXELS, "batch": 8, "seed": 3, "start_step": 0}
    options |= {"total_steps": 3, "num_classes": CLASSES, "task": Task("masks")}
    return list(data.train_batches(split, augment_config=AugmentConfig(**changes), **options))


@pytest.mark.parametrize("change", CHANGES)
def test_a_mask_changes_as_its_picture_does(folder, change):
    """Where a changed picture has the gray of one class, the mask has this class."""
    split = data.load(f"folder:{folder}", 3).split("train")
    made = batches(split, **CHANGES[change])
    images, masks = map(np.concatenate, zip(*made))
    assert masks.shape == (24, *SIZE) and masks.dtype == np.int32
    gray = images[..., 0] / STEP
    pure = abs(gray - gray.round()) < 1e-3
    # Between two classes of 0 and 2 lies the gray of 1: look away from the edges alone.
    inside = pure & (maximum_filter(gray, (1, 3, 3)) - minimum_filter(gray, (1, 3, 3)) < 1e-3)
    assert inside.mean() > 0.5 and {*np.unique(masks[inside])} == {0, 1, 2}
    np.testing.assert_array_equal(masks[inside], gray.round()[inside])


def test_pairs_that_do_not_match_are_all_named(folder):
    (folder / "train" / "masks" / "p03.png").unlink()
    shutil.copy(folder / "train" / "masks" / "p00.png", folder / "train" / "masks" / "extra.png")
    message = r"and 2 files without a counterpart: \['extra', 'p03'\]"
    with pytest.raises(ValueError, match=message):
        data.load(f"folder:{folder}", 3)
    for split in ("train", "test"):
        shutil.rmtree(folder / split / "masks")
    with pytest.raises(ValueError, match="in images/ needs a mask .*train' with 12 pictures"):
        data.load(f"folder:{folder}", 3, task="masks")


def test_a_class_is_a_line_of_classes_txt(folder):
    (folder / "classes.txt").write_bytes("ground\rho\u2028use\r\ntree\n".encode())
    with pytest.raises(ValueError, match=r"text on one line. Received: \['ho.u2028use'\]"):
        data.load(f"folder:{folder}", 3)


def test_a_mask_that_cannot_be_used_stops_a_run_or_is_skipped(folder):
    Image.fromarray(np.zeros((40, 30), "uint8")).save(folder / "train" / "masks" / "p00.png")
    dataset = data.load(f"folder:{folder}", 3)
    message = "the same height and width.*with .40, 32. and.*with .40, 30."
    with pytest.raises(UnreadableImageError, match=message):
        batches(dataset.split("train"))
    dataset = data.load(f"folder:{folder}", 3, DataConfig(on_corrupt="skip"))
    made = batches(dataset.split("train"))
    assert [name.rsplit("/", 1)[-1] for name in dataset.unreadable.names] == ["p00.png"]
    assert len(made) == 3 and all(np.isfinite(images).all() for images, _ in made)


def painted(numbers, colors):
    return np.array(colors, "uint8")[numbers]


def write_as(root, count, change, **options):
    """Writes pairs whose masks hold what `change` makes of the numbers, and returns the numbers."""
    masks = write_split(root, count, seed=3)
    for name, mask in masks.items():
        made = Image.fromarray(change(mask).astype("uint8"))
        made.save(root / "masks" / f"{name}.png", **options)
    return masks


COLORS = [(0, 0, 0), (255, 0, 0), (0, 128, 255)]
NUMBERS = [(k, k, k) for k in range(3)]
CODES = {  # how masks of three classes are written, how they are described, classes.txt, and names
    "levels": (lambda n: n * 127, {"mask_values": "0,127,254"}, None, "0 127 254"),
    "levels with 255": (lambda n: n * 85 + 85, {"mask_values": (85, 170, 255)}, "a\nb\nc", "a b c"),
    "levels in RGB": (lambda n: painted(n, [(9, 9, 9), (0, 0, 0), (7, 7, 7)]), {"mask_values": "9,0,7"}, None, "9 0 7"),
    "lossless WebP": (lambda n: painted(n, NUMBERS), {}, None, "0 1 2"),
    "colors": (lambda n: painted(n, COLORS), {"mask_colors": "#000000,#ff0000,#0080FF"}, None, "#000000 #ff0000 #0080ff"),
    "colors in classes.txt": (lambda n: painted(n, COLORS), {}, "a 0 0 0\nb,255,0,0\n#0080ff\tc\n", "a b c"),
    "names after colors": (lambda n: painted(n, COLORS), {}, "0 0 0 sky\n255 0 0\thouse\n0;128;255;tree\n", "sky house tree"),
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_masks_of_levels_and_colors_are_read(tmp_path, code):
    change, fields, text, names = CODES[code]
    options = {"format": "WEBP", "lossless": True} if code == "lossless WebP" else {}
    masks = write_as(tmp_path, 6, change, **options)
    if text:
        (tmp_path / "classes.txt").write_text(text)
    dataset = data.load(f"folder:{tmp_path}", 3, DataConfig(test_percent=0, **fields))
    for name, mask in masks_of(dataset.split("train")).items():
        np.testing.assert_array_equal(mask, masks[name[:3]])
    assert dataset.class_names == tuple(names.split())
    np.testing.assert_array_equal(dataset.split("train").labels, np.ones((6, 3)))


@pytest.mark.parametrize(
    ("image", "mask"),
    [
        ("{}.jpg", "{}_mask.png"),
        ("p/{0}/{0}.jpg", "p/{0}/{0}_mask.png"),
        ("images/{}.jpg", "masks/{}_segmentation.png"),
        ("Images/{}.jpg", "Masks/{}.gif"),
    ],
)
def test_masks_lie_where_people_put_them(tmp_path, image, mask):
    written = write_split(tmp_path / "made", 5, seed=3)
    for name in written:
        for pattern, folder in ((image, "images"), (mask, "masks")):
            place = tmp_path / "photos" / pattern.format(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.open(tmp_path / "made" / folder / f"{name}.png").save(place)
    dataset = data.load(f"folder:{tmp_path / 'photos'}", 3, DataConfig(test_percent=0))
    assert dataset.kind == "masks" and dataset.class_names == ("0", "1", "2")
    for name, read in masks_of(dataset.split("train")).items():
        np.testing.assert_array_equal(read, written[name[:3]])
    shutil.copytree(tmp_path / "photos", tmp_path / "photos" / "val")
    splits = data.load(f"folder:{tmp_path / 'photos'}", 3).splits
    assert len(splits["train"]) == len(splits["val"]) == 5


@pytest.mark.parametrize("form", ["<u2", ">u2", "<f4", ">f4"])
def test_levels_of_tiff_masks_are_not_cut_at_255(tmp_path, form):
    levels = np.array([[0, 300], [65000, 300]], form)
    write_pair(tmp_path, "a", np.zeros((2, 2), "uint8"))
    (tmp_path / "masks" / "a.png").unlink()
    tifffile.imwrite(file := tmp_path / "masks" / "a.tif", levels, byteorder=form[0])
    config = DataConfig(test_percent=0, mask_values="0,300,65000")
    mask = data.load(f"folder:{tmp_path}", 1, config).split("train").example(0)[1]
    np.testing.assert_array_equal(mask, [[0, 1], [2, 1]])
    if form[1] == "f":
        tifffile.imwrite(file, levels + 0.5, byteorder=form[0])
        with pytest.raises(ValueError, match="whole levels, not fractions"):
            data.load(f"folder:{tmp_path}", 1, config).split("train").example(0)


LOSSY = "must be lossless, as a PNG is; this "
WRONG = {  # how masks are written, options, what is said, and the options of Pillow
    "JPEG": (lambda n: n, {}, f"masks/p00.png' cannot be read as a mask .*{LOSSY}", {"format": "JPEG"}),
    "lossy WebP": (lambda n: n, {}, LOSSY, {"format": "WEBP"}),
    "0, 128 and 255": (lambda n: n * 127, {}, r"from 0 up without gaps, or 255 .*the levels 0, 127, 254\. Name .* if each .*--data.mask_values 0,127,254"),
    "soft edges": (lambda n: np.arange(n.size).reshape(n.shape) % 200 + n * 0, {"mask_values": "0,255"}, "a mask must hold only the values 0, 255, or 255 for no class; it holds 1, 2, 3.* and 191 more"),
    "colors": (lambda n: painted(n, COLORS), {}, "it holds colors, such as #000000, #0080ff, #ff0000. Give .* data.mask_colors, or beside"),
    "a color that is no class": (lambda n: painted(n, COLORS), {"mask_colors": "#000000,#ff0000"}, "a mask must hold only the values #000000, #ff0000; it holds #0080ff"),
    "a color twice": (lambda n: n, {"mask_colors": "#000000,0 0 0"}, "needs its own name, and its own level or color"),
    "no color": (lambda n: n, {"mask_colors": "red,blue"}, "A color must look like #ff0000 or 255 0 0. Received: 'red'"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_masks_hold_is_said(tmp_path, case):
    change, fields, message, *options = WRONG[case]
    write_as(tmp_path, 4, change, **dict(*options))
    with pytest.raises(ValueError, match=message):
        dataset = data.load(f"folder:{tmp_path}", 3, DataConfig(test_percent=0, **fields))
        dataset.split("train").example(0)
