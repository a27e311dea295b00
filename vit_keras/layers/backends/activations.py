"""The three forms of GELU in published models."""

from keras import ops


def gelu(x):
    """x Φ(x), computed with erf."""
    return ops.gelu(x, approximate=False)


def gelu_tanh(x):
    """The tanh approximation in the published Flax code."""
    return ops.gelu(x, approximate=True)


def gelu_quick(x):
    """x σ(1.702 x), the approximation in OpenAI's CLIP."""
    return x * ops.sigmoid(1.702 * x)


GELUS = {"exact": gelu, "tanh": gelu_tanh, "quick": gelu_quick}
