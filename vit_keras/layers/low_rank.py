"""Low-rank adapters of kernels (LoRA, arXiv 2106.09685) through Keras' `enable_lora`."""

import contextlib
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from vit_keras.layers.initializers import Uniform
from vit_keras.layers.quantization import quantization_config
from vit_keras.support.keras_internals import stored_kernel, take_own_policy, unlocked


class LowRankKernel(keras.layers.Layer):
    """Gives a Keras dense layer adapters of the whole kernel: W + alpha / rank · A B.

    A is `(*K, rank)` and B is `(rank, *N)` for a kernel `(*K, *N)` and a bias `(*N,)`. Keras splits
    the last axis off instead, so that each attention head of query, key and value gets an A of its
    own: with 6 heads, three times the weights of the paper's form.

    Until `enable_lora` is called, the layer is as Keras has it. Then `kernel` is the sum, and the
    layer's own kernel no longer trains. A file that Keras writes holds the sum.
    """

    lora_enabled: bool
    quantization_mode: str | None
    quantization_config: Any
    lora_rank: Any
    lora_alpha: Any

    def enable_lora(self, rank, lora_alpha=None, a_initializer=None, b_initializer="zeros"):
        """Adds adapters to a built layer.

        Args:
            rank: The number of columns of A and of rows of B.
            lora_alpha: The product is multiplied by `lora_alpha / rank`; None stands for `rank`.
            a_initializer: Initializer of A. None is uniform on ±1 / √fan_in, as in the published
                code, from a seed of `keras.utils.set_random_seed`.
            b_initializer: Initializer of B. With zeros, the layer computes as before.

        Raises:
            ValueError: `rank` is not a positive int, or the layer has adapters.
        """
        if self.quantization_mode is not None:
            raise ValueError(
                "A quantized layer takes no adapters. Received: layer "
                f"{self.name!r}, quantized to {self.quantization_mode!r}. Add them before"
            )
        if self.lora_enabled or not isinstance(rank, int) or rank < 1:
            raise ValueError(
                "`rank` must be a positive int, and a layer takes adapters once. Received: "
                f"rank={rank!r}, layer {self.name!r} with lora_enabled={self.lora_enabled}"
            )
        shape_a, shape_b = lora_shapes(self, rank)
        a_initializer = a_initializer or lora_initializer(self, None)
        initializers = keras.initializers.get(a_initializer), keras.initializers.get(b_initializer)
        with contextlib.ExitStack() as stack:
            stack.enter_context(unlocked(self))
            for name in self.path.split("/")[:-1]:
                stack.enter_context(keras.name_scope(name))
            self.lora_kernel_a, self.lora_kernel_b = (
                self.add_weight(name=name, shape=shape, initializer=initializer, dtype="float32")
                for name, shape, initializer in zip(LORA, (shape_a, shape_b), initializers)
            )
        stored_kernel(self).trainable = False
        alpha = self.lora_alpha if lora_alpha is None else lora_alpha
        self.lora_enabled, self.lora_rank = True, rank
        self.lora_alpha = rank if alpha is None else alpha

    def build(self, input_shape):
        self.quantization_config = self.quantization_config or quantization_config(self)
        take_own_policy(self)  # which Keras asks for the mode as it saves the layer
        super().build(input_shape)

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantizes the kernel as the layer of Keras does that this one extends.

        Raises:
            ValueError: The layer has adapters.
        """
        if self.lora_enabled:
            raise ValueError(
                "Kernels with adapters are not quantized. Received: layer "
                f"{self.name!r} with adapters. Merge them first, by `models.merge_lora(model)`"
            )
        super().quantize(mode, type_check=False, config=config)

    @property
    def kernel(self):
        if not self.lora_enabled:
            return super().kernel
        kernel = stored_kernel(self)
        a = ops.reshape(self.lora_kernel_a, (-1, self.lora_rank))
        b = ops.reshape(self.lora_kernel_b, (self.lora_rank, -1))
        product = ops.reshape(ops.matmul(a, b), kernel.shape)
        return ops.add(kernel, (self.lora_alpha / self.lora_rank) * product)

    def load_own_variables(self, store):
        """Loads a kernel without its adapters; Keras sets both factors to zero, which ends LoRA."""
        first = np.array(ops.convert_to_numpy(self.lora_kernel_a)) if self.lora_enabled else None
        super().load_own_variables(store)
        if first is not None:
            self.lora_kernel_a.assign(first)


LORA = ("lora_kernel_a", "lora_kernel_b")


def lora_shapes(layer: keras.layers.Layer, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shapes of A and B of a built dense layer."""
    shape = tuple(stored_kernel(layer).shape)
    summed = 1 if layer.bias is None else len(shape) - len(layer.bias.shape)
    return (*shape[:summed], rank), (rank, *shape[summed:])


def lora_initializer(layer: keras.layers.Layer, seed: int | None) -> Uniform:
    """The initializer of A: uniform on ±1 / √fan_in, as in the published code."""
    fan_in = math.prod(lora_shapes(layer, 1)[0])
    return Uniform(1 / math.sqrt(fan_in), seed)
