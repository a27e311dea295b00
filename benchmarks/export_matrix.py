"""Compares exported files with Keras: backends × models × formats × precisions, as a table.

    python -m benchmarks.export_matrix FOLDER [BACKEND ...]

Small models of every kind train on scikit-learn's digits for a minute each and stay in FOLDER. Each
backend, in a process of its own, opens and exports them. Every file then classifies the 360 test
images in its own runtime, and the table compares its answers with those of Keras on that backend.
"""

import argparse
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BACKENDS = ("tensorflow", "jax", "torch")
PLAN = {"formats": ["savedmodel", "litert", "onnx"], "precisions": ["fp32", "int8"]}
HALF = {"formats": ["litert", "onnx"], "precisions": ["fp16"]}  # for the first model alone
SMALL = {"hidden_size": 48, "num_layers": 3, "num_heads": 3, "mlp_dim": 96, "num_classes": 10}
MODELS = {
    "token": {},
    "map head": {"classifier": "map"},
    "hybrid": {"resnet_layers": (1, 1), "resnet_width": 0.5},
    "none": {"position_embedding": "none"},
    "learned_2d": {"position_embedding": "learned_2d"},
    "relative": {"position_embedding": "relative"},
    "sincos2d": {"position_embedding": "sincos2d"},
    "rope2d": {"position_embedding": "rope2d"},
}


def digits(model, train=False):
    """Images `(N, H, W, 1)` uint8 of the size that `model` takes, and their labels."""
    from vit_keras.config import DataConfig
    from vit_keras.exporting import verification

    return verification.from_dataset("digits", model, 2000, DataConfig(), train)


def teach(folder):
    """Trains each of `MODELS` that `folder` does not hold yet, for a few hundred steps."""
    import keras

    from vit_keras.models import HybridViT, VisionTransformer, preprocessing_of
    from vit_keras.weights import save_model

    for name, arguments in MODELS.items():
        if (folder / f"{name}.keras").exists():
            continue
        keras.utils.set_random_seed(0)
        hybrid = "resnet_layers" in arguments
        build, size, patch = (HybridViT, 64, 1) if hybrid else (VisionTransformer, 16, 4)
        model = build(image_size=size, patch_size=patch, channels=1, **SMALL, **arguments)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        peak = 3e-4 if hybrid else 1e-3  # after 1e-3, float32 rounds its logits by 1e-4
        rate = keras.optimizers.schedules.CosineDecay(
            0.0, decay_steps=600, warmup_target=peak, warmup_steps=60
        )
        model.compile(keras.optimizers.AdamW(rate, 0.05, global_clipnorm=1.0), loss)
        images, labels = digits(model, train=True)
        prepared = preprocessing_of(model).normalize(images)
        model.fit(prepared, labels, batch_size=64, epochs=30, verbose=0)
        save_model(model, folder / f"{name}.keras")


def measure(folder):
    """Exports every model on this process's backend, and prints a JSON line for each file."""
    import vit_keras
    from vit_keras.exporting import export

    for name in MODELS:
        model = vit_keras.open(folder / f"{name}.keras")
        images, labels = digits(model)
        for plan in (PLAN, HALF) if name == "token" else (PLAN,):
            with tempfile.TemporaryDirectory() as out:
                try:
                    rows = export(model, f"{out}/out", images=images, labels=labels, **plan)
                except (RuntimeError, ValueError) as error:
                    rows = [{"error": str(error)[-2000:]}]
            for row in rows:
                print(json.dumps({"model": name, **row}), flush=True)


def main(folder, backends):
    folder.mkdir(parents=True, exist_ok=True)
    start = functools.partial(_start, folder)
    if start("jax", "--teach").wait():
        sys.exit("the models were not trained")
    print("| backend | model | format | precision | largest difference | same class | accuracy |")
    print("|---|---|---|---|--:|--:|--:|")
    failed = 0
    for backend in backends:
        process = start(backend, "--measure")
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
        sys.exit(f"{failed} exports failed")


def _start(folder, backend, task):
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-m", "benchmarks.export_matrix", folder, task]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help="default: all three")
    for task in TASKS:
        parser.add_argument(f"--{task}", dest="task", action="store_const", const=task)
    return parser.parse_args()


TASKS = {"teach": teach, "measure": measure}  # each in a process of its own

if __name__ == "__main__":
    options = arguments()
    if options.task:
        TASKS[options.task](options.folder)
    else:
        main(options.folder, options.backends or BACKENDS)
