"""Opens the text tower beside an image tower."""

import os

import keras
import numpy as np

from vit_keras.models import ImageText, TextTransformer, with_unit_length
from vit_keras.support.annotated import check_annotated
from vit_keras.weights import strict_copy
from vit_keras.weights.containers.checks import UnreadModel, named_errors
from vit_keras.weights.formats.text import TEXT_FORMATS
from vit_keras.weights.loading import build
from vit_keras.weights.recognition import check_plausible
from vit_keras.weights.weight_file import WeightFile, local_path, locate, open_weight_file

LOGITS = ("logit_scale", "logit_bias")
IMAGE_ENDS = {"visual_projection.weight", "head.probe"}  # of transformers' image towers


class TextFile(WeightFile):
    """The text tower of an open file."""

    def infer(self) -> dict:
        with named_errors(self.path):
            arguments = self.format.infer(self.shapes, self.config)
            check_annotated(arguments, TextTransformer)
        return arguments

    def numerics(self) -> None:
        """None, since `infer` returns the GELU and the epsilon."""

    def logits(self) -> dict[str, float]:
        """Returns the scale and, in a SigLIP, the bias of the logits."""
        values = {name: self.read(name) for name in LOGITS if name in self.names}
        for name, value in values.items():
            if not (value.size == 1 and np.isfinite(value).all()):
                raise ValueError(f"`{name}` in {self.path!r} must be one number. Received: {value}")
        return {name: value.item() for name, value in values.items()}


def text_file(file: WeightFile) -> TextFile:
    """Returns the text tower of an open file; raises UnreadModel if there is none."""
    row, prefix, beside = TEXT_FORMATS.get(file.format.name, (None, "", ""))
    image = next((name for name in file.names.values() if beside in name), "")
    root = image.partition(beside)[0] if beside else ""
    names = {
        name.removeprefix(root).removeprefix(prefix): name
        for name in file.tensors.shapes
        if name.startswith(root) and not name.startswith((f"{root}{beside}", f"{root}visual_"))
    }
    ends = file.format.name != "huggingface" or IMAGE_ENDS & file.names.keys()
    if row is None or not (ends and row.detect(set(names)) and "logit_scale" in names):
        raise UnreadModel(
            f"{file.path!r} must hold both towers of a CLIP or SigLIP, with their projections and "
            "`logit_scale`, in the layout of transformers or OpenCLIP. Received: a file of "
            f"{file.format.name} without all of them"
        )
    return TextFile(file.path, file.tensors, row, names, file.config, file.folder)


def text_tower(
    path: str | os.PathLike, attention_mask: bool = False, **options: str | None
) -> tuple[keras.Model, dict[str, float]]:
    """Opens the text tower of a CLIP or SigLIP; takes the arguments of `image_text`.

    Returns:
        The `TextTransformer`, and `logit_scale` and perhaps `logit_bias` as in `ImageText`.
    """
    with open_weight_file(path, **options) as image:
        file = text_file(image)
        arguments = file.infer()
        with named_errors(file.path):
            check_plausible({**arguments, "patch_size": (1, 1)}, file)
            model = TextTransformer(**arguments, attention_mask=attention_mask)
        strict_copy.copy_weights(model, file, "keep", None, None)
        return model, file.logits()


def image_text(
    path: str | os.PathLike, attention_mask: bool = False, **options: str | None
) -> ImageText:
    """Opens both towers of a CLIP, MetaCLIP 2, SigLIP or SigLIP 2.

    Args:
        path: A folder of transformers or OpenCLIP, or a file of OpenCLIP or OpenAI, with both
            towers; or the address of one on a hub.
        attention_mask: Whether the text tower takes masks, as in `TextTransformer`.
        **options: `source`, the name of the image tower's format, and `which`, as in `open`.

    Returns:
        An `ImageText`. `save` writes it to a folder of transformers.

    Raises:
        FileNotFoundError: There is nothing at `path`.
        ValueError: The file is damaged, or has no two towers of these kinds; nothing is loaded in
            part.
        ImportError: The file needs a package that is not installed.

    Example:
        ```python
        towers = vit_keras.image_text("clip-vit-base-patch32/")
        towers.logits(images, input_ids)  # (B, K)
        vit_keras.weights.save(towers, "copy", format="huggingface")
        ```
    """
    text, logits = text_tower(path, attention_mask, **options)
    image = build(path, options.get("source"), which=options.get("which"))
    folder = locate(local_path(path))[1]
    return ImageText(with_unit_length(image), text, folder=folder, **logits)
