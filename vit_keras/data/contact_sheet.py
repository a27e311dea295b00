"""A sheet of training images as the model gets them, with the names of their classes."""

from collections.abc import Sequence

import numpy as np

from vit_keras.data.label_kinds import LABEL_KINDS
from vit_keras.data.numpy_preprocess import to_uint8
from vit_keras.data.pillow_images import pillow_image
from vit_keras.models import Preprocessing
from vit_keras.tasks import CLASSES, Task

SIDE = 112  # pixels: smaller images are enlarged by a whole factor
CAPTION = 18  # pixels below an image
GAP = 6


def pixels_of(images: np.ndarray, preprocessing: Preprocessing) -> np.ndarray:
    """Turns a model's inputs `(..., C)` back into pixels as uint8.

    Example:
        >>> pixels_of(np.array([-1.0, 0.0, 1.0]), Preprocessing())
        array([  0, 128, 255], dtype=uint8)
    """
    mean, std = (
        np.asarray(values, "float32") for values in (preprocessing.mean, preprocessing.std)
    )
    return to_uint8((np.asarray(images) * std + mean) * 255)


def captions_of(targets: np.ndarray, class_names: Sequence[str], task: Task = CLASSES) -> list[str]:
    """Names what a model learns of N images: "cat", "cat 70 % dog 30 %", or "age 34".

    Args:
        targets: One-hot or mixed classes, labels, or standardized numbers, `(N, K)`.
        class_names: The K names.
        task: What the targets are.

    Example:
        >>> captions_of(np.array([[1.0, 0.0], [0.3, 0.7]]), ["cat", "dog"])
        ['cat', 'dog 70 % cat 30 %']
    """
    targets = np.asarray(targets)
    if task.kind != "classes":
        mean, std = (0.0, 1.0) if task.mean is None else (np.array(task.mean), np.array(task.std))
        return [LABEL_KINDS[task.kind].text(row, class_names) for row in targets * std + mean]
    captions = []
    for row in targets:
        order = [k for k in np.argsort(-row) if row[k] >= 0.005]
        shares = [f"{class_names[k]} {100 * row[k]:.0f} %" for k in order]
        captions.append(class_names[order[0]] if len(order) == 1 else " ".join(shares))
    return captions


def draw_contact_sheet(images: np.ndarray, captions: Sequence[str]):
    """Draws images in rows, with a line of text below each.

    Args:
        images: `(N, H, W, C)` uint8, with 1 or 3 channels.
        captions: N lines; a line that is wider than its image is cut.

    Returns:
        A `PIL.Image.Image` in RGB. Image i stands at `place(i, N, H, W)`, and is enlarged by
        `scale_of(H, W)`.

    Example:
        ```python
        images, *described = experiments.first_training_images(config)
        sheet = data.draw_contact_sheet(images, data.captions_of(*described))
        sheet.save("sheet.png")
        ```
    """
    pillow = pillow_image("Drawing a contact sheet")
    from PIL import ImageDraw, ImageFont

    count, height, width = images.shape[:3]
    scale = scale_of(height, width)
    left, top = place(count - 1, count, height, width)
    right = max(place(i, count, height, width)[0] for i in range(count)) + width * scale
    sheet = pillow.new("RGB", (right + GAP, top + height * scale + CAPTION + GAP), "white")
    font, draw = ImageFont.load_default(size=13), ImageDraw.Draw(sheet)
    for i, (image, caption) in enumerate(zip(images, captions, strict=True)):
        left, top = place(i, count, height, width)
        picture = pillow.fromarray(np.repeat(image, 3, axis=-1) if image.shape[-1] == 1 else image)
        sheet.paste(picture.resize((width * scale, height * scale), pillow.Resampling.NEAREST),
                    (left, top))  # fmt: skip
        while draw.textlength(caption, font=font) > width * scale:
            caption = f"{caption.removesuffix('…')[:-1]}…"
        draw.text((left, top + height * scale + 1), caption, fill="black", font=font)
    return sheet


def scale_of(height: int, width: int) -> int:
    """Returns the whole factor by which images are enlarged."""
    return max(1, -(-SIDE // min(height, width)))


def place(i: int, count: int, height: int, width: int) -> tuple[int, int]:
    """Returns the left and top pixel of image i of a sheet of `count` images."""
    columns, scale = int(np.ceil(np.sqrt(count))), scale_of(height, width)
    row, column = divmod(i, columns)
    return (
        GAP + column * (width * scale + GAP),
        GAP + row * (height * scale + CAPTION + GAP),
    )
