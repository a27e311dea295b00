"""Makes files with weights of fewer bits from float32 TFLite and ONNX files.

Each writer takes (source, path, excluded, calibration): the file to read, the file to write, names
of layers that stay in float32, and images for the ranges of activations. Layers are ranked by the
error from quantizing each alone.
"""

import contextlib
import functools
import logging
import math
import os
import re
import tempfile
import types

import numpy as np

from vit_keras import runtimes
from vit_keras.runtimes import litert_interpreter

GRAPH = 2**20  # bytes that a file may take beside its numbers, if its float32 file says nothing
GROWTH = 3  # most bytes of a quantized graph and its scales, divided by those of the float32 graph
LARGE = 1024  # values; smaller weights stay in float32
KERNEL_AXES = {"Conv": 0, "ConvTranspose": 1}  # the axis of a kernel's outputs, in ONNX
PHONES = ("FULLY_CONNECTED", "CONV_2D")
PRODUCTS = {".tflite": PHONES, ".onnx": ("MatMul", "Gemm", *KERNEL_AXES)}


def layers(source) -> list[str]:
    """Returns the names of the operations with weights in a TFLite or ONNX file."""
    suffix = os.path.splitext(source)[1]
    if suffix == ".onnx":
        graph = read_named(source).graph
        sizes = {tensor.name: len(tensor.dims) for tensor in graph.initializer}
        nodes = (node for node in graph.node if node.op_type in PRODUCTS[suffix])
        return [node.name for node in nodes if sizes.get(node.input[1], 0) >= 2]
    from vit_keras.exporting import tflite_file  # which needs flatbuffers

    operations = tflite_file.operations(tflite_file.read(source))
    return [x.name.decode() for name, x in operations if name in PRODUCTS[suffix]]


def _litert(config, source, path, excluded=(), calibration=None, operations=PHONES, **options):
    from ai_edge_quantizer import quantizer, recipe_manager

    recipe = recipe_manager.RecipeManager()
    for operation in operations:
        getattr(recipe, config)(".*", operation, **options)
    for operation in ("INPUT", "OUTPUT"):
        recipe.add_quantization_config(".*", operation, algorithm_key="no_quantize")
    for layer in excluded:
        recipe.add_quantization_config(re.escape(layer), "*", algorithm_key="no_quantize")
    worker = quantizer.Quantizer(os.fspath(source), recipe.get_quantization_recipe())
    with _silence():
        ranges = _ranges(source, calibration, recipe) if worker.need_calibration else None
        quantized = worker.quantize(ranges, enable_progress_report=False)
        quantized.export_model(os.fspath(path), overwrite=True)


_static = functools.partial(_litert, "add_static_config", weight_num_bits=8)
LITERT = {
    # Weights in 8 or 4 bits, one scale per channel; activations are quantized at run time.
    "int8": functools.partial(_litert, "add_dynamic_config", num_bits=8),
    # Weights in float16, arithmetic in float32.
    "fp16": functools.partial(
        _litert, "add_weight_only_config", num_bits=16, algorithm_key="float_casting"
    ),
    "int4": functools.partial(_litert, "add_dynamic_config", num_bits=4),
    # Dense layers and convolutions in int8; the ranges of activations come from `calibration`.
    # Attention's products and the normalizations stay in float32: XNNPACK has no int8 for them.
    "int8-static": functools.partial(_static, activation_num_bits=8),
    # For NPUs: int16 activations in every operation, including attention and most of a
    # normalization. Images and outputs keep their types. LiteRT has no fast CPU kernels for these.
    "int8-static16": functools.partial(_static, activation_num_bits=16, operations=("*",)),
}


@contextlib.contextmanager
def _silence():
    """Hides the quantizers' progress bars and advice.

    The root logger gets a handler first. Otherwise the first message would add one that writes to
    a stream that is closed here.
    """
    root, handler = logging.getLogger(), logging.NullHandler()
    with contextlib.ExitStack() as stack:
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        stack.callback(logging.disable, root.manager.disable)
        logging.disable(logging.WARNING)
        nowhere = stack.enter_context(open(os.devnull, "w"))
        stack.enter_context(contextlib.redirect_stdout(nowhere))
        stack.enter_context(contextlib.redirect_stderr(nowhere))
        yield


def _ranges(source, images, recipe):
    """Returns the range of each tensor over all images; the quantizer's averages lose the extremes.

    Ranges are 1% wider, since LiteRT refuses sums in int16 whose scales are all powers of two.
    """
    from ai_edge_quantizer import calibrator
    from ai_edge_quantizer.utils import qsv_utils

    interpreter = litert_interpreter(source)
    ((key, signature),) = interpreter.get_signature_list().items()
    batch, name = interpreter.get_input_details()[0]["shape"][0], signature["inputs"][0]
    starts = range(0, len(images) - batch + 1, batch)
    batches = {key: [{name: images[i : i + batch]} for i in starts]}
    options = {"qsv_update_func": qsv_utils.min_max_update}
    watcher = calibrator.Calibrator(os.fspath(source), **options)
    watcher.calibrate(batches, recipe)
    ends = watcher.get_model_qsvs().items()
    return {name: {end: 1.01 * value for end, value in range.items()} for name, range in ends}


def read_named(source):
    """Reads a file, and gives a name to each node that has none."""
    import onnx

    model = onnx.load(source)
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    return model


def _restore(graph, tensor, arrays, operation, **attributes) -> None:
    """Replaces a graph's stored tensor with other arrays, from which a new node computes it."""
    import onnx

    name = tensor.name
    stored = [onnx.numpy_helper.from_array(array, f"{name}/{array.dtype}") for array in arrays]
    tensor.CopyFrom(stored[0])
    graph.initializer.extend(stored[1:])
    inputs, place = [each.name for each in stored], f"{name}/{operation}"
    graph.node.insert(0, onnx.helper.make_node(operation, inputs, [name], place, **attributes))


def store_kernels_in_int8(model, names) -> None:
    """Stores kernels of convolutions in int8, one scale per output; computes in float32.

    Args:
        model: An ONNX model; changed in place.
        names: The names of the convolutions; other nodes are unchanged.
    """
    import onnx

    chosen = [n for n in model.graph.node if n.name in names and n.op_type in KERNEL_AXES]
    axes = {node.input[1]: KERNEL_AXES[node.op_type] for node in chosen}
    for tensor in [x for x in model.graph.initializer if x.name in axes]:
        axis, kernel = axes[tensor.name], onnx.numpy_helper.to_array(tensor)
        others = tuple(i for i in range(kernel.ndim) if i != axis)
        scale = np.maximum(np.abs(kernel).max(axis=others, keepdims=True), 1e-30) / 127
        arrays = np.rint(kernel / scale).astype("int8"), scale.ravel().astype("float32")
        _restore(model.graph, tensor, arrays, "DequantizeLinear", axis=axis)


def onnx_int8(source, path, excluded=(), calibration=None):
    """Quantizes weights of products to 8 bits, one scale per channel, and activations at run time.

    Weights are unsigned. On x86 processors with AVX2 but without VNNI, ONNX Runtime multiplies
    unsigned activations by signed weights with an instruction (`vpmaddubsw`) that saturates at 16
    bits: a product of full-range weights is up to 25% off the exact one of the file's integers.
    Unsigned weights are exact everywhere. With them, Ti/16 takes 1.17 times as long on AVX2 as with
    7-bit signed weights, which are also exact but nearly double a small model's error in its logits
    (0.032 compared to 0.019 rms). With VNNI both use the same kernel.

    Convolutions store signed weights and compute in float32.
    """
    from onnxruntime import quantization

    chosen, model = {*layers(source)} - {*excluded}, read_named(source)
    store_kernels_in_int8(model, chosen)
    others = [node.name for node in model.graph.node if node.name not in chosen]
    with _silence():
        quantization.quantize_dynamic(
            model,
            path,
            per_channel=True,
            weight_type=quantization.QuantType.QUInt8,
            op_types_to_quantize=["MatMul"],  # every Gemm is first rewritten as MatMul
            nodes_to_exclude=[*others, *(f"{name}_MatMul" for name in others)],
        )


def onnx_int4(source, path, excluded=(), calibration=None):
    """Stores the weights of products in 4 bits, one scale per 32 weights; computes in floats."""
    from onnxruntime.quantization import matmul_nbits_quantizer, onnx_model

    chosen, model = {*layers(source)} - {*excluded}, read_named(source)
    onnx_model.ONNXModel(model).replace_gemm_with_matmul()
    names = [node.name for node in model.graph.node]
    others = [name for name in names if name.removesuffix("_MatMul") not in chosen]
    options = {"block_size": 32, "is_symmetric": True, "nodes_to_exclude": others}
    with _silence():
        worker = matmul_nbits_quantizer.MatMulNBitsQuantizer(model, **options)
        worker.process()
        worker.model.save_model_to_file(path)


def onnx_int8_static(source, path, excluded=(), calibration=None):
    """Quantizes products and convolutions to int8 in the form that TensorRT and QNN read.

    Each reads QuantizeLinear and DequantizeLinear (QDQ), with one scale per channel of its weights
    and a symmetric range of its inputs, from the images in `calibration`. Its outputs are float32:
    in int8, they would double the error of a DINOv2. All other operations read float32.
    """
    from onnxruntime import quantization

    chosen, model = {*layers(source)} - {*excluded}, read_named(source)
    images = model.graph.input[0]
    batch = images.type.tensor_type.shape.dim[0].dim_value or 1
    starts = range(0, len(calibration) - batch + 1, batch)
    batches = iter([{images.name: calibration[i : i + batch]} for i in starts])
    with _silence():
        quantization.quantize_static(
            model,
            path,
            types.SimpleNamespace(get_next=lambda: next(batches, None)),
            per_channel=True,
            nodes_to_exclude=[node.name for node in model.graph.node if node.name not in chosen],
            extra_options={
                "ActivationSymmetric": True,
                "OpTypesToExcludeOutputQuantization": PRODUCTS[".onnx"],
            },
        )
    read_floats(path, chosen)


def read_floats(path, chosen) -> None:
    """Lets only the nodes in `chosen` read quantized activations, in a file with QuantizeLinear.

    The quantizer connects these to every node that reads the tensor. That rounds what should stay
    in float32, and after a Slice, ONNX Runtime 1.31 quantizes again and mixes int8 with uint8.
    """
    import onnx

    model = onnx.load(path)
    makers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        for place, name in enumerate(node.input if node.name not in chosen else ()):
            back = makers.get(name)
            if back and back.op_type == "DequantizeLinear" and back.input[0] in makers:
                node.input[place] = makers[back.input[0]].input[0]
    onnx.save(model, path)


def store_in_half(source, path, excluded=(), calibration=None) -> None:
    """Stores weights as float16 and casts them back: half the bytes, float32 arithmetic.

    Args:
        source: A float32 ONNX file.
        path: The file to write.
        excluded: Names of nodes whose weights stay in float32.
        calibration: Ignored; all writers have the same arguments.
    """
    import onnx

    model = read_named(source)
    kept = {name for node in model.graph.node if node.name in excluded for name in node.input}
    for tensor in [x for x in model.graph.initializer if x.name not in kept]:
        if tensor.data_type == onnx.TensorProto.FLOAT and np.prod(tensor.dims) >= LARGE:
            half = onnx.numpy_helper.to_array(tensor).astype("float16")
            _restore(model.graph, tensor, [half], "Cast", to=onnx.TensorProto.FLOAT)
    onnx.save(model, path)


def compute_in_half(source, path, excluded=(), calibration=None) -> None:
    """Stores weights as float16 and computes in float16; a CPU casts them back at each operation.

    Args:
        source: A float32 ONNX file.
        path: The file to write. Its inputs and outputs keep their types.
        excluded: Names of nodes that compute in float32.
        calibration: Ignored; all writers have the same arguments.
    """
    import onnx
    from onnxruntime.transformers import float16, onnx_model

    half = float16.convert_float_to_float16(
        read_named(source), keep_io_types=True, node_block_list=[*excluded]
    )
    onnx_model.OnnxModel(half).topological_sort()
    onnx.save(half, path)


def contents(source) -> tuple[int, int]:
    """Returns how many numbers a float32 TFLite or ONNX file stores, and its other bytes."""
    if source.endswith(".onnx"):
        numbers = sum(math.prod(tensor.dims) for tensor in read_named(source).graph.initializer)
    else:
        from vit_keras.exporting import tflite_file

        held = (buffer.data for buffer in tflite_file.read(source).buffers)
        numbers = sum(len(data) for data in held if data is not None) // 4
    return numbers, max(0, os.path.getsize(source) - 4 * numbers)


def missed(precision: str, size: int, numbers: int, graph: int = GRAPH) -> str | None:
    """Returns why a file is too large for the bits in its name; None if it is not.

    Args:
        precision: The file's precision.
        size: The file's bytes.
        numbers: How many numbers it stores: weights and other constants.
        graph: The bytes that it may take beside them.
    """
    bits = int(re.findall(r"\d+", precision)[0])  # 8 of int8-static16
    most = int(numbers * (bits + 32) / 16) + graph  # bytes, if half of them have 32 bits
    if size <= most or bits == 32:
        return None
    return (
        f"takes {size:,} bytes for {numbers:,} numbers. A file called {precision} must store half "
        f"of them in {bits} bits, so it may take at most {most:,} bytes"
    )


def rank_layers(make, source, images: np.ndarray, calibration=None) -> dict[str, float]:
    """Ranks layers by how much quantizing each alone changes the outputs, most sensitive first.

    Args:
        make: A function that writes a file in fewer bits, as in this module.
        source: A float32 file.
        images: Images prepared for the file, `(N, H, W, C)`.
        calibration: Images for the ranges of activations, if `make` uses them.

    Returns:
        `{layer: relative error}`: the root mean square of the outputs' change divided by
        that of the outputs.
    """
    names, outputs = layers(source), runtimes.open(source)(images)
    scale, errors = np.sqrt(np.mean(np.square(outputs))) + 1e-12, {}
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, f"one{os.path.splitext(source)[1]}")
        for name in names:
            make(source, path, [other for other in names if other != name], calibration)
            change = runtimes.open(path)(images) - outputs
            errors[name] = float(np.sqrt(np.mean(np.square(change))) / scale)
    return dict(sorted(errors.items(), key=lambda item: -item[1]))


def quantize_until(make, source, path, is_good_enough, images, calibration=None) -> list[str]:
    """Writes a quantized file, leaving out the most sensitive layers until it is good enough.

    It leaves out 0, 1, 2, 4, … up to half of the layers.

    Args:
        make: A function that writes a file in fewer bits, as in this module.
        source: A float32 file.
        path: The file to write.
        is_good_enough: Called with `path`.
        images: Images to rank layers on, prepared for the file.
        calibration: Images for the ranges of activations, if `make` uses them.

    Returns:
        The layers left in float32, the most sensitive first.

    Raises:
        ValueError: If the file is not good enough with half of the layers left out.
    """
    make(source, path, (), calibration)
    if is_good_enough(path):
        return []
    ranking, excluded = [*rank_layers(make, source, images, calibration)], list[str]()
    half = min(len(ranking), max(1, len(ranking) // 2))
    while len(excluded) < half:
        excluded = ranking[: min(half, 2 * len(excluded) or 1)]
        make(source, path, excluded, calibration)
        if is_good_enough(path):
            return excluded
    raise ValueError(
        f"{os.path.basename(path)} loses too much even with {half} of {len(ranking)} "
        "layers in float32. Use more bits, such as int8 instead of int4, or fp16"
    )
