"""The ResNets of the published hybrids and of BiT in NumPy (float64), written with loops.

`weights` maps variable paths to arrays; nothing here calls Keras.
"""

import numpy as np


def standardize(kernel, convention):
    """Gives each filter of (k, k, C, F) mean 0 and about deviation 1."""
    w = kernel.astype("float64") - kernel.mean(axis=(0, 1, 2), dtype="float64")
    variance = (w**2).mean(axis=(0, 1, 2))
    divisors = {
        "vit": np.sqrt(variance) + 1e-5,
        "bit": np.sqrt(variance + 1e-10),
        "timm": np.sqrt(variance + 1e-8),
    }
    return w / divisors[convention]


def margins(size, window, stride, padding):
    """Pixels before and after one side: TensorFlow's "same", or what a "fixed" window needs."""
    if padding == "fixed":
        return (window - 1) // 2, (window - 1) // 2
    total = max((-(-size // stride) - 1) * stride + window - size, 0)
    return total // 2, total - total // 2


def windows(x, size, stride, padding, value=0.0):
    """Yields (row, column, (B, size, size, C)) for each position of a window on (B, H, W, C)."""
    sides = [margins(side, size, stride, padding) for side in x.shape[1:3]]
    x = np.pad(x, [(0, 0), *sides, (0, 0)], constant_values=value)
    for row in range((x.shape[1] - size) // stride + 1):
        for column in range((x.shape[2] - size) // stride + 1):
            top, left = row * stride, column * stride
            yield row, column, x[:, top : top + size, left : left + size]


def convolve(x, kernel, stride=1, padding="same"):
    cells = {}
    for row, column, window in windows(x, len(kernel), stride, padding):
        cells[row, column] = np.tensordot(window, kernel, axes=([1, 2, 3], [0, 1, 2]))
    return assemble(cells)


def max_pool(x, padding):
    """3x3/2: "same" ignores what lies outside, "fixed" has one pixel of zeros there."""
    value = 0.0 if padding == "fixed" else -np.inf
    return assemble({(r, c): w.max(axis=(1, 2)) for r, c, w in windows(x, 3, 2, padding, value)})


def assemble(cells):
    rows, columns = (1 + max(place) for place in zip(*cells))
    row = lambda r: np.stack([cells[r, c] for c in range(columns)], axis=1)
    return np.stack([row(r) for r in range(rows)], axis=1)


def group_norm(x, weights, name, epsilon, groups=32):
    """Loops over images and groups of neighboring channels."""
    out, size = np.empty_like(x), x.shape[-1] // groups
    for image in range(len(x)):
        for start in range(0, x.shape[-1], size):
            group = x[image, :, :, start : start + size]
            centered = group - group.mean()
            scaled = centered / np.sqrt((centered**2).mean() + epsilon)
            out[image, :, :, start : start + size] = scaled
    return out * weights[f"{name}/gamma"] + weights[f"{name}/beta"]


def relu(x):
    return np.maximum(x, 0)


def post_unit(x, weights, name, stride=1, convention="vit", epsilon=1e-6):
    conv = lambda x, part, stride=1: convolve(
        x, standardize(weights[f"{name}/{part}/kernel"], convention), stride
    )
    norm = lambda x, part: group_norm(x, weights, f"{name}/{part}", epsilon)
    y = relu(norm(conv(x, "conv1"), "gn1"))
    y = relu(norm(conv(y, "conv2", stride), "gn2"))
    y = norm(conv(y, "conv3"), "gn3")
    if f"{name}/conv_proj/kernel" in weights:
        x = norm(conv(x, "conv_proj", stride), "gn_proj")
    return relu(x + y)


def pre_unit(x, weights, name, stride=1, convention="bit", epsilon=1e-5):
    conv = lambda x, part, stride=1: convolve(
        x, standardize(weights[f"{name}/{part}/kernel"], convention), stride, "fixed"
    )
    norm = lambda x, part: group_norm(x, weights, f"{name}/{part}", epsilon)
    y = relu(norm(x, "gn1"))
    if f"{name}/conv_proj/kernel" in weights:
        x = conv(y, "conv_proj", stride)
    y = conv(y, "conv1")
    y = conv(relu(norm(y, "gn2")), "conv2", stride)
    return x + conv(relu(norm(y, "gn3")), "conv3")


def stem(images, weights, resnet_layers, convention="vit", epsilon=1e-6):
    """The map that a hybrid's transformer reads."""
    x = convolve(images, standardize(weights["conv_root/kernel"], convention), 2)
    x = max_pool(relu(group_norm(x, weights, "gn_root", epsilon)), "same")
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            stride = 2 if s > 1 and u == 1 else 1
            x = post_unit(x, weights, f"block{s}/unit{u}", stride, convention, epsilon)
    return x


def bit(images, weights, resnet_layers):
    """What BiT computes, by name: root_block, block1 …, relu, avg_pool, head."""
    weights = {name: np.asarray(value, "float64") for name, value in weights.items()}
    kernel = standardize(weights["root_block/conv_root/kernel"], "bit")
    x = convolve(images.astype("float64"), kernel, 2, "fixed")
    out = {"root_block": (x := max_pool(x, "fixed"))}
    for s, units in enumerate(resnet_layers, 1):
        for u in range(1, units + 1):
            x = pre_unit(x, weights, f"block{s}/unit{u:02d}", 2 if s > 1 and u == 1 else 1)
        out[f"block{s}"] = x
    out["relu"] = relu(group_norm(x, weights, "norm-pre-head", 1e-5))
    out["avg_pool"] = out["relu"].mean(axis=(1, 2))
    if "head/kernel" in weights:
        out["head"] = out["avg_pool"] @ weights["head/kernel"] + weights["head/bias"]
    return out
