"""Initial weights against NumPy's own generator."""

import numpy as np

from tests.helpers import to_numpy
from vit_keras.initializers import Normal


def test_later_draws_leave_earlier_weights_as_they_were():
    expected = np.random.Generator(np.random.Philox(key=1)).standard_normal(
        (512, 512), dtype=np.float32
    )
    for _ in range(50):  # a copy made later, as JAX makes them, fails at times
        first, second = Normal(1.0, seed=1)((512, 512)), Normal(0.5, seed=2)((128, 128))
        np.testing.assert_array_equal(to_numpy(first), expected)
        assert np.std(to_numpy(second)) < 0.6
