"""How a program starts: once more, with malloc's huge pages, where Linux has them on request."""

import os
import subprocess
import sys

import pytest

import launch
from tests.helpers import ROOT

pytestmark = pytest.mark.once

PROGRAM = """
import os, pathlib, sys
import launch
launch.HUGE_PAGES = pathlib.Path(sys.argv[1])
print("start", flush=True)
launch.prepare()
print(os.environ.get("GLIBC_TUNABLES"), os.environ["OMP_WAIT_POLICY"], sys.argv[2:])
"""


def started(tmp_path, kernel, tunables=None):
    """The lines that a program prints, with `kernel` as Linux' setting."""
    (tmp_path / "enabled").write_text(kernel)
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = {k: v for k, v in os.environ.items() if k != "GLIBC_TUNABLES"}
    environment["PYTHONPATH"] = str(ROOT)
    if tunables:
        environment["GLIBC_TUNABLES"] = tunables
    command = [sys.executable, "-W", "ignore", "program.py", "enabled", "a b", "--c"]
    run = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def test_a_program_starts_again_with_its_arguments_and_asks_for_huge_pages(tmp_path):
    expected = f"{launch.TUNABLE}=1 PASSIVE ['a b', '--c']"
    assert started(tmp_path, "always [madvise] never") == ["start", "start", expected]


def test_other_tunables_are_kept(tmp_path):
    lines = started(tmp_path, "always [madvise] never", "glibc.malloc.check=0")
    assert lines[-1].startswith(f"glibc.malloc.check=0:{launch.TUNABLE}=1 ")


@pytest.mark.parametrize(
    "kernel, tunables",
    [
        ("[always] madvise never", None),
        ("always madvise [never]", None),
        ("always [madvise] never", f"{launch.TUNABLE}=0"),
    ],
)
def test_nothing_is_done_where_it_changes_nothing_or_was_decided(tmp_path, kernel, tunables):
    assert started(tmp_path, kernel, tunables) == ["start", f"{tunables} PASSIVE ['a b', '--c']"]


def test_without_linux_nothing_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(launch, "HUGE_PAGES", tmp_path / "absent")
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("started again"))
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    launch.prepare()
    assert "GLIBC_TUNABLES" not in os.environ
