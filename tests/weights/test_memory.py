"""Peak memory of loading, measured in a separate process."""

import json

import pytest

from tests.helpers import run_script
from tests.weights.builds import SUFFIX

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

SOURCES = ("timm", "torchvision", "vit_keras")  # one for each other container of tensors

# Sizes of a 24th of L/16's blocks each: 4 bytes x 12.6 million.
WRITE = """
import sys
from vit_keras import weights
from vit_keras.models import VisionTransformer
path, source, layers = sys.argv[1:]
model = VisionTransformer(224, 16, 1024, int(layers), 16, 4096, 1000, gelu="tanh")
weights.save(model, path, format=source)
"""
READ = """
import json, os, sys
import vit_keras
from benchmarks import memory
from vit_keras.models import VisionTransformer
path, source, layers = sys.argv[1:]
peak = lambda: memory.peak() * 2**30
small = path.replace("weights", "small", 1)  # whose reading imports all that is needed
small_model = VisionTransformer(32, 16, 32, 1, 2, 32, 10, gelu="tanh")
vit_keras.weights.save(small_model, small, format=source)
vit_keras.open(small, source, num_heads=2, gelu="tanh")
before = peak()
vit_keras.open(path, source, num_heads=16, gelu="tanh")
print(json.dumps({"before": before, "peak": peak(), "size": os.path.getsize(path)}))
"""


def check_peak(tmp_path, source):
    path = tmp_path / f"weights{SUFFIX[source]}"
    for name, script in (("write.py", WRITE), ("read.py", READ)):
        (tmp_path / name).write_text(script)
    arguments = (path, source, 6)
    run_script(tmp_path / "write.py", *arguments)
    done = run_script(tmp_path / "read.py", *arguments)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["size"] > 3e8
    # `before` is the framework itself, which is small beside the 1.2 GB of L/16.
    assert report["peak"] - report["before"] < 2.2 * report["size"], report


def test_loading_takes_at_most_2_2_times_the_file(tmp_path):
    check_peak(tmp_path, "google")


@pytest.mark.once
@pytest.mark.parametrize("source", SOURCES)
def test_other_files_take_as_much(tmp_path, source):
    check_peak(tmp_path, source)
