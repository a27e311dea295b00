"""Reads exported files: each format in its own runtime, behind one interface.

This module needs only NumPy and the runtimes. As a program,

    python -P runtimes/__init__.py THREADS IMAGES.npy FILE ...

prints, as JSON, the milliseconds that each file takes for one call.
"""

import dataclasses
import importlib
import json
import os
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np

SAVED_MODEL = "SavedModel"
BOXES = ("scores", "boxes")  # the outputs of a file of boxes, in the order of `scores_and_corners`
DETR = ("logits", "pred_boxes")  # those of transformers' files of boxes
WARM_UP_CALLS = 2
SCALAR_TYPES = {0: "uint8", 6: "float32"}  # by PyTorch's numbers


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """An opened file: call it with images `(N, H, W, C)` to get outputs `(N, K)`.

    A file of boxes gives `scores_and_corners`, `(N, T, K + 4)`.

    Attributes:
        run: A function that does the same for exactly `batch` images.
        dtype: The type of the images, as NumPy names it.
        input_shape: (H, W, C); H and W are None in a file for images of any size.
        num_outputs: K; meaningless for a file that returns masks `(B, H, W)`.
        batch: The number of images that the file takes per call; None for any number.
        gives_boxes: Whether the outputs are boxes and their scores.
    """

    run: Callable[[np.ndarray], np.ndarray]
    dtype: str
    input_shape: tuple[int | None, ...]
    num_outputs: int
    batch: int | None
    gives_boxes: bool = False

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if self.batch is None:
            return self.run(images)
        outputs = []
        for start in range(0, len(images), self.batch):
            batch = images[start : start + self.batch]
            padded = np.zeros((self.batch, *images.shape[1:]), images.dtype)
            padded[: len(batch)] = batch
            outputs.append(np.array(self.run(padded))[: len(batch)])
        return np.concatenate(outputs)


def scores_and_corners(answers) -> np.ndarray:
    """Joins the outputs "scores" `(B, T, K)` and "boxes" `(B, T, 4)` to `(B, T, K + 4)`."""
    return np.concatenate([np.asarray(answers[name]) for name in BOXES], axis=-1)


def _exported_model(run, dtype, input_shape, num_outputs, gives_boxes=False):
    """Makes an `ExportedModel`; an axis that may have any size is a name, None or -1."""
    is_fixed = lambda axis: isinstance(axis, (int, np.integer)) and axis > 0
    batch, *sides = (int(axis) if is_fixed(axis) else None for axis in input_shape)
    outputs = int(num_outputs) if is_fixed(num_outputs) else 0
    return ExportedModel(run, dtype, tuple(sides), outputs, batch, gives_boxes)


def _to_read(shapes) -> list[str]:
    """The names of the outputs to read, given all shapes by name: `BOXES`, or the answer's."""
    for names in (BOXES, DETR):
        if {*names} <= {*shapes}:
            return [*names]
    return [[*shapes][_place_of_answer(shapes.values())]]


def _named(run, dtype, input_shape, shapes) -> ExportedModel:
    """Makes an `ExportedModel` from a function of images and the names of outputs to return."""
    names = _to_read(shapes)

    def run_joined(images):
        arrays = run(images, names)
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=-1)

    return _exported_model(run_joined, dtype, input_shape, shapes[names[0]][-1], len(names) > 1)


def _place_of_answer(shapes) -> int:
    """The index of the output `(B, K)` or `(B, H, W, K)`; there may also be attention `(B, h, w)`.

    Masks `(B, H, W)` are the only output of their file.
    """
    return next((place for place, shape in enumerate(shapes) if len(shape) in (2, 4)), 0)


def _require(module, extra, path):
    """Imports a runtime; only the error for a missing one needs `vit_keras`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        from vit_keras.support import extras

        return extras.require(module, extra=extra, purpose=f"Reading {os.fspath(path)!r}")


def saved_model(path, threads=None) -> ExportedModel:
    """Opens a SavedModel in TensorFlow, without Keras. The number of threads is process-wide."""
    tf = _require("tensorflow", "tensorflow", path)
    loaded = tf.saved_model.load(os.fspath(path))
    serve = loaded.signatures["serving_default"]
    ((name, source),) = serve.structured_input_signature[1].items()
    shapes = {key: output.shape for key, output in serve.structured_outputs.items()}

    def run(images, keys, loaded=loaded):  # a reference to `loaded` keeps its variables alive
        answers = serve(**{name: tf.constant(images)})
        return [answers[key].numpy() for key in keys]

    return _named(run, source.dtype.name, source.shape, shapes)


def litert(path, threads=None) -> ExportedModel:
    """Opens a TFLite file in LiteRT's interpreter with XNNPACK, the default on phones."""
    interpreter = litert_interpreter(path, threads)
    source, outputs = interpreter.get_input_details()[0], _litert_outputs(interpreter)

    def run(images, names):
        if len(images) != interpreter.get_input_details()[0]["shape"][0]:  # if any batch is allowed
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return [interpreter.get_tensor(outputs[name]["index"]) for name in names]

    shapes = {name: output["shape"] for name, output in outputs.items()}
    return _named(run, np.dtype(source["dtype"]).name, source["shape_signature"], shapes)


def _litert_outputs(interpreter):
    """The details of the outputs by their names in the file's signature, if it has one."""
    if interpreter.get_signature_list():
        return interpreter.get_signature_runner().get_output_details()
    return {detail["name"]: detail for detail in interpreter.get_output_details()}


def litert_interpreter(path, threads=None, allocate=True):
    """Opens a TFLite file in LiteRT's interpreter.

    Allocation passes the graph to XNNPACK. Without it, the graph stays as in the file.
    """
    runtime = _require("ai_edge_litert.interpreter", "runtimes", path)
    interpreter = runtime.Interpreter(os.fspath(path), num_threads=threads)
    if allocate:
        interpreter.allocate_tensors()
    return interpreter


def delegate_partitions(path) -> int:
    """The number of subgraphs of a TFLite file that XNNPACK runs: 1 if nothing interrupts it."""
    names = [op["op_name"] for op in litert_interpreter(path)._get_ops_details()]
    return names.count("DELEGATE")


def onnx(path, threads=None) -> ExportedModel:
    """Opens an ONNX file in ONNX Runtime on the CPU.

    A file for transformers takes prepared images `(N, H, W, C)` here, as others do.
    """
    onnxruntime = _require("onnxruntime", "runtimes", path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"]
    )
    source, outputs = session.get_inputs()[0], {o.name: o.shape for o in session.get_outputs()}
    dtype = source.type.removeprefix("tensor(").removesuffix(")")
    dtype = "float32" if dtype == "float" else dtype
    run = lambda images, names: session.run(names, {source.name: images})
    model = _named(run, dtype, source.shape, outputs)
    if source.name != "pixel_values":
        return model
    shape = [source.shape[place] for place in (0, 2, 3, 1)]
    answer = outputs[_to_read(outputs)[0]]
    count = answer[-1] - 1 if model.gives_boxes else answer[1]
    return _exported_model(_channels_last(model.run), dtype, shape, count, model.gives_boxes)


def _channels_last(run):
    """Turns the function of a file for transformers into one of images `(N, H, W, C)`."""
    from vit_keras.support.box_metrics import scored_corners

    def run_last(images):
        answers = run(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        if answers.ndim != 3:
            return answers.transpose(0, 2, 3, 1) if answers.ndim == 4 else answers
        scored = scored_corners(answers)
        scored[..., -4:] = scored[..., -4:].clip(0, 1)
        return scored

    return run_last


def openvino(path, threads=None) -> ExportedModel:
    """Opens an OpenVINO file on the CPU, in float32: its default may be the less exact bfloat16."""
    core = _require("openvino", "openvino", path).Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    model = core.compile_model(os.fspath(path), "CPU", options)
    sides = lambda port: [x.get_length() if x.is_static else None for x in port.partial_shape]

    def run(images, names):
        answers = model(images)
        return [answers[name] for name in names]

    source, shapes = model.input(0), {o.get_any_name(): sides(o) for o in model.outputs}
    return _named(run, np.dtype(source.element_type.to_dtype()).name, sides(source), shapes)


def pt2(path, threads=None) -> ExportedModel:
    """Opens an exported PyTorch program."""
    torch = _require("torch", "torch", path)
    if threads:
        torch.set_num_threads(threads)
    program = torch.export.load(os.fspath(path))
    module, graph = program.module(), program.graph_module.graph
    source = graph.find_nodes(op="placeholder")[-1].meta["val"]
    outputs = graph.output_node().args[0]  # boxes come before scores
    target, gives_boxes = outputs[-1].meta["val"], len(outputs) > 1

    def run(images):
        with torch.no_grad():
            answers = module(torch.tensor(images))
        return scores_and_corners(answers) if gives_boxes else answers.numpy()

    dtype = str(source.dtype).removeprefix("torch.")
    return _exported_model(run, dtype, source.shape, target.shape[-1], gives_boxes)


def executorch(path, threads=None) -> ExportedModel:
    """Opens an ExecuTorch program; `threads` is ignored, since the runtime uses all cores."""
    torch = _require("torch", "executorch", path)
    runtime = _require("executorch.runtime", "executorch", path).Runtime.get()
    program = runtime.load_program(os.fspath(path))
    method = program.load_method("forward")
    described = method.metadata
    source, count = described.input_tensor_meta(0), described.num_outputs()
    target = described.output_tensor_meta(count - 1)

    def run(images, program=program):  # a reference to `program` keeps its weights alive
        arrays = [array.numpy().copy() for array in method.execute([torch.tensor(images)])]
        return arrays[0] if count == 1 else np.concatenate(arrays[::-1], axis=-1)  # boxes first

    dtype = SCALAR_TYPES[source.dtype()]
    return _exported_model(run, dtype, source.sizes(), target.sizes()[-1], count > 1)


RUNTIMES = {
    SAVED_MODEL: saved_model,
    ".tflite": litert,
    ".onnx": onnx,
    ".xml": openvino,
    ".pt2": pt2,
    ".pte": executorch,
}


def format_of(path: str | os.PathLike) -> str | None:
    """The key of `RUNTIMES` for the file at `path`; None if it is not an exported file."""
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return SAVED_MODEL
    return path.suffix if path.suffix in RUNTIMES and path.is_file() else None


def open(path: str | os.PathLike, threads: int | None = None) -> ExportedModel:
    """Opens an exported file in its runtime.

    Args:
        path: A `.tflite`, `.onnx`, `.xml` (OpenVINO), `.pt2` or `.pte` (ExecuTorch) file, or a
            SavedModel folder.
        threads: The number of threads; None for the runtime's default.

    Returns:
        An `ExportedModel`, a function of images.

    Raises:
        ValueError: If `path` is not such a file, or is damaged.
        ImportError: If the runtime is not installed.

    Example:
        ```python
        model = runtimes.open("files/model_int8.tflite")
        probabilities = model(images)  # (N, H, W, C) uint8 -> (N, K)
        ```
    """
    key = format_of(path)
    if key is None:
        suffixes = ", ".join(suffix for suffix in RUNTIMES if suffix != SAVED_MODEL)
        raise ValueError(
            f"An exported file must be an existing {suffixes} file or the folder of a SavedModel. "
            f"Received: {os.fspath(path)!r}"
        )
    try:
        return RUNTIMES[key](path, threads)
    except ImportError:
        raise
    except Exception as error:  # each runtime has its own error class
        raise ValueError(
            f"{os.fspath(path)!r} cannot be opened: it is damaged, or not an exported model "
            f"({' '.join(str(error).split())})"
        ) from error


def milliseconds(run, images: np.ndarray, rounds: int = 20) -> float:
    """The median time of `run(images)` over `rounds` calls, after two warm-up calls."""
    times = []
    for _ in range(rounds + WARM_UP_CALLS):
        start = time.perf_counter()
        run(images)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[WARM_UP_CALLS:]))


def main(threads: str, images_file: str, *paths: str) -> None:
    images = np.load(images_file, allow_pickle=False)
    print(json.dumps({p: milliseconds(open(p, int(threads)), images) for p in paths}))


if __name__ == "__main__":
    main(*sys.argv[1:])
