"""The formats of exported files: a function for each file, the table `TARGETS`, and the `Plan`.

Functions that start from the model take (model, path, batch); a batch of None means any number of
images. They run in a process of the target's `backend`. Functions that start from another file take
(source, path, excluded, calibration), as in `quantization`.
"""

import dataclasses
import functools
import io
import pathlib
from collections.abc import Callable, Sequence

import keras
import numpy as np

from vit_keras.exporting import quantization, serving
from vit_keras.models import task_of
from vit_keras.models.resized import check_any_size
from vit_keras.support import extras
from vit_keras.support.checks import ONE_OF_TWO, Rule, check_choice, check_rules, is_int
from vit_keras.support.keras_internals import store_variables_once

AXES = ("batch", "height", "width", "channels")
OUTPUTS = ("output", "attention")  # of ONNX files
OPSETS = range(20, 24)  # of ONNX files; 20 is written by default
EXAMPLE = {"batch": 2, "height": 192, "width": 240}  # of sizes that a file leaves open
TRANSFORMERS = "huggingface_onnx"  # the format that takes prepared images alone
LARGEST = 2**40  # values of a constant to fold: without a limit in practice


@dataclasses.dataclass(frozen=True)
class Target:
    """A format of exported files.

    Attributes:
        file: The name of its file or folder, with {} for the precision.
        precisions: The functions that write the files, by precision.
        source: The format from whose float32 file the other files are made; None if all start from
            the model.
        default: The precisions to make by default.
        packages: The modules needed to make and read the format.
        extra: The extra of `vit-keras` that installs these packages.
        batch: Images per call, None for any number; fixed if a dynamic number costs speed.
        dynamic_batch: Whether a file can take any number of images.
        dynamic_size: Whether a file can take images of any size.
        attention: Whether a file can have attention as a second output.
        is_readable: Whether `runtimes` opens the files on this machine.
        graph: `graph(model, output, raw)` returns the model to write, with the files' outputs.
        spellings: How the file's name spells a precision, where it differs.
    """

    file: str
    precisions: dict[str, Callable]
    source: str | None = None
    default: tuple[str, ...] = ("fp32",)
    packages: tuple[str, ...] = ("tensorflow",)
    extra: str = "export"
    batch: int | None = None
    dynamic_batch: bool = True
    dynamic_size: bool = False
    attention: bool = False
    is_readable: bool = True
    graph: Callable = serving.serving_model
    spellings: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def backend(self) -> str:
        """The backend of the process that converts the model."""
        return "torch" if "torch" in self.packages else "tensorflow"

    def name(self, precision: str) -> str:
        """Returns the name of the file or folder for a precision."""
        precision = self.spellings.get(precision, precision)
        return self.file.format("" if precision == "fp32" else f"_{precision.replace('-', '_')}")


def signature(model, batch):
    """Returns the input signature of calls with `batch` images, for `keras.Model.export`."""
    shape = (batch, *model.input_shape[1:])
    return [keras.InputSpec(shape=shape, dtype=model.input.dtype, name="images")]


def write_saved_model(model, path, batch):
    archive = keras.export.ExportArchive()
    archive.track_and_add_endpoint("serve", model, signature(model, batch))
    store_variables_once(archive)
    archive.write_out(path, verbose=False)


def write_saved_model_int8(model, path, batch):
    """Stores weights in int8, one scale per channel; TensorFlow multiplies in float32 on CPUs."""
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model = keras.models.clone_model(model, clone_function=lambda layer: layer)
    model.quantize("int8", config=config)
    write_saved_model(model, path, batch)


def write_litert(model, path, batch):
    model.export(path, format="litert", input_signature=signature(model, batch), verbose=False)


def write_openvino(source, path, fp16=False):
    import openvino

    openvino.save_model(openvino.convert_model(source), path, compress_to_fp16=fp16)


def _torch_program(model, batch):
    """Exports the model with `torch.export` as a module whose only argument is the images.

    The trace treats the module's parameters as weights, and any other tensor as a constant.
    """
    import torch

    class Served(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.ParameterDict({v.path: v.value for v in model.variables})

        def forward(self, images):
            values = [(v, self.weights[v.path]) for v in model.variables]
            with keras.StatelessScope(state_mapping=values):
                return model(images)

    dtype = getattr(torch, str(model.input.dtype))
    named = dict(zip(AXES, (batch, *model.input_shape[1:])))
    free = {axis for axis in named if named[axis] is None}
    example = torch.zeros([EXAMPLE.get(a) if a in free else named[a] for a in named], dtype=dtype)
    shapes = ({place: torch.export.Dim.DYNAMIC for place, a in enumerate(named) if a in free},)
    options = {"dynamic_shapes": shapes, "prefer_deferred_runtime_asserts_over_guards": True}
    with torch.no_grad():
        program = torch.export.export(Served().eval(), (example,), **options if free else {})
    for node in program.graph.nodes:
        if node.target is torch.ops.aten._assert_tensor_metadata.default:
            program.graph.erase_node(node)  # it would refuse weights of another type
        node.meta.pop("stack_trace", None)  # holds paths of this machine
    program.graph_module.recompile()
    return program


def write_pt2(model, path, batch):
    import torch

    memory = io.BytesIO()  # writing to a full disk from PyTorch would abort the process
    torch.export.save(_torch_program(model, batch), memory)
    pathlib.Path(path).write_bytes(memory.getbuffer())


def write_executorch(model, path, batch):
    """Writes a program for ExecuTorch, whose XNNPACK takes only products with stored matrices."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    module = with_folded_constants(_torch_program(model, batch))
    example = torch.zeros((batch, *model.input_shape[1:]), dtype=getattr(torch, model.input.dtype))
    program = torch.export.export(module, (example,))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    pathlib.Path(path).write_bytes(lowered.to_executorch().buffer)


def with_folded_constants(program):
    """Returns a torch program's module that stores all values that depend only on weights."""
    from torch._inductor.constant_folding import constant_fold

    module = program.run_decompositions().module()
    constant_fold(module)
    for tensor in module.buffers():
        tensor.data = tensor.detach().contiguous()
    return module


def write_onnx(model, path, batch, opset=OPSETS[0]):
    """Writes opset 20, in which LayerNormalization and Gelu are single operations, or a later one.

    From opset 23 on, Attention is a single operation too. Constants are folded, so that each
    product reads a stored matrix, as quantization requires.
    """
    import torch
    from onnxscript import optimizer

    is_split = isinstance(model.output, dict)
    program = torch.onnx.export(
        _torch_program(model, batch),
        dynamo=True,
        opset_version=opset,
        input_names=[model.input.name],
        output_names=list(model.output) if is_split else OUTPUTS[: len(model.outputs)],
        optimize=False,
        verbose=False,
    )
    optimizer.optimize(program.model, input_size_limit=LARGEST, output_size_limit=LARGEST)
    program.save(path)
    finish_onnx(path)


def finish_onnx(path) -> None:
    """Makes a file from torch's exporter run everywhere; drops traces of this machine."""
    import onnx

    model = onnx.load(path)
    graph = model.graph
    for place, node in reversed([*enumerate(graph.node)]):
        if node.op_type == "MaxPool":
            # ONNX Runtime 1.31 would join the pool with an earlier Pad, also across a Transpose,
            # and pad with the lowest number instead of zeros. A Max, which changes nothing, lies
            # between them.
            name = node.input[0]
            lowest = onnx.numpy_helper.from_array(np.array(-3e38, "float32"), f"{name}/lowest")
            graph.initializer.append(lowest)
            node.input[0] = f"{name}/kept"
            kept = onnx.helper.make_node("Max", [name, lowest.name], [node.input[0]])
            graph.node.insert(place, kept)
    for value in (*graph.input, *graph.output):
        for axis, name in zip(value.type.tensor_type.shape.dim, AXES):
            if not axis.dim_value:
                axis.dim_param = name
    for described in (graph, *graph.node, *graph.input, *graph.output):
        del described.metadata_props[:]
    del graph.value_info[:]  # names axes differently; runtimes infer it again
    onnx.save(model, path)


# The names that NumPy, and thus Keras, has for torch's operations.
SHORT = {"multiply": "mul", "subtract": "sub", "divide": "div", "absolute": "abs"}
SHORT |= {"concat": "cat", "concatenate": "cat", "clip": "clamp", "negative": "neg"}


def write_coreml(model, path, batch, precision="fp32"):
    """Writes an ML program for iOS 16 and later. It takes float32 pixels, 0 to 255 unless raw."""
    import coremltools as ct

    names = model.output if isinstance(model.output, dict) else ()
    package = ct.convert(
        coreml_program(model, batch),
        outputs=[ct.TensorType(name=name) for name in names] or None,
        compute_precision=ct.precision.FLOAT32 if precision == "fp32" else ct.precision.FLOAT16,
        minimum_deployment_target=ct.target.iOS16,
    )
    if precision == "int8":
        linear = ct.optimize.coreml.OpLinearQuantizerConfig(mode="linear_symmetric")
        config = ct.optimize.coreml.OptimizationConfig(global_config=linear)
        package = ct.optimize.coreml.linear_quantize_weights(package, config)
    package.save(path)


def coreml_program(model, batch):
    """Returns the model as a torch program with the operation names that Core ML knows."""
    import torch

    images = keras.Input(model.input_shape[1:], dtype="float32", name="images")  # not uint8
    same = {"input_tensors": images, "clone_function": lambda layer: layer}
    model = keras.models.clone_model(model, **same)
    program = _torch_program(model, batch).run_decompositions({})
    aten, graph = torch.ops.aten, program.graph_module.graph
    for node in list(graph.nodes):
        if node.target is aten.alias.default:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        elif isinstance(node.target, torch._ops.OpOverload):
            name, _, overload = node.target.name().removeprefix("aten::").partition(".")
            if name in SHORT:
                node.target = getattr(getattr(aten, SHORT[name]), overload or "default")
    program.graph_module.recompile()
    return program


ONNX = {"fp32": write_onnx, "int8": quantization.onnx_int8, "fp16": quantization.store_in_half}
ACCELERATED = {
    "int8-static": quantization.onnx_int8_static,
    "fp16-compute": quantization.compute_in_half,
}
_onnx = functools.partial(
    Target, packages=("torch", "onnxscript", "onnx", "onnxruntime"), extra="onnx"
)
TARGETS = {
    "savedmodel": Target(
        "saved_model{}",
        {"fp32": write_saved_model, "int8": write_saved_model_int8},
        attention=True,
        dynamic_size=True,
    ),
    "litert": Target(
        "model{}.tflite",
        {"fp32": write_litert, **quantization.LITERT},
        source="litert",
        default=("fp32", "int8"),
        packages=("tensorflow", "ai_edge_litert", "ai_edge_quantizer"),
        batch=1,
        attention=True,
    ),
    "onnx": _onnx(
        "model{}.onnx", ONNX | ACCELERATED, source="onnx", attention=True, dynamic_size=True
    ),
    TRANSFORMERS: _onnx(
        "onnx/model{}.onnx",
        {**ONNX, "int4": quantization.onnx_int4},
        source=TRANSFORMERS,
        default=("fp32", "fp16", "int8"),
        graph=serving.transformers_model,
        spellings={"int4": "q4"},  # transformers.js'
    ),
    "openvino": _onnx(
        "openvino{}/model.xml",
        {"fp32": write_openvino, "fp16": functools.partial(write_openvino, fp16=True)},
        source="onnx",
        packages=("torch", "onnxscript", "onnx", "openvino"),
        extra="openvino",
        dynamic_size=True,
    ),
    "pt2": Target("model{}.pt2", {"fp32": write_pt2}, packages=("torch",), extra="export,torch"),
    "executorch": Target(
        "model{}.pte",
        {"fp32": write_executorch},
        packages=("torch", "executorch"),
        extra="executorch",
        batch=1,
        dynamic_batch=False,
    ),
    "coreml": Target(
        "model{}.mlpackage",
        {x: functools.partial(write_coreml, precision=x) for x in ("fp32", "fp16", "int8")},
        default=("fp16",),
        packages=("torch", "coremltools"),
        extra="coreml",
        batch=1,
        dynamic_batch=False,
        is_readable=False,  # only macOS runs them
    ),
}

# What files may return beside their default, by the kind of label.
OTHER_OUTPUTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("classes", "labels"), ("logits", "features")),
    "numbers": ("features",),
    "masks": ("mask", "logits", "features"),
    "boxes": (),
}
# The options that a kind of label excludes: masks and boxes need the tokens of all patches.
IMPOSSIBLE = {"masks": ("token_merging",), "boxes": ("token_merging", "attention")}


@dataclasses.dataclass(frozen=True)
class Plan:
    """The files that `export` writes, and the graph that they contain.

    Attributes:
        formats: Names of rows of `TARGETS`.
        precisions: The precisions of each format; None for each format's default.
        output: "softmax" for classes and masks, "sigmoid" for labels, "values" for numbers, "mask"
            for the most likely class of each pixel, "boxes" with their scores, "logits", or
            "features", the input of the head.
        raw: Whether the graph takes preprocessed float32 images and returns logits.
        batch: Images per call; None for each format's default, which is usually any number.
        dynamic_batch: Whether every format takes any number of images.
        dynamic_size: Whether the files take images of any size, with interpolated positions.
        token_merging: Pairs of tokens that each block merges.
        merging_schedule: "constant" or "decreasing".
        opset: The opset of ONNX files, and of the files made from them; None for 20.
        attention: Whether the attention rollout `(B, h, w)` over the patches is a second output.

    Raises:
        ValueError: If a field has an invalid value, or a format does not support the plan.
        ImportError: If a format or precision needs a package that is not installed.
    """

    formats: Sequence[str] = ("savedmodel", "litert")
    precisions: Sequence[str] | None = None
    output: str = "softmax"
    raw: bool = False
    batch: int | None = None
    dynamic_batch: bool = False
    dynamic_size: bool = False
    token_merging: int = 0
    merging_schedule: str = "constant"
    opset: int | None = None
    attention: bool = False

    def __post_init__(self):
        check_rules(self, None, RULES)
        for format in self.formats:
            check_choice(format, TARGETS, "format")
            target = TARGETS[format]
            for precision in self.precisions or ():
                check_choice(precision, target.precisions, f"precision of {format}")
            for option in ("attention", "dynamic_size", "dynamic_batch"):
                if getattr(self, option) and not getattr(target, option):
                    able = [name for name, row in TARGETS.items() if getattr(row, option)]
                    raise ValueError(
                        f"`{option}` works only with {', '.join(able)}. Received: {format!r}"
                    )
            extras.check(*target.packages, extra=target.extra)

    @property
    def graph_output(self) -> str:
        """The output of the graph: `raw` turns probabilities into "logits"."""
        return "logits" if self.raw and self.output in serving.ACTIVATIONS else self.output


RULES: list[Rule] = [
    (
        ("formats", "output"),
        lambda names, output: (
            TRANSFORMERS not in names or (len({*names}) == 1 and output != "mask")
        ),
        f"{TRANSFORMERS} must be the only format, and `output` must be logits, boxes or features",
    ),
    ("batch", lambda images: is_int(images) and images > 0, "a positive int"),
    (("batch", "dynamic_batch"), *ONE_OF_TWO),
    (("dynamic_size", "attention"), *ONE_OF_TWO),
    (("dynamic_size", "token_merging"), *ONE_OF_TWO),
    (
        ("opset", "formats"),
        lambda opset, formats: opset is None or ("onnx" in formats and opset in OPSETS),
        f"an opset must be from {OPSETS[0]} to {OPSETS[-1]} and needs the format onnx",
    ),
]


def plan_for(
    model: keras.Model, *, output: str | None = None, raw: bool = False, **options
) -> Plan:
    """Makes the `Plan` of an export of `model`, whose task decides which options are allowed.

    Args:
        model: The model.
        output: As in `Plan`; None for the output of the model's task.
        raw: As in `Plan`; formats that take prepared images set it.
        **options: The other fields of `Plan`.

    Raises:
        ValueError, ImportError: As in `Plan`; and ValueError if the model does not support
            an option.
    """
    task = task_of(model)
    output, allowed = output or task.row.output, (task.row.output, *OTHER_OUTPUTS[task.kind])
    check_choice(output, allowed, f"output of a model of {task.kind}")
    raw = raw or TRANSFORMERS in options.get("formats", ())
    plan = Plan(output=output, raw=raw, **options)
    for option in IMPOSSIBLE.get(task.kind, ()):
        if value := getattr(plan, option):
            raise ValueError(
                f"Models of {task.kind} do not support `{option}`. Received: {option}={value!r}"
            )
    if plan.attention:
        serving.check_attention(model, plan.token_merging)
    if plan.dynamic_size:
        check_any_size(model)
    return plan
