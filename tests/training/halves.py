"""Two processes that share variables, one after the other in this process."""

import numpy as np

from vit_keras.training import checkpoints
from vit_keras.training.topologies import Cluster, Topology, read_variable


class Half(Topology):
    """One of two processes, which hold the upper and the lower rows of the kernels.

    They save one after the other in this process: the first one learns what the second gathered.
    """

    def __init__(self, index, gathered):
        super().__init__(Cluster(index, 2))
        self.gathered = gathered

    def read_parts(self, variable):
        value = read_variable(variable)
        if value.ndim < 2:
            return {"": value}
        rows, columns = value.shape
        start, stop = (0, 5) if self.is_chief else (5, rows)
        return {f"@{start}:{stop},0:{columns}": value[start:stop]}

    def gather(self, value):
        if self.is_chief:
            return np.array([value, self.gathered.pop(0)])
        self.gathered.append(value)
        return np.array([0, value])


def save_halves(model, folder, step, keep=2):
    """Saves in both processes, the second one first; each sees its own rows alone."""
    gathered = []
    checkpoints.save(model, folder, step, keep, topology=Half(1, gathered))
    return checkpoints.save(model, folder, step, keep, topology=Half(0, gathered))
