"""Parity of exported files: backends × formats × precisions × models, as a table.

    python -m benchmarks.export_matrix RUN [BACKEND ...]   # a trained run of configs/digits.yaml

The run's own model, which reads a class token and learned positions, answers the digits' test
split, and so do small models of random weights whose head is fitted to the training split by least
squares: real images, real classes. Each backend is a process; every file is run in its own runtime.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile

BACKENDS = ("tensorflow", "jax", "torch")
PLAN = {"formats": ["savedmodel", "litert", "onnx"], "precisions": ["fp32", "int8"]}
HALF = {"formats": ["litert", "onnx"], "precisions": ["fp16"]}  # of the run alone
SMALL = {"hidden_size": 48, "num_layers": 3, "num_heads": 3, "mlp_dim": 96, "num_classes": 10}
MODELS = {
    "map head": {"classifier": "map"},
    "hybrid": {"resnet_layers": (1, 1), "resnet_width": 0.5},
    "none": {"position_embedding": "none"},
    "learned_2d": {"position_embedding": "learned_2d"},
    "relative": {"position_embedding": "relative"},
    "sincos2d": {"position_embedding": "sincos2d"},
    "rope2d": {"position_embedding": "rope2d"},
}


def fitted(arguments, digits):
    """A model of random weights and a head that knows the digits, and its test images."""
    import keras
    import numpy as np

    from vit_keras.models import HybridViT, VisionTransformer, preprocessing_of

    hybrid = "resnet_layers" in arguments
    build, patch = (HybridViT, 1) if hybrid else (VisionTransformer, 8)
    size = {"image_size": 64 if hybrid else 32, "patch_size": patch, "channels": 1}
    model = build(**size, **SMALL, **arguments)
    rng = np.random.default_rng(0)
    for weight in model.weights:
        center = 1.0 if weight.path.endswith("gamma") else 0.0
        weight.assign(center + 0.15 * rng.normal(size=weight.shape))
    shape, how = model.input_shape[1:], preprocessing_of(model)
    images, labels = digits(shape, how, train=True)
    headless = keras.Model(model.input, model.get_layer("head").input)
    x = headless.predict(how.normalise(images), verbose=0)
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    ridge = x.T @ x + 1e-2 * np.eye(x.shape[1])
    solved = np.linalg.solve(ridge, x.T @ (8 * np.eye(10)[labels]))
    model.get_layer("head").set_weights([solved[:-1], solved[-1]])
    return model, digits(shape, how)


def measure(run):
    """Prints a JSON line for each file, on this process's backend."""
    from vit_keras import models, runs
    from vit_keras.config import DataConfig
    from vit_keras.exporting import samples

    digits = functools.partial(samples.labelled, "digits", count=2000, config=DataConfig())
    own, _ = runs.open_source(run)
    tested = digits(own.input_shape[1:], models.preprocessing_of(own))
    for name in ("trained run", *MODELS):
        fit = (own, tested) if name == "trained run" else fitted(MODELS[name], digits)
        for plan in (PLAN, HALF) if name == "trained run" else (PLAN,):
            _measure(name, *fit, plan)


def _measure(name, model, tested, plan):
    from vit_keras.exporting import export

    given = dict(zip(("images", "labels"), tested))
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = export(model, f"{folder}/out", **given, **plan, threads=())
        except (RuntimeError, ValueError) as error:
            print(json.dumps({"model": name, "error": str(error)[-2000:]}), flush=True)
            return
    for row in rows:
        print(json.dumps({"model": name, **row}), flush=True)


def main(run, *backends):
    print("| backend | model | format | precision | largest difference | same class | accuracy |")
    print("|---|---|---|---|--:|--:|--:|")
    failed = 0
    for backend in backends or BACKENDS:
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, "-m", "benchmarks.export_matrix", run, "--measure"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        for line in filter(lambda line: line.startswith("{"), process.stdout):
            row = json.loads(line)
            if "error" in row:
                failed += 1
                print(f"{backend}, {row['model']}: {row['error']}", file=sys.stderr, flush=True)
                continue
            print(
                f"| {backend} | {row['model']} | {row['format']} | {row['precision']} | "
                f"{row['largest_difference']:.1e} | {row['agreement']:.2%} | "
                f"{row['accuracy']:.2%} |",
                flush=True,
            )
        failed += process.wait() != 0
    if failed:
        sys.exit(f"{failed} failed")


if __name__ == "__main__":
    if "--measure" in sys.argv:
        measure(sys.argv[1])
    else:
        main(*sys.argv[1:])
