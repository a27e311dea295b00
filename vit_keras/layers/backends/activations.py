"""GELU, in the three ways that published models compute it."""

from keras import ops


def gelu(x):
    """x Φ(x), by erf."""
    return ops.gelu(x, approximate=False)


def gelu_tanh(x):
    """The approximation by tanh, as the published Flax code has it."""
    return ops.gelu(x, approximate=True)


def gelu_quick(x):
    """x σ(1.702 x), the approximation of OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)


GELUS = {"exact": gelu, "tanh": gelu_tanh, "quick": gelu_quick}
