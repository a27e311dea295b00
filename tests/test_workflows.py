"""The workflows run what `.ci/run` runs, on the versions that pyproject.toml names."""

import itertools
import re
import tomllib

import pytest
import yaml

import vit_keras
from tests.helpers import ROOT
from vit_keras.support import extras

pytestmark = pytest.mark.once

MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def jobs():
    for path in WORKFLOWS:
        yield from read(path)["jobs"].values()


def targets(job):
    """The targets that a job makes, for each row of its matrix."""
    matrix = job["strategy"]["matrix"]
    rows = [dict(zip(matrix, row)) for row in itertools.product(*matrix.values())]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    for row, command in itertools.product(rows, commands):
        for name, value in row.items():
            command = command.replace(f"${{{{ matrix.{name} }}}}", value)
        yield from re.fullmatch(r"make ([\w-]+)", command).groups()


def made():
    """The targets that the Makefile has, where `test-%` stands for any ending."""
    rules = re.findall(r"^([\w%-][\w% -]*):(?!=)", MAKEFILE, re.MULTILINE)
    return [name for rule in rules for name in rule.split()]


def test_every_target_of_the_workflows_is_in_the_makefile():
    called = {target for job in jobs() for target in targets(job)}
    rules = [re.compile(name.replace("%", r"\w+")) for name in made()]
    assert called and not [t for t in called if not any(rule.fullmatch(t) for rule in rules)]


def test_python_versions_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (lowest,) = re.fullmatch(r">=3\.(\d+)", project["requires-python"]).groups()
    assert named == [f"3.{int(lowest) + i}" for i in range(len(named))]
    *named, last = named
    assert last == "3.14" and extras.LAST_PYTHON["tensorflow"] == (3, 13)  # the locks have it
    for job in jobs():
        matrix = job["strategy"]["matrix"].get("python")
        set_up = [s["with"]["python-version"] for s in job["steps"] if "setup-python" in str(s)]
        assert matrix == named or set_up == named[:1]


def test_the_version_is_the_same_everywhere():
    assert read("CITATION.cff")["version"] == vit_keras.__version__
    heads = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(head for head in heads if head != "Unreleased") == vit_keras.__version__


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_only_reads_and_takes_actions_of_the_host_itself(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "permissions" not in job
        used = [step for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in used)
        assert used[0]["with"] == {"persist-credentials": False}
