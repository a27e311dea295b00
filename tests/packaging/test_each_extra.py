"""What each extra can do when it is installed alone, and which extra it names for the rest."""

import numpy as np
import pytest
from PIL import Image

from tests.exporting.builds import onnx_means
from tests.helpers import randomize
from tests.packaging import environment
from vit_keras import weights
from vit_keras.models import VisionTransformer

pytestmark = [pytest.mark.once, pytest.mark.slow]

TRAIN = (
    "train --dataset folder:photos --model.weights small.safetensors "
    "--workdir run --total_steps 2 --batch 6"
)
# (extras, KERAS_BACKEND, {command line: the extra that its error names, or None for success}).
CASES = [
    (
        ["jax"],
        None,
        {
            "--help": None,
            "--version": None,
            "info B/16": None,
            "info small.keras": None,
            "info small.npz": None,
            "convert small.npz other.keras": None,
            "convert run/checkpoints/step_000000001 other.keras": "train",
            "plan --config pretrain/jft_h14 --device h100 --num_classes 9": "train",
            "bench small.keras --rounds 1 --batch 1": None,
            "train --list": None,
            "predict small.keras photos/cat": "data",
            "embed small.keras photos/cat --out features.parquet": "tables",
            "search features.parquet --rows 0": "tables",
            "visualize small.keras photos/cat/0.png --out figures": "data",
            "evaluate small.keras --dataset digits --out report --fewshot 1": "data",
            "evaluate small.keras --dataset digits --out report": "train",
            "check photos": "train",
            "train": "train",
            "vtab small.keras --out vtab": "tfds,train",
            "info hf://ann/pets": "hub",
            "info kaggle://ann/pets/keras/small": "hub",
            "info small.safetensors": "weights",
            "convert small.npz other.safetensors --to timm": "weights",
            "export small.keras --out files": "export",
            "export small.keras --out files --format savedmodel": "export",
            "export small.keras --out files --format onnx": "onnx",
            "export small.keras --out files --format pt2": "export,torch",
            "export small.keras --out files --format openvino": "openvino",
            "export small.keras --out files --format coreml": "coreml",
            "info empty.tflite": "runtimes",
            "info empty.onnx": "runtimes",
            "info empty.xml": "openvino",
            "info empty.pt2": "torch",
            "info empty.pth": "torch",
            "info saved": "tensorflow",
        },
    ),
    (
        ["torch"],
        None,
        {
            "--version": None,
            "info small.keras": None,
            "predict small.keras photos/cat": "data",
            "train": "train",
            "export small.keras --out files --format onnx": "onnx",
        },
    ),
    (
        ["tensorflow"],
        "tensorflow",
        {
            "info small.keras": None,
            "predict small.keras photos/cat": "data",
            "evaluate small.keras --dataset digits --out report --fewshot 1": "data",
            "train": "train",
            "export small.keras --out files": "export",
        },
    ),
    (
        ["weights", "jax"],
        "jax",
        {
            "info small.safetensors": None,
            "convert small.keras other.safetensors --to timm": None,
            "convert small.keras other.weights.h5": None,
            "predict small.safetensors photos/cat": "data",
        },
    ),
    (
        ["data", "jax"],
        "jax",
        {
            "predict small.keras photos/cat --attention --out page.html": None,
            "predict small.keras photos/cat --out labels.csv": None,
            "predict small.keras photos/cat --out labels.parquet": "tables",
            "evaluate small.keras --dataset folder:photos --out report --fewshot 1": None,
            "evaluate small.keras --dataset folder:photos --out report": "train",
            "visualize small.keras photos/cat/0.png --out figures": "train",
            "embed small.keras folder:photos --out features.parquet": "tables",
            "train": "train",
            "info small.safetensors": "weights",
        },
    ),
    (
        ["tables", "jax"],
        "jax",
        {
            "predict small.keras photos/cat --out labels.parquet": None,
            "embed small.keras photos/cat --out features.parquet": None,
            "search features.parquet photos/cat/0.png --rows 3 --out page.html": None,
        },
    ),
    (
        ["train", "torch"],
        None,
        {
            "check photos": None,
            "check shards:http://127.0.0.1:9/x.tar": "shards",
            "check hf:ann/pets": "hf",
            TRAIN: None,
            "evaluate run --predictions labels.csv": None,
            "evaluate run --predictions labels.parquet": None,
            "embed run photos --out features.parquet": None,
            "vtab small.keras --out vtab": "tfds,train",
            "predict run photos": None,
            "visualize run --out figures": None,
            "export run": "export",
            "info empty.tflite": "runtimes",
        },
    ),
    (
        ["openvino"],
        "openvino",
        {
            "predict small.keras photos/cat": None,
            "embed small.keras photos --out features.parquet": None,
            "evaluate small.keras --dataset folder:photos --out report": None,
        },
    ),
    (
        ["onnx"],
        "torch",
        {
            "export small.keras --out files --format onnx --precision fp32 int8": None,
            "predict files/model_int8.onnx photos/cat": None,
            "export small.keras --out files --format openvino": "openvino",
            "export small.keras --out files --format coreml": "coreml",
        },
    ),
]
# `make nightly` runs the others. `test_installed` has train and export with each backend.
FIRST, NIGHTLY = (["jax"], ["data", "jax"]), pytest.mark.nightly


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
        (folder / "photos" / name).mkdir(parents=True)
        for number in range(5):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype="uint8")
            Image.fromarray(pixels).save(folder / "photos" / name / f"{number}.png")
    (folder / "saved").mkdir()
    (folder / "run/checkpoints/step_000000001").mkdir(parents=True)
    empty = [f"empty.{suffix}" for suffix in ("tflite", "onnx", "xml", "pt2", "pth")]
    step = ("meta.json", "state.npz")
    run = ("run/config.yaml", *(f"run/checkpoints/step_000000001/{name}" for name in step))
    for name in (*empty, *run, "saved/saved_model.pb"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("extras", "backend", "commands"),
    [
        pytest.param(*case, id="-".join(case[0]), marks=[] if case[0] in FIRST else NIGHTLY)
        for case in CASES
    ],
)
def test_an_extra_does_its_part_and_names_the_others(
    wheel, folder, tmp_path, extras, backend, commands
):
    python = environment.make(wheel, extras, tmp_path / "environment")
    answers = environment.run_commands(python, commands, backend=backend, cwd=folder)
    for (line, extra), (code, _, error) in zip(commands.items(), answers):
        if extra is None:
            assert code == 0, f"{line}: {error}"
            continue
        last = error.splitlines()[-1]
        name = line.split()[0]
        assert code == 1 and "Traceback" not in error, f"{line}: {error}"
        assert last.startswith(f"vit-keras {name}: error: "), f"{line}: {error}"
        assert last.endswith(f'pip install "vit-keras[{extra}]"'), f"{line}: {error}"


def test_an_exported_file_needs_no_backend(wheel, folder, tmp_path):
    python = environment.make(wheel, ["runtimes"], tmp_path / "runtimes")
    predict = ("-m", "vit_keras", "predict", "means.onnx", "photos/cat")
    for options in ((), ("--tta", "flip", "--format", "csv"), ("--format", "html")):
        done = environment.run(python, *predict, *options, cwd=folder)
        assert all(f"{number}.png" in done.stdout for number in range(5)), done.stdout
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
