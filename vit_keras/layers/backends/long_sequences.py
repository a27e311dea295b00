"""The rule for which sequences are long.

Attention by explicit products keeps a number for each head and pair of tokens. On JAX's CPUs and on
TensorFlow, long sequences are computed in blocks of queries, and their other layers keep less.
"""

from collections.abc import Callable

from keras import ops

from vit_keras.layers.backends import in_use, is_faster

BLOCK = 256  # queries at a time, at most
HEADS, WIDTH = 6, 64  # of the attention that is measured
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


def measure(blockwise: Callable, gradient_of: Callable) -> dict[str, dict[str, bool]]:
    """For each minimum length, whether blocks, which save memory, take no more time.

    If blocks pay off for some length, they pay off for longer ones, which are not measured.

    Args:
        blockwise: Attention in blocks.
        gradient_of: Compiles the gradient of a function that maps tensors to one number.
    """
    options: dict[str, bool] = {}
    for length, option in sorted(LENGTHS.items()):
        if option is not None:
            x = ops.reshape(ops.linspace(-3.0, 3.0, length * HEADS * WIDTH), (1, length, HEADS, -1))
            new, old = (
                gradient_of(lambda x, attend=attend: ops.sum(attend(x, x, x, WIDTH**-0.5)))
                for attend in (blockwise, _written_out)
            )
            options[option] = any(options.values()) or not is_faster(old, new, [(x,)], rounds=3)
    return {"long_sequences": options}


def _written_out(query, key, value, scale):
    query, key, value = (ops.transpose(x, (0, 2, 1, 3)) for x in (query * scale, key, value))
    weights = ops.softmax(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))))
    return ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3))
