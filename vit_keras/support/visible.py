"""Text from files, for a terminal that must not obey it."""

import unicodedata

_SHOWN = ("\n", "\t")


def visible(text: object) -> str:
    r"""Returns a text whose control characters are written as escapes.

    Names of classes and tensors come from files that anyone may have written. On a terminal,
    control characters would move the cursor, and those for writing from right to left would change
    the order of what is read.

    Args:
        text: A text, which may have lines and tabs, or anything with one.

    Returns:
        The text on the same lines.

    Example:
        >>> visible("cat\x1b[2J")
        'cat\\x1b[2J'
    """
    return "".join(c if _is_harmless(c) else ascii(c)[1:-1] for c in str(text))


def on_one_line(name: object) -> str:
    r"""Returns a name as `visible` does, with escapes for line breaks and tabs too.

    Example:
        >>> on_one_line("cat\n.jpg")
        'cat\\n.jpg'
    """
    return visible(name).replace("\n", "\\n").replace("\t", "\\t")


def _is_harmless(character):
    spaces = unicodedata.category(character) == "Zs"
    return character.isprintable() or character in _SHOWN or spaces
