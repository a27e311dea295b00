"""Pictures with lines of text below them."""

import os
from collections.abc import Sequence

from vit_keras.data.pillow_images import pillow_image, read_image

SIDE = 512  # pixels, the longer side of a picture that is drawn
MARGIN = 8


def draw_caption(path: str | os.PathLike, lines: Sequence[str]):
    """Draws a picture with lines of text below it.

    Args:
        path: The picture's file. A large picture is shrunk to 512 pixels, and a small one enlarged.
        lines: The lines, from top to bottom.

    Returns:
        A `PIL.Image.Image` in RGB.

    Raises:
        FileNotFoundError, ValueError, ImportError: As `read_image`.
    """
    pillow = pillow_image("Drawing labels")
    from PIL import ImageDraw, ImageFont

    picture = pillow.fromarray(read_image(path, channels=3))
    scale = SIDE / max(picture.size)
    resample = pillow.Resampling.LANCZOS if scale < 1 else pillow.Resampling.NEAREST
    picture = picture.resize([max(1, round(scale * side)) for side in picture.size], resample)
    font = ImageFont.load_default(size=20)
    text = "\n".join(lines)
    box = ImageDraw.Draw(picture).multiline_textbbox((0, 0), text, font=font)
    width = max(picture.width, box[2] + 2 * MARGIN)
    page = pillow.new("RGB", (width, picture.height + box[3] + 2 * MARGIN), "white")
    page.paste(picture, ((width - picture.width) // 2, 0))
    corner = MARGIN, picture.height + MARGIN
    ImageDraw.Draw(page).multiline_text(corner, text, fill="black", font=font)
    return page
