"""ExportedModel files in the runtimes that are to run them; needs NumPy and those runtimes alone.

As a program, `python runtimes.py THREADS IMAGES.npy FILE ...`, it prints the milliseconds that each
file takes for one batch, in a process whose runtimes have only so many threads.
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


@dataclasses.dataclass(frozen=True)
class ExportedModel:
    """An exported file, opened; called with images `(N, H, W, C)` it gives outputs `(N, K)`.

    Attributes:
        run: the same for `batch` images.
        dtype: of the images, as NumPy calls it.
        input_shape: (H, W, C).
        num_outputs: K.
        batch: images that it takes at a time; None for any number.
    """

    run: Callable[[np.ndarray], np.ndarray]
    dtype: str
    input_shape: tuple[int, ...]
    num_outputs: int
    batch: int | None

    def __call__(self, images: np.ndarray) -> np.ndarray:
        if self.batch is None:
            return self.run(images)
        found = []
        for start in range(0, len(images), self.batch):
            part = images[start : start + self.batch]
            filled = np.zeros((self.batch, *images.shape[1:]), images.dtype)  # the last one's rest
            filled[: len(part)] = part
            found.append(np.array(self.run(filled))[: len(part)])
        return np.concatenate(found)


def _exported(run, dtype, input_shape, num_outputs):
    """`input_shape` `(B, H, W, C)` as a runtime gives it: any batch has a name, None or -1."""
    batch, *sides = input_shape
    fixed = isinstance(batch, (int, np.integer)) and batch > 0
    sides = tuple(int(side) for side in sides)
    return ExportedModel(run, dtype, sides, int(num_outputs), int(batch) if fixed else None)


def _answer(shapes) -> int:
    """Which of the outputs is the model's, `(B, K)`; attention `(B, h, w)` may be another."""
    return next(place for place, shape in enumerate(shapes) if len(shape) == 2)


def _runtime(module, package, path):
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{os.fspath(path)!r} runs in {package}, which is not installed: pip install {package}"
        ) from error


def saved_model(path, threads=None) -> ExportedModel:
    """TensorFlow, without Keras; its threads are the process's."""
    tf = _runtime("tensorflow", "tensorflow", path)
    loaded = tf.saved_model.load(os.fspath(path))
    serve = loaded.signatures["serving_default"]
    ((name, source),) = serve.structured_input_signature[1].items()
    outputs = serve.structured_outputs
    key = list(outputs)[_answer([output.shape for output in outputs.values()])]

    def run(images, kept=loaded):  # what is not kept loses its variables
        return serve(**{name: tf.constant(images)})[key].numpy()

    return _exported(run, source.dtype.name, source.shape, outputs[key].shape[-1])


def litert(path, threads=None) -> ExportedModel:
    """LiteRT's interpreter with XNNPACK, its default on phones."""
    interpreter = litert_interpreter(path, threads)
    source, targets = interpreter.get_input_details()[0], interpreter.get_output_details()
    target = targets[_answer([target["shape"] for target in targets])]

    def run(images):
        if len(images) != interpreter.get_input_details()[0]["shape"][0]:  # where any goes through
            interpreter.resize_tensor_input(source["index"], images.shape)
            interpreter.allocate_tensors()
        interpreter.set_tensor(source["index"], images)
        interpreter.invoke()
        return interpreter.get_tensor(target["index"])

    dtype = np.dtype(source["dtype"]).name
    return _exported(run, dtype, source["shape_signature"], target["shape"][-1])


def litert_interpreter(path, threads=None, ready=True):
    """A TFLite file; where it is not to be made `ready`, its graph is as it was written."""
    runtime = _runtime("ai_edge_litert.interpreter", "ai-edge-litert", path)
    interpreter = runtime.Interpreter(os.fspath(path), num_threads=threads)
    if ready:
        interpreter.allocate_tensors()
    return interpreter


def delegate_partitions(path) -> int:
    """Parts that XNNPACK takes of a TFLite file's graph: 1 where nothing interrupts it."""
    names = [op["op_name"] for op in litert_interpreter(path)._get_ops_details()]
    return names.count("DELEGATE")


def onnx(path, threads=None) -> ExportedModel:
    """ONNX Runtime on the CPU."""
    onnxruntime = _runtime("onnxruntime", "onnxruntime", path)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(
        os.fspath(path), options, providers=["CPUExecutionProvider"]
    )
    source, targets = session.get_inputs()[0], session.get_outputs()
    target = targets[_answer([target.shape for target in targets])]
    run = lambda images: session.run([target.name], {source.name: images})[0]
    kind = source.type.removeprefix("tensor(").removesuffix(")")
    dtype = "float32" if kind == "float" else kind
    return _exported(run, dtype, source.shape, target.shape[-1])


def openvino(path, threads=None) -> ExportedModel:
    """OpenVINO on the CPU, in float32: its own choice can be bfloat16, far less exact."""
    core = _runtime("openvino", "openvino", path).Core()
    options = {"INFERENCE_PRECISION_HINT": "f32"}
    if threads:
        options["INFERENCE_NUM_THREADS"] = threads
    model = core.compile_model(os.fspath(path), "CPU", options)
    run = lambda images: model(images)[0]
    source, target = model.input(0), model.output(0).partial_shape
    shape = [side.get_length() if side.is_static else None for side in source.partial_shape]
    dtype = np.dtype(source.element_type.to_dtype()).name
    return _exported(run, dtype, shape, target[len(target) - 1].get_length())


def pt2(path, threads=None) -> ExportedModel:
    """PyTorch's exported program."""
    torch = _runtime("torch", "torch", path)
    if threads:
        torch.set_num_threads(threads)
    program = torch.export.load(os.fspath(path))
    module, graph = program.module(), program.graph_module.graph
    source = graph.find_nodes(op="placeholder")[-1].meta["val"]
    target = graph.output_node().args[0][-1].meta["val"]

    def run(images):
        with torch.no_grad():
            return module(torch.tensor(images)).numpy()

    dtype = str(source.dtype).removeprefix("torch.")
    return _exported(run, dtype, source.shape, target.shape[-1])


RUNTIMES = {
    SAVED_MODEL: saved_model,
    ".tflite": litert,
    ".onnx": onnx,
    ".xml": openvino,
    ".pt2": pt2,
}


def format_of(path: str | os.PathLike) -> str | None:
    """Which of `RUNTIMES` runs what lies at `path`; None for anything but an exported file."""
    path = pathlib.Path(path)
    if (path / "saved_model.pb").is_file():
        return SAVED_MODEL
    return path.suffix if path.suffix in RUNTIMES and path.is_file() else None


def open_file(path: str | os.PathLike, threads: int | None = None) -> ExportedModel:
    """A `.tflite`, `.onnx`, `.xml` (OpenVINO) or `.pt2` file or a SavedModel's folder, opened.

    It runs on `threads` threads or as many as its runtime likes. ValueError for any other file;
    ImportError with the pip command where the runtime is not installed.
    """
    kind = format_of(path)
    if kind is None:
        known = ", ".join(suffix for suffix in RUNTIMES if suffix != SAVED_MODEL)
        raise ValueError(
            f"ExportedModel files that can be run here are {known} and the folder of a SavedModel. "
            f"Received: {os.fspath(path)!r}"
        )
    return RUNTIMES[kind](path, threads)


def milliseconds(run, images: np.ndarray, rounds: int = 20) -> float:
    """The median time of `run(images)`."""
    times = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        run(images)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[2:]))


def main(threads: str, images_file: str, *paths: str) -> None:
    images = np.load(images_file, allow_pickle=False)
    found = {path: milliseconds(open_file(path, int(threads)), images) for path in paths}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
