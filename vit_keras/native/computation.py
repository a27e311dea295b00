"""A Vision Transformer as a function of parameters with Flax' names, for JAX and TensorFlow."""

import functools
from collections.abc import Callable

import numpy as np

from vit_keras.layers.position_tables import rotary_angles_2d, rotary_places, sincos_2d
from vit_keras.layers.relative_bias import relative_index
from vit_keras.native.design import Design, check_images
from vit_keras.native.operations import Operations, Tensor, dense, norm, rotate

ATTENTION, MLP = "MultiHeadDotProductAttention_1", "MlpBlock_3"
Uniform = Callable[[tuple], Tensor]


class Computation:
    """Computes a model's output from parameters and images `(B, H, W, C)`.

    Args:
        design: What the model computes.
        ops: The operations of the framework.
    """

    def __init__(self, design: Design, ops: Operations):
        self.design, self.ops = design, ops
        self.arch, self.options = design.arch, design.arch.options
        arch, prefix = design.arch, design.arch.prefix
        size = arch.hidden_size // arch.num_heads
        rope, self.angles, self.places = self.options.rope, None, None
        if rope is not None and rope.mixed:
            self.places = rotary_places(*arch.grid, prefix.count, rope)[..., None, None]
        elif rope is not None:
            self.angles = rotary_angles_2d(*arch.grid, size, prefix.count, rope)
        self.table = None
        if arch.position_embedding == "sincos2d":
            covered = prefix.positions(self.options.position_cover)
            self.table = sincos_2d(*arch.grid, arch.hidden_size, covered)

    def __call__(self, params, images: Tensor, uniform: Uniform | None = None) -> Tensor:
        """Returns the logits `(B, K)`, or the features `(B, D)` of a model without a head.

        Args:
            params: The parameters, dictionaries in a dictionary.
            images: The images.
            uniform: Takes a shape and returns random numbers in [0, 1), which make this a training
                step; None for inference.
        """
        design, arch = self.design, self.arch
        check_images(arch, images.shape, channels_first=False)
        images = self.ops.convert(images, params["embedding"]["kernel"].dtype)
        x = self._add_prefix(params, self._patches(params["embedding"], images))
        x = self._drop(x, design.dropout_rate, uniform)
        x = self._drop_patches(x, uniform)
        if self.options.pre_norm:
            x = self._norm(params["pre_norm"], x)
        for i, rate in enumerate(design.stochastic_depth_rates):
            x = self._block(params["Transformer"][f"encoderblock_{i}"], x, rate, uniform)
        return self._head(params, x)

    def _norm(self, p, x):
        return norm(self.ops, p, x, self.arch.layer_norm_epsilon)

    def _drop(self, x, rate, uniform, whole=False):
        """Sets numbers of `x` to 0, or all numbers of some images."""
        if uniform is None or rate == 0:
            return x
        inner = (1,) * (len(x.shape) - 1) if whole else x.shape[1:]
        stays = uniform((self.ops.batch(x), *inner)) >= rate
        return self.ops.where(stays, x / (1 - rate), self.ops.convert(0.0, x.dtype))

    def _drop_patches(self, x, uniform):
        first, count = self.arch.prefix.count, self.design.kept_patches
        patches = x.shape[1] - first
        if uniform is None or count == patches:
            return x
        places = self.ops.smallest(uniform((self.ops.batch(x), patches)), count)
        return self.ops.concatenate([x[:, :first], self.ops.gather(x[:, first:], places)], 1)

    def _patches(self, p, images):
        ops, ((rows, columns), (height, width)) = self.ops, (self.arch.grid, self.arch.patch_size)
        x = images[:, : rows * height, : columns * width]
        x = ops.reshape(x, (-1, rows, height, columns, width, self.arch.channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))  # (B, rows, columns, p_h, p_w, C)
        return ops.reshape(dense(ops, p, x, 3), (-1, rows * columns, self.arch.hidden_size))

    def _add_prefix(self, params, x):
        """Adds the tokens before the patches, and positions, as `models.prefix.add_prefix`."""
        ops, cover, names = self.ops, self.options.position_cover, self.arch.prefix.names
        tokens = {"cls": lambda: params["cls"], "dist": lambda: params["dist"]["cls"]}
        single, registers = [tokens[name]() for name in names], []
        if self.options.num_registers:
            registers = [params["registers"]["registers"]]
        join = lambda *groups: self._join([token for group in groups for token in group], x.dtype)
        if cover == "patches":
            return join(single, registers, [self._add_positions(params, x)])
        if cover == "class":
            x, count = self._add_positions(params, join(single, [x])), len(names)
            return ops.concatenate([x[:, :count], *self._like(x, registers), x[:, count:]], 1)
        return self._add_positions(params, join(single, registers, [x]))

    def _join(self, tokens, dtype):
        *before, x = tokens
        return self.ops.concatenate([*self._like(x, before), x], 1) if before else x

    def _like(self, x, tokens):
        """Repeats tokens `(1, T, D)` for each image of `x`."""
        batch = self.ops.batch(x)
        return [self.ops.broadcast_to(t, (batch, *t.shape[1:])) for t in tokens]

    def _add_positions(self, params, x):
        if self.table is not None:
            return x + self.ops.convert(self.table, x.dtype)
        if self.arch.position_embedding != "learned":
            return x
        return x + params["Transformer"]["posembed_input"]["pos_embedding"]

    def _block(self, p, x, depth_rate, uniform):
        drop = functools.partial(self._drop, uniform=uniform)
        normal = self._norm(p["LayerNorm_0"], x)
        tables = self._tables(p[ATTENTION], x.dtype)
        y = self._attention(p[ATTENTION], normal, normal, self.arch.num_heads, uniform, tables)
        y = drop(y, self.design.dropout_rate)
        if self.options.parallel:
            y = y + self._mlp(p[MLP], normal, uniform)
            return x + drop(self._scaled(p, y, 0), depth_rate, whole=True)
        x = x + drop(self._scaled(p, y, 0), depth_rate, whole=True)
        y = self._mlp(p[MLP], self._norm(p["LayerNorm_2"], x), uniform)
        return x + drop(self._scaled(p, y, 1), depth_rate, whole=True)

    def _scaled(self, p, x, number):
        if self.options.layer_scale is None:
            return x
        return x * p[f"LayerScale_{number}"]["scale"]

    def _mlp(self, p, x, uniform):
        ops, rate = self.ops, self.design.dropout_rate
        hidden = dense(ops, p["Dense_0"], x)
        if "gate" in p:
            gate = dense(ops, p["gate"], x)
            hidden = gate * ops.sigmoid(gate) * hidden
        else:
            hidden = ops.gelus[self.arch.gelu](hidden)
        hidden = self._norm(p["norm"], hidden) if "norm" in p else hidden
        y = dense(ops, p["Dense_1"], self._drop(hidden, rate, uniform))
        return self._drop(y, rate, uniform)

    def _attention(self, p, q, kv, heads, uniform, tables=None):
        """softmax(q kᵀ / √d) v, with (B, H) as one axis: XLA's fastest form on CPUs."""
        ops, size = self.ops, self.arch.hidden_size // heads
        query, key = dense(ops, p["query"], q), dense(ops, p["key"], kv)  # (B, N, H, d)
        if "query_norm" in p:
            query, key = self._norm(p["query_norm"], query), self._norm(p["key_norm"], key)
        if tables is not None:
            query, key = rotate(ops, query, *tables), rotate(ops, key, *tables)
        value = self._heads_first(dense(ops, p["value"], kv))
        query, key = self._heads_first(query * size**-0.5), self._heads_first(key)
        logits = ops.matmul(query, ops.transpose(key, (0, 2, 1)))  # (B·H, N_q, N_kv)
        logits = logits if logits.dtype == "float64" else ops.convert(logits, "float32")
        weights = ops.activations["softmax"](self._add_bias(p, logits, heads))
        weights = ops.convert(weights, value.dtype)
        weights = self._drop(weights, self.design.attention_dropout_rate, uniform)
        x = ops.reshape(ops.matmul(weights, value), (-1, heads, q.shape[1], size))
        x = ops.transpose(x, (0, 2, 1, 3))
        if "norm" in p:
            flat = self._norm(p["norm"], ops.reshape(x, (-1, q.shape[1], heads * size)))
            x = ops.reshape(flat, (-1, q.shape[1], heads, size))
        return dense(ops, p["out"], x, 2)

    def _heads_first(self, x):
        """`(B, N, H, d)` -> `(B·H, N, d)`."""
        x = self.ops.transpose(x, (0, 2, 1, 3))
        return self.ops.reshape(x, (-1, *x.shape[2:]))

    def _tables(self, p, dtype):
        """The cosines and sines of a block's rotary positions, `(N, 1 or H, d/2)`, or None."""
        convert = functools.partial(self.ops.convert, dtype=dtype)
        if self.angles is not None:
            return convert(np.cos(self.angles)), convert(np.sin(self.angles))
        if self.places is None:
            return None
        places, frequencies = convert(self.places), p["rotary"]["frequencies"]  # (2, H, d/2)
        angles = places[0] * frequencies[0] + places[1] * frequencies[1]
        return self.ops.cos(angles), self.ops.sin(angles)

    def _add_bias(self, p, logits, heads):
        if "relative_2d" not in p:
            return logits
        ops, tokens = self.ops, logits.shape[-1]
        index = relative_index(self.arch.grid)[-tokens:, -tokens:]
        bias = ops.take(p["relative_2d"]["table"], index.ravel())
        bias = ops.transpose(ops.reshape(bias, (tokens, tokens, heads)), (2, 0, 1))
        bias = ops.convert(bias, logits.dtype)
        logits = ops.reshape(logits, (-1, heads, tokens, tokens)) + bias
        return ops.reshape(logits, (-1, tokens, tokens))

    def _read(self, params, x):
        """Normalizes the tokens and reads vectors for the heads, as `models.readout`."""
        kind, count = self.arch.classifier, self.arch.prefix.count
        norm = lambda x: x
        if self.options.final_norm:
            norm = functools.partial(self._norm, params["Transformer"]["encoder_norm"])
        mean = lambda x: self.ops.mean(x[:, count:], 1)[:, 0]
        if kind == "gap_norm":
            return [norm(mean(x))]
        x = norm(x)
        if kind == "gap":
            return [mean(x)]
        if kind == "map":
            x = x if self.options.pool_all_tokens else x[:, count:]
            return [self._pool(params["MAPHead_0"], x)]
        if kind == "token_gap":
            return [self.ops.concatenate([x[:, 0], mean(x)], -1)]
        return [x[:, i] for i in range(2 if kind == "distilled" else 1)]

    def _pool(self, p, x):
        heads = self.options.map_heads or self.arch.num_heads
        (probe,) = self._like(x, [p["probe"]])
        y = self._attention(p["MultiHeadDotProductAttention_0"], probe, x, heads, None)
        return (y + self._mlp(p["MlpBlock_0"], self._norm(p["LayerNorm_0"], y), None))[:, 0]

    def _head(self, params, x):
        ops, (x, *dist) = self.ops, self._read(params, x)
        if "pre_logits" in params:
            x = ops.tanh(dense(ops, params["pre_logits"], x))
        if "head" not in params:
            return x
        logits = ops.activations[self.design.activation](dense(ops, params["head"], x))
        if dist:
            logits = (logits + dense(ops, params["head_dist"], dist[0])) / 2
        return logits
