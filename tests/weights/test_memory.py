"""Peak memory of loading, measured in a separate process."""

import json

import pytest

from tests.helpers import run_script
from tests.weights.builds import SUFFIX

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

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


@pytest.mark.parametrize(
    "source",
    [  # one for each container of tensors
        "google",
        *(pytest.param(x, marks=pytest.mark.once) for x in ("timm", "torchvision", "vit_keras")),
    ],
)
def test_loading_takes_at_most_2_2_times_the_file(tmp_path, source):
    for name, script in (("write.py", WRITE), ("read.py", READ)):
        (tmp_path / name).write_text(script)
        done = run_script(tmp_path / name, tmp_path / f"weights{SUFFIX[source]}", source, 6)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["size"] > 3e8
    # `before` is the framework itself, which is small beside the 1.2 GB of L/16.
    assert report["peak"] - report["before"] < 2.2 * report["size"], report
