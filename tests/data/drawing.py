"""What a function of a generator draws for many keys."""

import numpy as np

from vit_keras.data.batches import generator


def drawn(function, count):
    """Stacks the results of `function` for `count` generators."""
    return np.stack([function(generator(7, i)) for i in range(count)])
