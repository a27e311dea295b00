"""Licenses that go with files of weights and that whoever loads them should know."""

import os
import warnings

DINOV3 = "https://ai.meta.com/resources/models-and-libraries/dinov3-license/"


def license_note(arguments: dict) -> str | None:
    """Returns what a user should know of the license of a model, or None.

    Args:
        arguments: The arguments of `VisionTransformer` that a file says. Centered rotary positions
            are DINOv3's, whichever project wrote the file.
    """
    rope = arguments.get("rope")
    fields = rope if isinstance(rope, dict) else vars(rope) if rope is not None else {}
    if not fields.get("centered"):
        return None
    return (
        "Meta's DINOv3 weights, and all that is made from them, are under the DINOv3 License "
        f"({DINOV3}): pass copies and conversions on under it and with its text, acknowledge "
        "DINOv3 in publications, and note the uses that it forbids"
    )


def warn_of_license(path: str, arguments: dict) -> None:
    """Warns once a file of the license of the weights that it holds, if there is a note of it."""
    note = license_note(arguments)
    if note is not None:
        name = os.path.basename(os.path.dirname(path)) + "/" + os.path.basename(path)
        warnings.warn(f"{name} holds a DINOv3. {note}", stacklevel=5)
