"""Counts the programs that LiteRT's compiler for Intel's NPUs makes of TFLite files.

    pip download --no-deps openvino==2026.3.1 && unzip -d ov openvino-2026.3.1-*.whl
    python -m benchmarks.npu_partitions ov model.tflite model_int8_static16.tflite

The compiler is part of the package ai-edge-litert and needs the OpenVINO that it was built with;
those for other NPUs need their makers' libraries, which no package index has. It partitions the
graph without an NPU. One program and nothing left out is the best result: each operation that is
left out runs on the processor, and what is before it and after it become programs of their own.
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

import ai_edge_litert

from vit_keras.exporting import tflite_file

PACKAGE = pathlib.Path(ai_edge_litert.__file__).parent
CHIP = {"soc_manufacturer": "IntelOpenVINO", "soc_model": "LNL"}  # Lunar Lake


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("openvino", type=pathlib.Path, help="the unpacked wheel")
    parser.add_argument("files", nargs="+", help="TFLite files")
    options = parser.parse_args()
    print("| file | programs | left out |")
    print("|---|--:|---|")
    for file in options.files:
        programs, others = partition(file, options.openvino)
        left = ", ".join(f"{count} {name}" for name, count in others.items()) or "nothing"
        print(f"| {pathlib.Path(file).name} | {programs} | {left} |", flush=True)


def partition(file, openvino) -> tuple[int, dict[str, int]]:
    """Returns the number of programs, and the operations beside them by name."""
    with tempfile.NamedTemporaryFile(suffix=".tflite") as result:
        flags = CHIP | {
            "cmd": "partition",
            "libs": PACKAGE / "vendors/intel_openvino/compiler",
            "model": file,
            "o": result.name,
        }
        process = subprocess.run(
            [PACKAGE / "tools/apply_plugin_main", *(f"--{k}={v}" for k, v in flags.items())],
            env=os.environ | {"LD_LIBRARY_PATH": str(openvino / "openvino/libs")},
            capture_output=True,
            text=True,
        )
        if process.returncode:
            sys.exit(f"The compiler failed on {file}:\n{process.stdout}{process.stderr}")
        model = tflite_file.read(result.name)
    del model.subgraphs[1:]  # the programs
    counts = collections.Counter(name for name, _ in tflite_file.operations(model))
    return counts.pop("CUSTOM", 0), counts


if __name__ == "__main__":
    main()
