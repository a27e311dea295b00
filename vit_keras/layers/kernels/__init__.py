"""Each backend's own code for the operations of layers and training, and the choices among it.

`TABLE` says which operations a backend computes by code of its own; the layers hold the portable
version, in `keras.ops`, and `dispatch` replaces it where the table has a row:

    @kernels.dispatch("linear")
    def linear(x, kernel, bias):
        return ops.matmul(x, kernel) + bias

Some of these operations have several implementations, and which is faster depends on the machine.
The choice belongs to the program, because other implementations round differently:

    kernels.measure() -> dict[str, dict[str, bool]]  times them, a second or two on CPUs
    kernels.use(mapping) -> None                     makes the choices of `mapping` hold from now on
    kernels.chosen() -> dict[str, dict[str, bool]]   the choices that hold

The dictionaries are plain JSON, to be recorded with a run and used again when it is resumed. No
layer measures anything. Without `use`, the defaults hold: the backend's standard implementation
everywhere, whatever the processor.
"""

from vit_keras.layers.kernels.choices import chosen, measure, use
from vit_keras.layers.kernels.table import TABLE, dispatch, lookup

__all__ = ["TABLE", "chosen", "dispatch", "lookup", "measure", "use"]
