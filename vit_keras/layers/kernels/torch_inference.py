"""What torch computes in one kernel at inference, where other runtimes like it spelled out."""

from keras import ops

from vit_keras.layers.kernels.activations import GELUS


def normalize(x, epsilon: float):
    """`x` with mean 0 and variance 1 along the last axis."""
    return ops.layer_normalization(x, epsilon=epsilon)


def gelu_of_kind(kind: str):
    """GELU, "exact" or "tanh", which the product before it can take in."""
    return GELUS[kind]
