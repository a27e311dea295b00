"""Virtual environments with the wheel and the packages of chosen extras alone.

Their packages are links to those of the environment that runs the tests. What the extras do not
install does not exist there, as after `pip install` into an empty environment.
"""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable

from tests.helpers import ROOT
from tests.quick_xla import quick
from tools.dependencies import closure

# Runs command lines one after the other in one process, and prints how each one ended.
RUN_COMMANDS = """
import contextlib, io, json, sys
from vit_keras.commands import main

answers = []
for line in sys.argv[1:]:
    out, error = io.TextIOWrapper(io.BytesIO()), io.StringIO()  # predict writes bytes
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(line.split())
    out.flush()
    answers.append((code, out.buffer.getvalue().decode(), error.getvalue()))
print(json.dumps(answers))
"""
SCRIPT = "from vit_keras.commands import main\n\nraise SystemExit(main())\n"
# Variables of this process that an environment's process has too.
INHERITED = (
    *("PATH", "LANG", "LC_ALL", "TMPDIR", "SYSTEMROOT", "CUDA_VISIBLE_DEVICES", "XLA_FLAGS"),
    *("ONEDNN_MAX_CPU_ISA", "JAX_COMPILATION_CACHE_DIR", "OMP_NUM_THREADS"),
    "TF_NUM_INTRAOP_THREADS",
    *("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"),
)


def build(folder: pathlib.Path, *options: str) -> pathlib.Path:
    """Builds the checkout's sdist, and the wheel from the sdist; `--wheel` builds from the tree."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, *options, ROOT]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=folder)
    assert not done.returncode, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return next(folder.glob("*.whl"))


def make(wheel: pathlib.Path, extras: list[str], folder: pathlib.Path) -> pathlib.Path:
    """Makes a virtual environment with `wheel[extras]` in `folder`; returns its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages, scripts = (
        pathlib.Path(sysconfig.get_path(name, "venv", {"base": str(folder)}))
        for name in ("purelib", "scripts")
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    (metadata,) = packages.glob("*.dist-info/METADATA")
    for distribution in closure(importlib.metadata.PathDistribution(metadata.parent), extras):
        for name in {file.parts[0] for file in distribution.files} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(os.path.abspath(distribution.locate_file(name)))
    script = scripts / "vit-keras"
    script.write_text(f"#!{scripts / 'python'}\n{SCRIPT}")
    script.chmod(0o755)
    return scripts / "python"


def run(python: pathlib.Path, *arguments, backend=None, cwd, check=True):
    """Runs `python ARGUMENTS` in a folder outside the checkout, which also is the user's home.

    Without `backend`, KERAS_BACKEND is not set.
    """
    variables = {name: os.environ[name] for name in INHERITED if name in os.environ}
    variables["PATH"] = os.pathsep.join([str(python.parent), variables.get("PATH", "")])
    variables |= {"HOME": str(cwd)} | ({"KERAS_BACKEND": backend} if backend else {})
    variables = quick(variables) if backend == "jax" else variables
    command = list(map(str, (python, *arguments)))
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)
    if check and done.returncode:
        raise AssertionError(f"{arguments}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done


def run_commands(python: pathlib.Path, lines: Iterable[str], **options) -> list:
    """The exit code, stdout and stderr of each line of `vit-keras`, all run in one process."""
    done = run(python, "-c", RUN_COMMANDS, *lines, **options)
    return json.loads(done.stdout.splitlines()[-1])
