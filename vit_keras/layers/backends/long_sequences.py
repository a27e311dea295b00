"""The rule for which sequences are long.

Attention by explicit products keeps a number for each head and pair of tokens. On JAX's CPUs and on
TensorFlow, long sequences are computed in blocks of queries, and their other layers keep less.
"""

from collections.abc import Callable

from vit_keras.layers.backends import in_use

BLOCK = 256  # queries at a time, at most
# Minimum lengths of long sequences, each with its option in the choices; None always applies.
LENGTHS: dict[int, str | None] = {512: "from_512", 1024: "from_1024", 2048: None}


def is_long(*lengths: int | None) -> bool:
    """Whether attention between sequences of these lengths is computed block by block."""
    options = in_use()["long_sequences"]
    shortest = min(length or 0 for length in lengths)  # an unknown length counts as short
    return any(
        shortest >= length and (option is None or options[option])
        for length, option in LENGTHS.items()
    )


def divide(tokens: int, most: int | None = None) -> tuple[int, int]:
    """The number of blocks and their common size; together they hold `tokens` and few more.

    No block is larger than `most`; None means `BLOCK`.
    """
    count = -(-tokens // (most or BLOCK))
    return count, -(-tokens // count)


def measured(pays: Callable[[int], bool]) -> dict[str, bool]:
    """The options of long sequences; `pays` tells whether blocks pay off for a number of tokens.

    If blocks pay off for some length, they pay off for longer ones, which are not measured.
    """
    options: dict[str, bool] = {}
    for length, option in sorted(LENGTHS.items()):
        if option is not None:
            options[option] = any(options.values()) or pays(length)
    return options
