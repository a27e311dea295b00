"""Eq. 1–4 of arXiv 2010.11929 in NumPy (float64), written from the formulas.

`weights` maps variable paths to arrays; nothing here calls Keras.
"""

import math

import numpy as np

_erf = np.vectorize(math.erf)


def gelu(x, kind):
    if kind == "exact":
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))
    if kind == "quick":
        return x / (1 + np.exp(-1.702 * x))
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def log_softmax(x):
    x = x - x.max(axis=-1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))


def layer_norm(x, weights, name, epsilon):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    x = (x - mean) / np.sqrt(variance + epsilon)
    return x * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def patches(images, kernel, bias):
    """Loops over the patches of each image: (B, H, W, C) -> (B, N, D)."""
    height, width = kernel.shape[:2]
    tokens = []
    for top in range(0, images.shape[1], height):
        for left in range(0, images.shape[2], width):
            patch = images[:, top : top + height, left : left + width]
            tokens.append(np.tensordot(patch, kernel, axes=([1, 2, 3], [0, 1, 2])) + bias)
    return np.stack(tokens, axis=1)


def attention(q, kv, weights, name, turn=lambda x: x):
    """Loops over the heads; returns (output, attention weights (B, H, N_q, N_kv)).

    `turn` rotates queries and keys `(B, N, d)`; a relative table adds to the logits.
    """
    get = lambda part: weights[f"{name}/{part}"]
    heads, size = get("query/bias").shape
    out, maps = get("out/bias"), []
    for h in range(heads):
        query = turn(q @ get("query/kernel")[:, h] + get("query/bias")[h])
        key = turn(kv @ get("key/kernel")[:, h] + get("key/bias")[h])
        value = kv @ get("value/kernel")[:, h] + get("value/bias")[h]
        logits = query @ key.transpose(0, 2, 1)
        if f"{name}/relative/embedding" in weights:
            logits = logits + relative_logits(query, get("relative/embedding"))
        maps.append(softmax(logits / math.sqrt(size)))
        out = out + maps[-1] @ value @ get("out/kernel")[h]
    return out, np.stack(maps, axis=1)


def relative_logits(query, table):
    """Loops over pairs: (B, N, d) with the rows of `table` for key - query = 1 - N … N - 1."""
    tokens = query.shape[1]
    logits = np.zeros((len(query), tokens, tokens))
    for q in range(tokens):
        for k in range(tokens):
            logits[:, q, k] = query[:, q] @ table[k - q + tokens - 1]
    return logits


def columns_and_rows(grid, x_table, y_table, class_token=None):
    """Loops over the grid: (T + h·w, D), each patch its column's numbers, then its row's."""
    table = [] if class_token is None else list(class_token)
    for row in range(grid[0]):
        for column in range(grid[1]):
            table.append(np.concatenate([x_table[column], y_table[row]]))
    return np.stack(table)


def sincos(grid, width, class_token=False):
    """Loops over the grid and frequencies: (T + h·w, D)."""
    table, parts = [np.zeros(width)] * class_token, width // 4
    angle = lambda place, i: place / 10_000 ** (i / (parts - 1))
    for row in range(grid[0]):
        for column in range(grid[1]):
            places = [(math.sin, column), (math.cos, column), (math.sin, row), (math.cos, row)]
            table.append([f(angle(at, i)) for f, at in places for i in range(parts)])
    return np.stack(table)


def rotary(x, grid, class_token=False):
    """Turns pairs (i, i + d/2) of (B, N, d) as complex numbers, in loops."""
    half = x.shape[-1] // 2
    turned, pairs = x.astype("float64").copy(), x[..., :half] + 1j * x[..., half:]
    for row in range(grid[0]):
        for column in range(grid[1]):
            at = class_token + row * grid[1] + column
            for i in range(half):
                place = row if i < half // 2 else column
                angle = place / 100 ** ((i % (half // 2)) / (half // 2))
                z = pairs[:, at, i] * complex(math.cos(angle), math.sin(angle))
                turned[:, at, i], turned[:, at, i + half] = z.real, z.imag
    return turned


def mlp(x, weights, name, kind):
    x = gelu(x @ weights[f"{name}/Dense_0/kernel"] + weights[f"{name}/Dense_0/bias"], kind)
    return x @ weights[f"{name}/Dense_1/kernel"] + weights[f"{name}/Dense_1/bias"]


def block(x, weights, name, kind, epsilon, turn=lambda x: x):
    y = layer_norm(x, weights, f"{name}/LayerNorm_0", epsilon)
    y, maps = attention(y, y, weights, f"{name}/MultiHeadDotProductAttention_1", turn)
    x = x + y
    y = layer_norm(x, weights, f"{name}/LayerNorm_2", epsilon)
    return x + mlp(y, weights, f"{name}/MlpBlock_3", kind), maps


def map_head(x, weights, kind, epsilon):
    name = "MAPHead_0"
    probe = np.repeat(weights[f"{name}/probe"], len(x), axis=0)
    y, _ = attention(probe, x, weights, f"{name}/MultiHeadDotProductAttention_0")
    z = layer_norm(y, weights, f"{name}/LayerNorm_0", epsilon)
    return (y + mlp(z, weights, f"{name}/MlpBlock_0", kind))[:, 0]


def forward(
    images,
    weights,
    *,
    num_layers,
    classifier="token",
    gelu="exact",
    epsilon=1e-6,
    added=None,
    turn=lambda x: x,
):
    """Everything the model computes, by name; "logits" last.

    `added` is what is added before each block, by its number, the learned positions by default;
    `turn` is `attention`'s.
    """
    weights = {name: np.asarray(value, "float64") for name, value in weights.items()}
    x = patches(images.astype("float64"), weights["embedding/kernel"], weights["embedding/bias"])
    if classifier == "token":
        x = np.concatenate([np.repeat(weights["cls/cls"], len(x), axis=0), x], axis=1)
    added = {0: weights["posembed_input/pos_embedding"]} if added is None else added
    out, maps = {"posembed_input": x + added.get(0, 0)}, []
    for i in range(num_layers):
        x = x + added.get(i, 0)
        x, weights_i = block(x, weights, f"encoderblock_{i}", gelu, epsilon, turn)
        out[f"encoderblock_{i}"] = x
        maps.append(weights_i)
    if classifier == "gap_norm":  # the mean first
        x = x.mean(axis=1)
    x = out["encoder_norm"] = layer_norm(x, weights, "encoder_norm", epsilon)
    pool = {
        "gap_norm": lambda: x,
        "token": lambda: x[:, 0],
        "gap": lambda: x.mean(axis=1),
        "map": lambda: map_head(x, weights, gelu, epsilon),
    }
    y = pool[classifier]()
    if "pre_logits/kernel" in weights:
        y = np.tanh(y @ weights["pre_logits/kernel"] + weights["pre_logits/bias"])
    out["features"] = y
    if "head/kernel" in weights:
        y = y @ weights["head/kernel"] + weights["head/bias"]
    return {**out, "attention": np.stack(maps, axis=1), "logits": y}
