"""Counts what other projects' suites, models and runtimes say of ours.

    python -m benchmarks.neighbor_suites
    python -m benchmarks.neighbor_suites --suites "KerasHub's tasks" --backends jax

It runs the tests that hold the suites, also those of the night, and prints how many cases were
tried, passed, and refused for a reason that the test compares. A case that fails ends it.
"""

import argparse
import collections
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).parents[1]
ALL = ("tensorflow", "jax", "torch")
ONE = ("torch",)  # where the cases are the same everywhere, or weights alone
NEIGHBORS, WEIGHTS = "tests/neighbors", "tests/weights"


@dataclasses.dataclass(frozen=True)
class Suite:
    """Tests that hold a neighbor's suite.

    Attributes:
        files: Files of tests.
        backends: Where they run.
        only: A pattern of pytest's `-k`.
    """

    files: tuple[str, ...]
    backends: tuple[str, ...] = ALL
    only: str = ""


SUITES = {
    "Keras' `run_layer_test`": Suite(("tests/layers/test_harness.py",), only="contract"),
    "Keras' applications_test": Suite(
        (f"{NEIGHBORS}/test_applications_suite.py",), ONE, "own_function"
    ),
    "KerasHub's tasks and backbones": Suite((f"{NEIGHBORS}/test_hub_tasks.py",)),
    "KerasHub's presets and weights": Suite((f"{WEIGHTS}/test_keras_hub.py",), ONE),
    "KerasTuner": Suite((f"{NEIGHBORS}/test_fit.py",), only="best_model"),
    "Grain": Suite((f"{NEIGHBORS}/test_fit.py",), only="grain"),
    "transformers' classes and folders": Suite((f"{WEIGHTS}/test_transformers.py",), ONE),
    "timm's models and files": Suite((f"{WEIGHTS}/test_timm.py",), ONE),
    "OpenCLIP's towers": Suite((f"{WEIGHTS}/test_open_clip.py",), ONE),
    "big_vision's files, and Flax": Suite((f"{WEIGHTS}/test_big_vision.py",), ONE),
    "published parameters and FLOPs": Suite(
        ("tests/test_families.py", "tests/compute/test_published.py"), ONE
    ),
    "LiteRT and ONNX Runtime": Suite(
        ("tests/exporting/test_export.py",), ("tensorflow",), "runtime"
    ),
}


def run(suite: Suite, backend: str) -> tuple[collections.Counter, collections.Counter]:
    """Runs a suite on a backend.

    Returns:
        How many cases were tried, passed, refused and skipped, and how often each reason was given.

    Raises:
        SystemExit: A case failed.
    """
    environment = {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", *suite.files, f"--junitxml={report}"]
        command += ["-k", suite.only] if suite.only else []
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} on {backend} failed:\n{done.stdout[-4000:]}")
        return count(ElementTree.parse(report).getroot())


def count(report: ElementTree.Element) -> tuple[collections.Counter, collections.Counter]:
    """Counts the cases of pytest's JUnit report, and the reasons of refusals."""
    cases: collections.Counter = collections.Counter()
    reasons: collections.Counter = collections.Counter()
    for case in report.iter("testcase"):
        given = [p.get("value") for p in case.iter("property") if p.get("name") == "refused"]
        outcome = "refused" if given else "passed"
        outcome = "skipped" if case.find("skipped") is not None else outcome
        cases.update(["tried", outcome])
        reasons.update(str(reason).partition(" Received:")[0] for reason in given)
    return cases, reasons


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES), metavar="NAME")
    parser.add_argument("--backends", nargs="+", choices=ALL, default=ALL)
    options = parser.parse_args(arguments)
    print("| suite | backend | tried | passed | refused |\n|---|---|--:|--:|--:|")
    reasons: collections.Counter = collections.Counter()
    for name in options.suites:
        for backend in SUITES[name].backends:
            if backend in options.backends:
                cases, given = run(SUITES[name], backend)
                reasons.update(given)
                tried = cases["tried"] - cases["skipped"]
                row = (name, backend, tried, cases["passed"], cases["refused"])
                print(f"| {' | '.join(map(str, row))} |", flush=True)
    print("\n| reason | cases |\n|---|--:|")
    for reason, times in reasons.most_common():
        print(f"| {reason} | {times} |")


if __name__ == "__main__":
    main()
