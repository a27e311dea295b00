"""Which sequences are long.

Attention that is written out keeps a number for each head and pair of tokens. On JAX's CPUs and on
TensorFlow, long sequences go through it in blocks of queries, and their other layers keep less.
"""

from collections.abc import Callable

from vit_keras.layers.backends import options_of

BLOCK = 256  # queries at a time, at most
# Tokens from which a sequence is long, and the option of `choices` that says so; none asks no one.
LENGTHS: dict[int, str | None] = {512: "from_512", 1024: "from_1024", 2048: None}


def is_long(*lengths: int | None) -> bool:
    """Whether attention between sequences of these lengths is computed block by block."""
    options = options_of("long_sequences")
    shortest = min(length or 0 for length in lengths)  # one that is not known counts as short
    return any(
        shortest >= length and (option is None or options[option])
        for length, option in LENGTHS.items()
    )


def divide(tokens: int, most: int | None = None) -> tuple[int, int]:
    """The number of blocks and their equal size: together at least `tokens`, and few more.

    No block is larger than `most`, which is `BLOCK` where it is None.
    """
    count = -(-tokens // (most or BLOCK))
    return count, -(-tokens // count)


def measured(pays: Callable[[int], bool]) -> dict[str, bool]:
    """The options, where `pays` tells whether sequences of that many tokens should be long.

    What pays for some tokens pays for more, and is not measured again.
    """
    options: dict[str, bool] = {}
    for length, option in sorted(LENGTHS.items()):
        if option is not None:
            options[option] = any(options.values()) or pays(length)
    return options
