"""Reads exported files: each format in its own runtime, behind one interface.

This module needs only NumPy and the runtimes.
"""

import dataclasses
import os
import pathlib
import zipfile
from collections.abc import Callable

import numpy as np

from vit_keras.support import extras
from vit_keras.support.box_metrics import scored_corners

SAVED_MODEL = "SavedModel"
NOTE = "task.json"  # a member of a TFLite file, or in `assets.extra` of a SavedModel
LARGEST_NOTE = 2**24  # bytes
NOTE_KEY = "vit_keras.task"  # among the metadata of an ONNX file
BOXES = ["scores", "boxes"]  # the outputs of a file of boxes, in the order of `joined`
DETR = ["logits", "pred_boxes"]  # those of transformers' files of boxes
SCALAR_TYPES = {0: "uint8", 6: "float32"}  # by PyTorch's numbers


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """An opened file: call it with images `(N, H, W, C)` to get outputs `(N, K)`.

    A file of boxes gives scores and corners, `(N, T, K + 4)`.

    Attributes:
        run: A function that does the same for exactly `batch` images.
        dtype: The type of the images, as NumPy names it.
        input_shape: (H, W, C); H and W are None in a file for images of any size.
        num_outputs: K; meaningless for a file that returns masks `(B, H, W)`.
        batch: The number of images that the file takes per call; None for any number.
        gives_boxes: Whether the outputs are boxes and their scores.
        note: What the file says about its outputs and pixels, as JSON; None if it says nothing.
    """

    run: Callable[[np.ndarray], np.ndarray]
    dtype: str
    input_shape: tuple[int | None, ...]
    num_outputs: int
    batch: int | None
    gives_boxes: bool = False
    note: str | None = None

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if self.batch is None:
            return self.run(images)
        batches = np.split(images, range(self.batch, len(images), self.batch))
        whole = lambda batch: np.resize(batch, (self.batch, *images.shape[1:]))
        return np.concatenate([self.run(whole(batch))[: len(batch)] for batch in batches])


def joined(answers, names=BOXES) -> np.ndarray:
    """Joins some of a file's outputs; by default scores and corners of boxes, `(B, T, K + 4)`."""
    return np.concatenate([np.asarray(answers[name]) for name in names], axis=-1)


def _exported_model(run, dtype, input_shape, shapes, note=None) -> ExportedModel:
    """Makes an `ExportedModel`.

    Args:
        run: A function of a batch that returns all outputs by name.
        dtype: The type of the images.
        input_shape: Their shape. An axis that may have any size is a name, None or -1.
        shapes: The shapes of the outputs, by name.
        note: What the file says about itself.
    """
    pairs = [names for names in (BOXES, DETR) if {*names} <= {*shapes}]
    # The output `(B, K)` or `(B, H, W, K)`; there may also be attention `(B, h, w)`. Masks
    # `(B, H, W)` are the only output of their file.
    answer = next((name for name in shapes if len(shapes[name]) in (2, 4)), next(iter(shapes)))
    names = pairs[0] if pairs else [answer]

    def run_joined(images):
        outputs = joined(run(images), names)
        if names == DETR:
            outputs = scored_corners(outputs)
            outputs[..., -4:] = outputs[..., -4:].clip(0, 1)
        return outputs

    fixed = lambda axis: int(axis) if isinstance(axis, (int, np.integer)) and axis > 0 else None
    batch, *sides = map(fixed, input_shape)
    count = (fixed(shapes[names[0]][-1]) or 0) - (names == DETR)  # their last class is "no object"
    return ExportedModel(run_joined, dtype, tuple(sides), count, batch, bool(pairs), note)


def _read_note(file) -> str:
    """Reads a note, which a hostile zip may compress a thousandfold, and closes its file."""
    with file:
        content = file.read(LARGEST_NOTE + 1)
    if len(content) > LARGEST_NOTE:
        raise ValueError(f"{NOTE} must have at most {LARGEST_NOTE:,} bytes")
    return content.decode()


def saved_model(path, threads=None) -> ExportedModel:
    """Opens a SavedModel in TensorFlow; `threads` has no effect."""
    tf = extras.require("tensorflow")
    loaded = tf.saved_model.load(os.fspath(path))
    serve = loaded.signatures["serving_default"]
    ((name, source),) = serve.structured_input_signature[1].items()
    shapes = {key: output.shape for key, output in serve.structured_outputs.items()}

    def run(images, loaded=loaded):  # a reference to `loaded` keeps its variables alive
        return serve(**{name: tf.constant(images)})

    file = pathlib.Path(path, "assets.extra", NOTE)
    note = _read_note(file.open("rb")) if file.is_file() else None
    return _exported_model(run, source.dtype.name, source.shape, shapes, note)


def litert(path, threads=None) -> ExportedModel:
    """Opens a TFLite file in LiteRT's interpreter with XNNPACK, the default on phones."""
    interpreter = litert_interpreter(path, threads)
    source = interpreter.get_input_details()[0]
    outputs = {detail["name"]: detail for detail in interpreter.get_output_details()}
    if interpreter.get_signature_list():  # it has the outputs' own names
        outputs = interpreter.get_signature_runner().get_output_details()

    def run(images):
        if len(images) != interpreter.get_input_details()[0]["shape"][0]:  # if any batch is allowed
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return {name: interpreter.get_tensor(outputs[name]["index"]) for name in outputs}

    shapes = {name: output["shape"] for name, output in outputs.items()}
    dtype, note = np.dtype(source["dtype"]).name, None
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            note = _read_note(archive.open(NOTE)) if NOTE in archive.namelist() else None
    return _exported_model(run, dtype, source["shape_signature"], shapes, note)


def litert_interpreter(path, threads=None):
    """Opens a TFLite file in LiteRT's interpreter, which passes the graph to XNNPACK."""
    runtime = extras.require("ai_edge_litert.interpreter")
    interpreter = runtime.Interpreter(os.fspath(path), num_threads=threads)
    interpreter.allocate_tensors()
    return interpreter


def onnx(path, threads=None) -> ExportedModel:
    """Opens an ONNX file in ONNX Runtime on the CPU.

    A file exported for transformers takes prepared images. Pass them as `(N, H, W, C)`, as for any
    other file.
    """
    onnxruntime = extras.require("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    source, outputs = session.get_inputs()[0], {o.name: o.shape for o in session.get_outputs()}
    dtype = source.type.removeprefix("tensor(").removesuffix(")")
    dtype = "float32" if dtype == "float" else dtype
    note = session.get_modelmeta().custom_metadata_map.get(NOTE_KEY)
    run = lambda images: dict(zip(outputs, session.run(None, {source.name: images})))
    if source.name != "pixel_values":
        return _exported_model(run, dtype, source.shape, outputs, note)

    def run_last(images):
        answers = run(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))
        return {n: x.transpose(0, 2, 3, 1) if x.ndim == 4 else x for n, x in answers.items()}

    last = lambda shape: [shape[0], *shape[2:], shape[1]] if len(shape) == 4 else shape
    shapes = {name: last(shape) for name, shape in outputs.items()}
    return _exported_model(run_last, dtype, last(source.shape), shapes, note)


def openvino(path, threads=None) -> ExportedModel:
    """Opens an OpenVINO file on the CPU, in float32; the runtime's default may be bfloat16."""
    core = extras.require("openvino").Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    model = core.compile_model(os.fspath(path), "CPU", options)
    sides = lambda port: [x.get_length() if x.is_static else None for x in port.partial_shape]

    source, shapes = model.input(0), {o.get_any_name(): sides(o) for o in model.outputs}
    return _exported_model(model, source.element_type.to_dtype().name, sides(source), shapes)


def pt2(path, threads=None) -> ExportedModel:
    """Opens an exported PyTorch program."""
    torch = extras.require("torch")
    if threads:
        torch.set_num_threads(threads)
    program = torch.export.load(os.fspath(path))
    module, graph = program.module(), program.graph_module.graph
    source = graph.find_nodes(op="placeholder")[-1].meta["val"]
    shapes = _named([output.meta["val"].shape for output in graph.output_node().args[0]])

    def run(images):
        with torch.no_grad():
            answers = module(torch.tensor(images))
        return answers if isinstance(answers, dict) else _named([answers])

    return _exported_model(run, str(source.dtype).removeprefix("torch."), source.shape, shapes)


def executorch(path, threads=None) -> ExportedModel:
    """Opens an ExecuTorch program; `threads` has no effect, since the runtime uses all cores."""
    torch = extras.require("torch")
    program = extras.require("executorch.runtime").Runtime.get().load_program(os.fspath(path))
    method = program.load_method("forward")
    described, source = method.metadata, method.metadata.input_tensor_meta(0)

    def run(images, program=program):  # a reference to `program` keeps its weights alive
        return _named([array.numpy().copy() for array in method.execute([torch.tensor(images)])])

    outputs = map(described.output_tensor_meta, range(described.num_outputs()))
    shapes = _named([output.sizes() for output in outputs])
    return _exported_model(run, SCALAR_TYPES[source.dtype()], source.sizes(), shapes)


def _named(outputs) -> dict:
    """Names the outputs of a torch program, in which boxes come before scores."""
    return dict(zip(sorted(BOXES) if len(outputs) > 1 else ["output"], outputs))


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
