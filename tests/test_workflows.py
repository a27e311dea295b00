"""The workflows run what the Makefile has, and may only read."""

import itertools
import re

import pytest
import yaml

import vit_keras
from tests.helpers import ROOT

pytestmark = pytest.mark.once
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in FILES}
JOBS = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]


def targets(job):
    """The targets that a job makes, for each row of its matrix."""
    matrix = job["strategy"]["matrix"]
    commands = [step["run"] for step in job["steps"] if "run" in step]
    for *row, command in itertools.product(*matrix.values(), commands):
        for name, value in zip(matrix, row):
            command = command.replace(f"${{{{ matrix.{name} }}}}", value)
        yield from re.fullmatch(r"make ([\w-]+)", command).groups()


def test_every_target_of_the_workflows_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text()
    rules = re.findall(r"^([\w%-][\w% -]*):(?!=)", makefile, re.MULTILINE)
    rules = [name.replace("%", r"\w+") for rule in rules for name in rule.split()]
    called = {target for job in JOBS for target in targets(job)}
    assert called and not [t for t in called if not any(re.fullmatch(rule, t) for rule in rules)]


def test_the_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    heads = re.findall(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    released = next(head for head in heads if head != "Unreleased")
    assert released == citation["version"] == vit_keras.__version__


def test_workflows_only_read_and_take_actions_of_the_host_itself():
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS.values())
    for job in JOBS:
        assert "permissions" not in job
        used = [step for step in job["steps"] if "uses" in step]
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in used)
        assert used[0]["with"] == {"persist-credentials": False}
