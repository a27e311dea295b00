"""Measures a variant's ONNX files of each precision in ONNX Runtime: nodes, bytes and CPU time.

    python -m benchmarks.onnx_graphs Ti/16                # with KERAS_BACKEND=torch

`nodes` is the number in the file, and then the number after ONNX Runtime has fused what it can for
this processor. `Attention` counts operations that hold the whole attention of a block. The files
take turns on one thread. `x` is the time of the first file divided by a file's: the median over the
turns, with quartiles. Weights are random, and static files see random pixels, since neither changes
the time.
"""

import argparse
import collections
import os
import tempfile

import numpy as np
import onnx
import onnxruntime

from benchmarks.turns import cpu_ms, quartiles, take_turns

FILES = (  # precision and opset
    ("fp32", 20),
    ("fp32", 23),
    ("int8", 20),
    ("int8-static", 20),
    ("fp16", 20),
    ("fp16-compute", 20),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variant")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()

    from vit_keras import models
    from vit_keras.exporting import for_inference
    from vit_keras.exporting.serving import serving_model
    from vit_keras.exporting.targets import TARGETS

    model = models.from_variant(options.variant, image_size=224, num_classes=1000)
    model = serving_model(for_inference(model))
    images = np.random.default_rng(0).integers(0, 256, (8, *model.input_shape[1:]), dtype="uint8")
    rows, runs, writers = {}, {}, TARGETS["onnx"].precisions
    with tempfile.TemporaryDirectory() as folder:
        for precision, opset in FILES:
            name = f"{precision}, opset {opset}"
            source, path = f"{folder}/{opset}.onnx", f"{folder}/{precision}_{opset}.onnx"
            if precision == "fp32":
                writers["fp32"](model, source, None, opset)
                path = source
            else:
                writers[precision](source, path, (), images)
            session, fused = open_session(path, f"{folder}/fused.onnx")
            runs[name] = cpu_ms(lambda session=session: session.run(None, {"images": images[:1]}))
            rows[name] = [operations(path), fused, os.path.getsize(path)]
        times = take_turns(runs, options.rounds)
    first = next(iter(times.values()))
    print("| file | nodes | fused | Attention | MB | ms | x |\n|---|--:|--:|--:|--:|--:|--:|")
    for name, (nodes, fused, size) in rows.items():
        counts = f"{nodes.total()} | {fused.total()} | {fused['Attention']}"
        speed = f"{np.median(times[name]):.1f} | {quartiles(first / times[name])}"
        print(f"| {name} | {counts} | {size / 1e6:.1f} | {speed} |")


def open_session(path, fused):
    """Opens a file on one thread; returns the session, and its operations after all fusions."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 3
    settings.optimized_model_filepath = fused
    session = onnxruntime.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    return session, operations(fused)


def operations(path) -> collections.Counter:
    """Counts the operations of a file by type."""
    return collections.Counter(node.op_type for node in onnx.load(path).graph.node)


if __name__ == "__main__":
    main()
