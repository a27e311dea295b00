"""Benchmarks measure the cases that options name, and judge the numbers that they measured."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks import cases, revisions, run
from benchmarks.cases import AUGMENTATION, FAMILIES, Case
from benchmarks.contenders import CONTENDERS, environment, names_of
from tests.helpers import ROOT
from vit_keras.inspection import abstract_model, flops
from vit_keras.models import VisionTransformer

pytestmark = pytest.mark.once

OPTIONS = {
    "": [Case("S", "train", "fp32", 16), Case("S", "infer", "fp32", 16)],
    "--size Ti,B --mode infer --batch 1,16": [
        Case("Ti", "infer", "fp32", 1),
        Case("Ti", "infer", "fp32", 16),
        Case("B", "infer", "fp32", 1),
        Case("B", "infer", "fp32", 16),
    ],
    "--family DINOv2-S/14 --tokens 256,1370 --mode train --precision bf16": [
        Case("DINOv2-S/14", "train", "bf16", 16, 224),
        Case("DINOv2-S/14", "train", "bf16", 16, 518),
    ],
    "--size S --family CLIP-B/32 --mode infer": [
        Case("S", "infer", "fp32", 16),
        Case("CLIP-B/32", "infer", "fp32", 16),
    ],
    "--augment": [AUGMENTATION],
    "--size Ti --mode train --augment": [Case("Ti", "train", "fp32", 16), AUGMENTATION],
}


@pytest.mark.parametrize("line", OPTIONS)
def test_options_name_cases(line):
    assert run.cases_of(run.make_parser().parse_args(line.split())) == OPTIONS[line]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--size DINOv2-S/14", "--size: takes Ti, S, B, L, separated by commas. Received: DINO"),
        ("--family S", "--family: takes DINOv2-S/14, SigLIP-B/16, CLIP-B/32, separated by commas"),
        ("--batch 1,0", "--batch: takes positive numbers, separated by commas. Received: 1,0"),
        ("--tokens many", "--tokens: takes positive numbers"),
    ],
)
def test_a_wrong_option_is_refused_with_what_it_takes(line, message, capsys):
    with pytest.raises(SystemExit):
        run.make_parser().parse_args(line.split())
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("model", ["Ti", "CLIP-B/32"])
def test_an_image_has_as_many_patches_as_can_be_near_the_tokens(model):
    patch = {"Ti": 16, "CLIP-B/32": 32}[model]
    squares = np.arange(1, 80) ** 2
    for tokens in range(1, 5000, 7):
        side = cases.image_size(model, tokens)
        nearest = np.abs(squares - tokens).min()
        assert side % patch == 0 and abs((side // patch) ** 2 - tokens) == nearest


def test_a_step_has_the_operations_of_the_model():
    case = Case("Ti", "infer", "fp32", 3, cases.image_size("Ti", 64))
    patch, sizes, _ = cases.dimensions(case)
    model = abstract_model(lambda: VisionTransformer(case.image_size, patch, *sizes, cases.CLASSES))
    assert cases.flops(case) == pytest.approx(3 * 2 * flops(model).macs, rel=1e-3)
    assert cases.flops(case._replace(mode="train")) == 3 * cases.flops(case)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_peers_that_have_a_family_run_it(family):
    names = names_of(Case(family, "infer", "fp32", 1), run.BACKENDS)
    assert {"ours-jax", "ours-torch", "ours-tensorflow", "timm"} <= set(names)
    assert not {"flax", "transformers", "torchvision", "ours-augment"} & set(names)
    assert names_of(AUGMENTATION, ["jax"]) == ["ours-augment", "timm-augment"]


NUMBERS = {  # ratios of times, and whether they say that something became slower
    "faster": (0.9 + 0.02 * np.arange(7), False),
    "by 4 %": (1.04 + 0.001 * np.arange(-3, 4), False),
    "by 6 %": (1.06 + 0.001 * np.arange(-3, 4), True),
    "by 6 %, with two slow turns": (np.array([1.06, 9.0, 1.055, 1.06, 4.0, 1.06, 1.07]), True),
    "one turn in seven says so": (np.array([1.0, 3.0, 1.01, 0.99, 1.0, 1.02, 0.98]), False),
    "a quarter says the opposite": (np.array([0.8, 0.9, 0.95, 1.1, 1.2, 1.3, 1.3]), False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_became_slower_ends_with_an_error(name, monkeypatch, capsys):
    ratios, slower = NUMBERS[name]
    assert revisions.is_slower(ratios) == slower
    line = "run --against HEAD --backend jax --size Ti --mode infer --batch 2 --by clock"
    monkeypatch.setattr(sys, "argv", line.split())
    row = lambda name, case, options, package: revisions.Row(name, case, np.ones(7), ratios)
    monkeypatch.setattr(revisions, "take_turns", row)
    assert run.main() == int(slower)
    *_, first, last = capsys.readouterr().out.splitlines()
    assert "| ours-jax | Ti | infer | fp32 | 2 | 224 | 1.000 (1.000 to 1.000) | " in first
    low, median, high = np.percentile(ratios, (25, 50, 75))
    assert first.endswith(f"{median:.3f} ({low:.3f} to {high:.3f}) |")
    if slower:
        assert last == f"slower by {median - 1:.0%}: ours-jax, Ti infer fp32 2 224"
    else:
        assert last == "nothing became slower by more than 5%"


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def test_a_process_of_another_revision_imports_its_package_alone(tmp_path):
    package = tmp_path / "vit_keras"
    package.mkdir()
    (package / "__init__.py").write_text("REVISION = 'then'")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "then")
    (package / "__init__.py").write_text("REVISION = 'now'")
    program = "import benchmarks, vit_keras; print(vit_keras.REVISION, *benchmarks.__path__)"

    def imported(place):
        command = [sys.executable, "-P", "-c", program]
        variables = environment("ours-jax", place)
        return subprocess.check_output(command, env=variables, cwd=ROOT, text=True).split()

    with revisions.package_of("HEAD", tmp_path) as place:
        assert imported(place) == ["then", str(ROOT / "benchmarks")]
        assert imported(tmp_path) == ["now", str(ROOT / "benchmarks")]
    assert not place.exists()
    with pytest.raises(ValueError, match="takes a git revision .* Received: 'v0'"):
        revisions.package_of("v0", tmp_path).__enter__()


def test_peers_are_not_compared_with_another_revision():
    options = run.make_parser().parse_args(["--contenders", "timm", "--against", "HEAD"])
    with pytest.raises(ValueError, match="that are ours: ours-… and lora-…. Received: timm"):
        revisions.contenders(Case("S", "infer", "fp32", 1), options)
    options.contenders = None
    options.backend = ["torch"]
    ours = revisions.contenders(Case("S", "infer", "fp32", 1), options)
    assert ours == ["ours-torch", "ours-called-torch"]
    assert revisions.contenders(Case("S", "train", "fp32", 1), options) == ["ours-torch"]
    assert revisions.contenders(AUGMENTATION, options) == ["ours-augment"]
    assert set(CONTENDERS) >= set(names_of(AUGMENTATION, options.backend))
