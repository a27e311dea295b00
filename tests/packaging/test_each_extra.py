"""What each extra can do when it is installed alone, and which extra it names for the rest."""

import numpy as np
import pytest

from tests.exporting.builds import onnx_means
from tests.helpers import randomize, write_picture
from tests.packaging import environment
from vit_keras import weights
from vit_keras.models import VisionTransformer

pytestmark = [pytest.mark.once, pytest.mark.slow]

PREDICT = "predict small.keras photos/cat"
EVALUATE = "evaluate small.keras --dataset folder:photos --out report"
TRAIN = "train --dataset folder:photos --model.weights small.safetensors --workdir run"
# By the installed extras: command lines, each after the extra that its error names, if any.
CASES = {
    "jax": f"""
        | --help
        | info B/16
        | info small.keras
        | convert small.npz other.keras
        | bench small.keras --rounds 1 --batch 1
        train | check photos
        train | {EVALUATE}
        train | convert old/checkpoints/step_000000001 other.keras
        train | train
        data | {PREDICT}
        tables | embed small.keras photos/cat --out features.parquet
        tables | search features.parquet --rows 0
        tfds,train | vtab small.keras --out vtab
        hub | info hf://ann/pets
        hub | info kaggle://ann/pets/keras/small
        weights | info small.safetensors
        weights | convert small.npz other.safetensors --to timm
        export | export small.keras --out files
        export,torch | export small.keras --out files --format pt2
        onnx | export small.keras --out files --format onnx
        openvino | info empty.xml
        coreml | export small.keras --out files --format coreml
        runtimes | info empty.tflite
        torch | info empty.pt2
        tensorflow | info saved
    """,
    "data,jax": f"""
        | {PREDICT} --attention --out page.html
        | {PREDICT} --out labels.csv
        | {EVALUATE} --fewshot 1
        train | {EVALUATE}
        train | visualize small.keras photos/cat/0.png --out figures
        tables | {PREDICT} --out labels.parquet
        tables | embed small.keras folder:photos --out features.parquet
    """,
    "tensorflow": """
        | info small.keras
        export | export small.keras --out files
    """,
    "weights,jax": """
        | info small.safetensors
        | convert small.keras other.weights.h5
        | convert small.keras other.safetensors --to timm
    """,
    "tables,jax": f"""
        | {PREDICT} --out labels.parquet
        | embed small.keras photos/cat --out features.parquet
        | search features.parquet photos/cat/0.png --rows 3 --out page.html
    """,
    "train,torch": f"""
        | check photos
        | {TRAIN} --total_steps 2 --batch 6
        | evaluate run --predictions labels.csv
        | predict run photos
        | visualize run --out figures
        tables | embed run photos --out features.parquet
        shards | check shards:http://127.0.0.1:9/x.tar
        hf | check hf:ann/pets
        export | export run
    """,
    "openvino": f"""
        | {PREDICT}
        | {EVALUATE}
        tables | embed small.keras photos --out a.parquet
    """,
    "onnx": """
        | export small.keras --out files --format onnx --precision fp32 int8
        | predict files/model_int8.onnx photos/cat
    """,
}
BACKENDS = {
    "data,jax": "jax",
    "tensorflow": "tensorflow",
    "weights,jax": "jax",
    "tables,jax": "jax",
    "openvino": "openvino",
    "onnx": "torch",
}  # KERAS_BACKEND, if it is set
# `make nightly` runs the others. `test_installed` has train and export with each backend.
FIRST = ("jax", "data,jax")
LATER = [pytest.param(name, marks=pytest.mark.nightly) for name in CASES if name not in FIRST]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model in three formats, pictures, and empty files of other formats."""
    folder, rng = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    model = VisionTransformer(16, 8, 12, 1, 2, 16, 3, gelu="exact")
    randomize(model, rng).class_names = ["cat", "dog", "owl"]
    weights.save(model, folder / "small.keras")
    weights.save(model, folder / "small.safetensors", format="timm")
    with pytest.warns(UserWarning, match="computes with"):
        weights.save(model, folder / "small.npz", format="google")
    onnx_means(folder / "means.onnx", 2, side=16)
    for name in model.class_names:
        for number in range(5):
            write_picture(folder / "photos" / name / f"{number}.png", rng, (20, 24))
    (folder / "saved").mkdir()
    (folder / "old/checkpoints/step_000000001").mkdir(parents=True)
    empty = [f"empty.{suffix}" for suffix in ("tflite", "onnx", "xml", "pt2", "pth")]
    step = ("meta.json", "state.npz")
    run = ("old/config.yaml", *(f"old/checkpoints/step_000000001/{name}" for name in step))
    for name in (*empty, *run, "saved/saved_model.pb"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("extras", [*FIRST, *LATER])
def test_an_extra_does_its_part_and_names_the_others(wheel, folder, tmp_path, extras):
    rows = (line.split("|") for line in CASES[extras].strip().splitlines())
    commands = {line.strip(): extra.strip() for extra, line in rows}
    python = environment.make(wheel, extras.split(","), tmp_path / "environment")
    backend = BACKENDS.get(extras)
    answers = environment.run_commands(python, commands, backend=backend, cwd=folder)
    for (line, extra), (code, _, error) in zip(commands.items(), answers, strict=True):
        assert code == bool(extra) and "Traceback" not in error, f"{line}: {error}"
        if extra:
            last = error.splitlines()[-1]
            assert last.startswith(f"vit-keras {line.split()[0]}: error: "), f"{line}: {error}"
            assert last.endswith(f'pip install "vit-keras[{extra}]"'), f"{line}: {error}"


def test_an_exported_file_needs_no_backend(wheel, folder, tmp_path):
    python = environment.make(wheel, ["runtimes"], tmp_path / "runtimes")
    predict = ("-m", "vit_keras", "predict", "means.onnx", "photos/cat")
    for options in (("--tta", "flip", "--format", "csv"), ("--format", "html")):
        page = environment.run(python, *predict, *options, cwd=folder).stdout
        assert all(f"{number}.png" in page for number in range(5)), page
    done = environment.run(python, *predict, "--out", "a.parquet", cwd=folder, check=False)
    assert done.stderr.endswith('needs pyarrow: pip install "vit-keras[tables]"\n')


def test_a_missing_backend_is_one_line(wheel, folder, tmp_path):
    none = environment.make(wheel, ["weights"], tmp_path / "none")
    jax = environment.make(wheel, ["jax"], tmp_path / "jax")
    expected = [
        (none, None, 'Keras needs a backend: pip install "vit-keras[jax]", or tensorflow or torch'),
        (none, "jax", 'KERAS_BACKEND=jax needs jax: pip install "vit-keras[jax]"'),
        (jax, "torch", 'KERAS_BACKEND=torch needs torch: pip install "vit-keras[torch]"'),
    ]
    for python, backend, message in expected:
        command = {"backend": backend, "cwd": folder, "check": False}
        done = environment.run(python, "-m", "vit_keras", "info", "small.keras", **command)
        assert done.returncode == 1 and done.stdout == ""
        assert done.stderr.startswith(f"vit-keras info: error: {message}")
        assert len(done.stderr.splitlines()) == 1
    done = environment.run(python, "-c", "import vit_keras", **command)
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {message}")
