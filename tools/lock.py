"""Pins every package of `make` with its hashes, in `locks`, and checks that the pins are complete.

    python -m tools.lock                              # `make lock`, after an edit of a requirement
    python -m tools.lock --upgrade-package pillow     # uv takes other options
    python -m tools.lock --check                      # without network; a step of `make lint`

uv resolves once for all systems and for Python 3.11 to 3.13. pip then installs the files without
resolving (`--no-deps --require-hashes`), so nothing comes in that is not pinned.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).parents[1]
HEADS = {
    "all": "requirements.txt without torch, and everything that these packages need.",
    "torch": "PyTorch as PyPI has it, and what its build for Linux needs besides.",
    "torch-cpu": "PyTorch's build for CPUs, taken where pip knows a place that has it.",
    "build": "What builds the one package that has no wheel; installed before the others.",
    "tools": "The programs behind `make lock`, `make audit` and `make sbom`, in `.tools`.",
}
TORCH = re.compile(r"(nvidia-|cuda-|triton$|torch$)")
# The build for CPUs is not on PyPI: Python 3.11 on x86-64 Linux.
CPU_BUILD = "torch==2.13.0+cpu"
CPU_HASH = "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"
NOT_LOCKED = ("coreml", "executorch")  # extras that `make` does not install
COMMAND = (
    *("uv", "pip", "compile", "--universal", "--python-version", "3.11", "--generate-hashes"),
    *("--no-header", "--quiet"),
)


class Pin(NamedTuple):
    """A package of a lock: its requirement, and the rest of its text."""

    requirement: Requirement
    text: str

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    @property
    def version(self) -> str:
        return str(self.requirement.specifier).removeprefix("==")


def read(text: str) -> list[Pin]:
    """Reads the pins of a lock, or of requirements.txt, which has neither hashes nor origins."""
    blocks = re.findall(r"^[^\s#].*\n(?:[ \t]+.*\n)*", text, re.MULTILINE)
    return [Pin(Requirement(re.split(r"\s+(?:\\|#)|\n", block)[0]), block) for block in blocks]


def write(options: list[str], root: pathlib.Path = ROOT) -> None:
    """Resolves the requirements anew; versions in the present locks stay where they can."""
    folder = root / "locks"
    pins = read(_compile(["requirements.txt"], ["all", "torch"], options, root))
    _write(folder, "torch", [pin for pin in pins if TORCH.match(pin.name)])
    _write(folder, "all", [pin for pin in pins if not TORCH.match(pin.name)])
    cpu = Pin(Requirement(CPU_BUILD), f"{CPU_BUILD} \\\n    --hash=sha256:{CPU_HASH}\n")
    _write(folder, "torch-cpu", [cpu])
    group = ["--group", "pyproject.toml:build", "--constraint", "locks/all.txt"]
    _write(folder, "build", read(_compile(group, ["build"], options, root)))
    group = ["--group", "pyproject.toml:tools"]
    _write(folder, "tools", read(_compile(group, ["tools"], options, root)))


def _compile(sources, names, options, root):
    paths = [root / "locks" / f"{name}.txt" for name in names]
    present = "".join(path.read_text() for path in paths if path.is_file())
    with tempfile.NamedTemporaryFile("w+", suffix=".txt") as file:
        file.write(present)
        file.flush()
        command = [*COMMAND, *options, *sources, "--output-file", file.name]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
        return pathlib.Path(file.name).read_text()


def _write(folder, name, pins):
    lines = "".join(pin.text for pin in pins)
    path, text = folder / f"{name}.txt", f"# {HEADS[name]}\n# Written by `make lock`.\n{lines}"
    if not path.is_file() or path.read_text() != text:  # whose time tells make to install anew
        path.write_text(text)


def problems(root: pathlib.Path = ROOT) -> list[str]:
    """Says what in `locks` does not agree with requirements.txt and pyproject.toml."""
    locks = {name: read((root / "locks" / f"{name}.txt").read_text()) for name in HEADS}
    locks["all"] += locks.pop("torch")
    project = tomllib.loads((root / "pyproject.toml").read_text())
    requirements = [pin.requirement for pin in read((root / "requirements.txt").read_text())]
    extras = project["project"]["optional-dependencies"]
    of_extras = [line for name in extras if name not in NOT_LOCKED for line in extras[name]]
    ours = [*project["build-system"]["requires"], *project["project"]["dependencies"], *of_extras]
    wanted = {"all": [*requirements, *(Requirement(line) for line in ours)]}
    wanted["torch-cpu"] = [line for line in requirements if line.name == "torch"]
    for name in ("build", "tools"):
        wanted[name] = [Requirement(line) for line in project["dependency-groups"][name]]
    found = [
        f"{requirement} has no pin in locks/{name}.txt that it allows"
        for name in wanted
        for requirement in wanted[name]
        if requirement.name != project["project"]["name"] and not _allows(requirement, locks[name])
    ]
    named = {canonicalize_name(requirement.name) for requirement in requirements}
    found += [
        f"{pin.name} in locks/all.txt comes from requirements.txt, which does not name it"
        for pin in locks["all"]
        if "-r requirements.txt" in pin.text and pin.name not in named
    ]
    found += [
        f"{pin.requirement} in locks/{name}.txt has no hash, or no exact version"
        for name in locks
        for pin in locks[name]
        if "--hash=sha256:" not in pin.text or str(pin.requirement.specifier) != f"=={pin.version}"
    ]
    return found


def _allows(requirement, pins):
    name = canonicalize_name(requirement.name)
    return any(pin.name == name and pin.version in requirement.specifier for pin in pins)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    options, others = parser.parse_known_args(arguments)
    if not options.check:
        write(others)
    elif found := problems():
        remedy = "Run `make lock`, and commit `locks`; CPU_BUILD in tools/lock.py is set by hand."
        sys.exit("\n".join([*found, f"The locks are stale. {remedy}"]))


if __name__ == "__main__":
    main()
