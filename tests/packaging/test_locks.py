"""The locks pin what the project asks for, with hashes."""

import importlib.metadata
import re
import shutil

import pytest

from tests.helpers import ROOT
from tools import lock
from tools.dependencies import rows

pytestmark = pytest.mark.once


@pytest.fixture
def copy(tmp_path):
    """The files that the check reads, to be edited."""
    shutil.copytree(ROOT / "locks", tmp_path / "locks")
    for name in ("requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def edit(path, pattern, replacement):
    text = path.read_text()
    edited, count = re.subn(pattern, replacement, text, count=1, flags=re.MULTILINE)
    assert count == 1 and edited != text
    path.write_text(edited)


def test_the_locks_agree_with_the_requirements():
    assert lock.problems() == []


@pytest.mark.parametrize(
    ("name", "pattern", "replacement", "problem"),
    [
        ("requirements.txt", r"^pillow==.*", "pillow==1.0", "pillow==1.0 has no pin in"),
        ("requirements.txt", r"\Z", "leftpad==1.0\n", "leftpad==1.0 has no pin in locks/all"),
        ("requirements.txt", r"^tqdm==.*\n", "", "tqdm in locks/all.txt comes from requirements"),
        ("pyproject.toml", r'"numpy>=2"', '"numpy>=99"', "numpy>=99 has no pin in locks/all"),
        ("pyproject.toml", r'"tqdm>=4', '"tqdm>=99', "tqdm>=99.67 has no pin in locks/all"),
        ("pyproject.toml", r"uv==[\d.]+", "uv==0.0.1", "uv==0.0.1 has no pin in locks/tools"),
        ("locks/all.txt", r"^numpy==.*\n(    --hash=.*\n)+", "numpy==2.4.6\n", "has no hash"),
        ("locks/torch.txt", r"^triton==", "triton>=", "has no hash"),
        ("requirements.txt", r"^torch==.*", "torch==9", "torch==9 has no pin in locks/torch-cpu"),
    ],
)
def test_a_stale_lock_is_named(copy, name, pattern, replacement, problem):
    edit(copy / name, pattern, replacement)
    assert problem in "\n".join(lock.problems(copy))


def test_the_check_says_what_to_run(monkeypatch):
    monkeypatch.setattr(lock, "problems", lambda: ["pillow==1.0 has no pin"])
    with pytest.raises(SystemExit, match=r"(?s)^pillow==1\.0 has no pin\n.* Run `make lock`"):
        lock.main(["--check"])


def test_what_the_extras_install_is_what_the_locks_pin():
    """Also what comes through others, which the check cannot know without network."""
    pins = [
        pin
        for name in ("all", "torch")
        for pin in lock.read((ROOT / "locks" / f"{name}.txt").read_text())
        if pin.requirement.marker is None or pin.requirement.marker.evaluate()
    ]
    pinned = {pin.name: pin.version for pin in pins}
    assert len(pinned) == len(pins) > 150
    installed = {name: importlib.metadata.version(name).partition("+")[0] for name, *_ in rows()}
    assert installed == {name: pinned.get(name) for name in installed}


def test_cuda_comes_with_one_build_of_torch_alone():
    names = {
        name: {pin.name for pin in lock.read((ROOT / "locks" / f"{name}.txt").read_text())}
        for name in ("all", "torch", "torch-cpu")
    }
    assert names["torch-cpu"] == {"torch"}
    assert names["torch"] > {"torch", "triton", "nvidia-cublas", "nvidia-cudnn-cu13"}
    assert not any(name.startswith(("nvidia", "cuda", "triton")) for name in names["all"])
    assert "torch" not in names["all"] and "torchvision" in names["all"]


def test_pip_takes_nothing_else_than_the_locked_file(tmp_path):
    """pip compares the file's hash with the lock, and does not look for what it requires."""
    import hashlib
    import subprocess
    import sys
    import zipfile

    (tmp_path / "files").mkdir()
    wheel = tmp_path / "files" / "lockedone-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        place, meta = "lockedone-1.0.dist-info", "Name: lockedone\nVersion: 1.0\n"
        archive.writestr("lockedone.py", "")
        archive.writestr(
            f"{place}/METADATA", f"Metadata-Version: 2.1\n{meta}Requires-Dist: no-such-package\n"
        )
        archive.writestr(
            f"{place}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{place}/RECORD", "")
    makefile = (ROOT / "Makefile").read_text()
    (options,) = re.findall(r"^LOCKED := (.*)\\\n\t(.*)$", makefile, re.MULTILINE)

    def install(digest):
        (tmp_path / "lock.txt").write_text(f"lockedone==1.0 \\\n    --hash=sha256:{digest}\n")
        command = [sys.executable, *" ".join(options).split(), "--no-index", "--isolated"]
        command += ["--find-links", wheel.parent, "--target", tmp_path / "into"]
        command += ["--requirement", tmp_path / "lock.txt"]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True)

    refused = install("0" * 64)
    assert refused.returncode and "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "into" / "lockedone.py").exists()
    done = install(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert not done.returncode, done.stderr
    assert (tmp_path / "into" / "lockedone.py").exists()
