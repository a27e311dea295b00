"""Processes in which the exports of all tests convert: forks of one that has imported the backend.

An export starts a new process for each backend, which imports for up to eight seconds. Where a test
changed how processes start, the export starts them itself.
"""

import contextlib
import importlib
import os
import select
import subprocess
import sys
import traceback

from vit_keras.exporting import exporter

IDLE = 60  # seconds, after which a process ends and gives its memory back
# What a conversion imports besides; Keras imports TensorFlow to serialize layers.
IMPORTS = {
    "tensorflow": ("tensorflow.lite",),
    "torch": ("tensorflow", "torch._inductor", "torch.onnx._internal.exporter._core", "onnxscript"),
}
START = exporter._run_converter


def surroundings():
    return sys.executable, os.environ.get("PYTHONPATH"), subprocess.run


class Converters:
    """Stands for `exporter._run_converter`."""

    def __init__(self):
        self.processes: dict[str, subprocess.Popen] = {}
        self.surroundings = surroundings()

    def __call__(self, scratch, backend):
        if surroundings() != self.surroundings:
            return START(scratch, backend)
        code = ""
        while not code:  # it ended a moment ago
            process = self.processes.get(backend)
            if process is None or process.poll() is not None:
                process = self.processes[backend] = begin(backend)
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{scratch}\n")
                process.stdin.flush()
                code = process.stdout.readline()
        return f"the converter's process ended with exit status {code}"

    def close(self):
        for process in self.processes.values():
            process.kill()
            process.wait()


def begin(backend):
    variables = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-m", "tests.converters"]
    return subprocess.Popen(command, env=variables, text=True, **pipes)


def main():
    """Converts the job of each line of the standard input, and prints how its fork ended."""
    for name in IMPORTS[os.environ["KERAS_BACKEND"]]:
        importlib.import_module(name)
    while select.select([0], [], [], IDLE)[0] and (line := sys.stdin.readline()):
        if not (child := os.fork()):
            os.dup2(2, 1)
            code = 1
            try:
                exporter.convert(line.rstrip("\n"))
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
