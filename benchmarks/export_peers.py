"""Compares the latency of our exported files with files that other libraries export themselves.

    python -m benchmarks.export_peers Ti                # or S, or B
    python -m benchmarks.export_peers Ti --write timm-litert FILE

Every exporter runs in a process of its own, and the same quantizer makes an int8 file from each
fp32 file. The files then take turns at one image, on one thread. `x` is how many times as fast as
ours a file is, by CPU time. Weights are initial values. A library that is not installed is skipped
with a message.
"""

import argparse
import contextlib
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from benchmarks.cases import CLASSES, IMAGE, PATCH, SIZES, Case
from benchmarks.contenders import environment
from benchmarks.turns import print_cpu_times

ROOT = pathlib.Path(__file__).parents[1]


def ours(size, path):
    from vit_keras.exporting import for_inference, targets
    from vit_keras.models import VisionTransformer

    model = for_inference(VisionTransformer(IMAGE, PATCH, *SIZES[size], CLASSES))
    write = {".tflite": (targets.write_litert, 1), ".onnx": (targets.write_onnx, None)}
    function, batch = write[pathlib.Path(path).suffix]
    function(model, path, batch)


def keras_hub(size, path, fixed_batch=False):
    import keras

    from benchmarks.keras_models import keras_hub_model

    model = keras_hub_model(Case(size, "infer", "fp32", 1))
    model(np.zeros((1, *model.input_shape[1:]), "float32"))
    shape = keras.InputSpec(shape=(1, *model.input_shape[1:]), dtype="float32", name="images")
    signature = {"input_signature": [shape]} if fixed_batch else {}
    kind = {".tflite": "litert", ".onnx": "onnx"}[pathlib.Path(path).suffix]
    model.export(path, format=kind, verbose=False, **signature)


def keras_hub_fixed(size, path):
    keras_hub(size, path, fixed_batch=True)


def timm(size, path):
    import torch

    from benchmarks.peers import timm_model

    model = timm_model(Case(size, "infer", "fp32", 1)).eval()
    if path.endswith(".onnx"):
        from timm.utils.onnx import onnx_export

        return onnx_export(model, path, batch_size=1, input_size=(3, IMAGE, IMAGE))
    import litert_torch

    return litert_torch.convert(model, (torch.zeros(1, 3, IMAGE, IMAGE),)).export(path)


WRITERS = {  # the file, the function, and the contender whose environment its process has
    "ours-litert": ("ours.tflite", ours, "ours-tensorflow"),
    "timm-litert": ("timm.tflite", timm, "timm"),
    "keras_hub-litert": ("keras_hub.tflite", keras_hub, "keras_hub-tensorflow"),
    "keras_hub-litert, batch 1": ("keras_hub_1.tflite", keras_hub_fixed, "keras_hub-tensorflow"),
    "ours-onnx": ("ours.onnx", ours, "ours-torch"),
    "timm-onnx": ("timm.onnx", timm, "timm"),
    "keras_hub-onnx": ("keras_hub.onnx", keras_hub, "keras_hub-tensorflow"),
}


def write_apart(name, size, folder):
    """Runs a writer in a process of its own; returns its file, or prints a message."""
    file, _, contender = WRITERS[name]
    path = folder / file
    command = [sys.executable, "-m", "benchmarks.export_peers", size, "--write", name, str(path)]
    run = subprocess.run(
        command, env=environment(contender), cwd=ROOT, capture_output=True, text=True
    )
    if run.returncode == 0 and path.exists():
        return path
    reason = run.stderr.strip().splitlines()[-1:] or ["no file"]
    print(f"{name}: skipped, its exporter ended with {reason[0][:200]}", flush=True)
    return None


def runner(name, path):
    """Returns a function that classifies one image on one thread, or prints a message."""
    from vit_keras import runtimes

    try:
        run = runtimes.open(path, threads=1)
        image = np.random.default_rng(0).normal(size=(1, *run.input_shape)).astype("float32")
        run(image)
    except Exception as error:  # every runtime raises classes of its own
        print(f"{name}: skipped, its runtime says {str(error).splitlines()[0][:200]}", flush=True)
        return None
    return lambda: run(image)


def compare(size, rounds):
    from vit_keras.exporting import quantization

    quantizers = {".tflite": quantization.LITERT["int8"], ".onnx": quantization.onnx_int8}
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: write_apart(name, size, pathlib.Path(folder)) for name in WRITERS}
        for suffix, quantize_file in quantizers.items():
            fp32 = {n: p for n, p in paths.items() if p and p.suffix == suffix}
            int8 = {n: p.with_stem(f"{p.stem}_int8") for n, p in fp32.items()}
            for name, path in fp32.items():
                quantize_file(path, int8[name])
            for precision, files in (("fp32", fp32), ("int8", int8)):
                runs = {n: runner(n, p) for n, p in files.items()}
                labels = {
                    n: f"{n}, {precision}, {p.stat().st_size / 1e6:.2f} MB"
                    for n, p in files.items()
                }
                print_cpu_times({labels[n]: run for n, run in runs.items() if run}, rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--write", nargs=2, metavar=("NAME", "FILE"), help="run one exporter and time nothing"
    )
    options = parser.parse_args()
    if options.write is None:
        return compare(options.size, options.rounds)
    name, path = options.write
    with contextlib.redirect_stdout(sys.stderr):
        WRITERS[name][1](options.size, path)
    return None


if __name__ == "__main__":
    main()
