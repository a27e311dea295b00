"""One function and one row a target: from the model that is served to a file.

The functions of a converting process, `backend`, take (model, path, batch), where batch None is
any; those that start from another file, `source`, take (source, path, excluded, calibration).
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable

import keras

from vit_keras.exporting import onnx_files, quantization


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How a precision is made: `make`, from the model or from the file of a `source` format.

    `layers(source)` names what may stay in float32 of a file; None where all is made alike.
    """

    make: Callable
    source: str | None = None
    layers: Callable | None = None


@dataclasses.dataclass(frozen=True)
class Target:
    """A format.

    Attributes:
        file: name of its file or folder, with {} for the precision.
        precisions: recipes by precision; the first ones named in `default` are made unasked.
        backend: of the process that converts it.
        packages: modules that it needs, as `pip install` names them by module.
        batch: images a call, None for any number; fixed where a dynamic one costs speed.
        dynamic: whether it can be made for any number.
        attention: whether it can have a second output.
    """

    file: str
    precisions: dict[str, Recipe]
    default: tuple[str, ...] = ("fp32",)
    backend: str = "tensorflow"
    packages: dict[str, str] = dataclasses.field(default_factory=dict)
    batch: int | None = None
    dynamic: bool = True
    attention: bool = False

    def name(self, precision: str) -> str:
        return self.file.format("" if precision == "fp32" else f"_{precision.replace('-', '_')}")


def signature(model, batch):
    shape = (batch, *model.input_shape[1:])
    return [keras.InputSpec(shape=shape, dtype=model.input.dtype, name="images")]


def write_saved_model(model, path, batch):
    given = {"input_signature": signature(model, batch), "verbose": False}
    model.export(path, format="tf_saved_model", **given)


def write_saved_model_int8(model, path, batch):
    """Weights in int8 with one scale a channel; TensorFlow's products on CPUs are float32."""
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model = keras.models.clone_model(model, clone_function=lambda layer: layer)
    model.quantize("int8", config=config)
    write_saved_model(model, path, batch)


def write_litert(model, path, batch):
    given = {"input_signature": signature(model, batch), "verbose": False}
    model.export(path, format="litert", **given)


def write_onnx(model, path, batch):
    model.export(path, format="onnx", input_signature=signature(model, batch), verbose=False)
    onnx_files.repair(path)


def write_openvino(source, path, excluded=(), calibration=None, fp16=False):
    import openvino

    openvino.save_model(openvino.convert_model(source), path, compress_to_fp16=fp16)


def _torch_program(model, batch):
    """`torch.export` of a module with one plain argument, which any batch can go through."""
    import torch

    class Served(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, images):
            return self.model(images)

    kind = getattr(torch, str(model.input.dtype))
    example = torch.zeros((2 if batch is None else batch, *model.input_shape[1:]), dtype=kind)
    shapes = ({0: torch.export.Dim("batch")},) if batch is None else None
    with torch.no_grad():
        return torch.export.export(Served().eval(), (example,), dynamic_shapes=shapes)


def write_pt2(model, path, batch):
    import torch

    torch.export.save(_torch_program(model, batch), path)


def write_coreml(model, path, batch, precision="fp32"):
    """An ML program for iOS 16 and later; it takes float32 pixels, 0 to 255 unless raw."""
    import coremltools as ct

    half = ct.precision.FLOAT16 if precision != "fp32" else ct.precision.FLOAT32
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
        program = _without_aliases(_torch_program(_of_floats(model), batch).run_decompositions({}))
        package = ct.convert(
            program, compute_precision=half, minimum_deployment_target=ct.target.iOS16
        )
        if precision == "int8":
            linear = ct.optimize.coreml.OpLinearQuantizerConfig(mode="linear_symmetric")
            config = ct.optimize.coreml.OptimizationConfig(global_config=linear)
            package = ct.optimize.coreml.linear_quantize_weights(package, config)
        package.save(path)


def _without_aliases(program):
    """Core ML's converter does not know torch's operation that does nothing."""
    import torch

    graph = program.graph_module.graph
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.alias.default):
        node.replace_all_uses_with(node.args[0])
        graph.erase_node(node)
    program.graph_module.recompile()
    return program


def _of_floats(model):
    """Core ML has no uint8 tensors."""
    images = keras.Input(model.input_shape[1:], dtype="float32", name="images")
    return keras.models.clone_model(model, input_tensors=images, clone_function=lambda layer: layer)


KERAS_ONNX = {"tf2onnx": "tf2onnx", "onnx": "onnx", "onnxruntime": "onnxruntime"}
QUANTIZER = {"ai_edge_litert": "ai-edge-litert", "ai_edge_quantizer": "ai-edge-quantizer"}
TARGETS = {
    "savedmodel": Target(
        "saved_model{}",
        {"fp32": Recipe(write_saved_model), "int8": Recipe(write_saved_model_int8)},
        attention=True,
    ),
    "litert": Target(
        "model{}.tflite",
        {
            "fp32": Recipe(write_litert),
            "int8": Recipe(quantization.litert_int8, "litert", quantization.layers),
            "fp16": Recipe(quantization.litert_fp16, "litert", quantization.layers),
            "int4": Recipe(quantization.litert_int4, "litert", quantization.layers),
            "int8-static": Recipe(quantization.litert_int8_static, "litert", quantization.layers),
        },
        default=("fp32", "int8"),
        packages=QUANTIZER,
        batch=1,
        attention=True,
    ),
    "onnx": Target(
        "model{}.onnx",
        {
            "fp32": Recipe(write_onnx),
            "int8": Recipe(quantization.onnx_int8, "onnx", quantization.layers),
            "fp16": Recipe(onnx_files.store_in_half, "onnx", onnx_files.large_weights),
        },
        packages=KERAS_ONNX,
        attention=True,
    ),
    "openvino": Target(
        "openvino{}/model.xml",
        {
            "fp32": Recipe(write_openvino, "onnx"),
            "fp16": Recipe(functools.partial(write_openvino, fp16=True), "onnx"),
        },
        packages={**KERAS_ONNX, "openvino": "openvino"},
    ),
    "pt2": Target("model{}.pt2", {"fp32": Recipe(write_pt2)}, backend="torch"),
    "coreml": Target(
        "model{}.mlpackage",
        {
            name: Recipe(functools.partial(write_coreml, precision=name))
            for name in ("fp32", "fp16", "int8")
        },
        default=("fp16",),
        backend="torch",
        packages={"coremltools": "coremltools"},
        batch=1,
        dynamic=False,
    ),
}
