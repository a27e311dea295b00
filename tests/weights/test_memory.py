"""Peak memory of loading, measured in a separate process."""

import pytest

from tests.helpers import run_script
from tests.weights.builds import SUFFIX

pytestmark = [pytest.mark.nightly, pytest.mark.slow]

# A quarter of L/16's blocks: 4 bytes x 76 million. A small file imports all that is needed.
WRITE = """
import sys
from vit_keras import weights
from vit_keras.models import VisionTransformer
path, source = sys.argv[1:]
model = VisionTransformer(224, 16, 1024, 6, 16, 4096, 1000, gelu="tanh")
weights.save(model, path, format=source)
small_model = VisionTransformer(32, 16, 32, 1, 2, 32, 10, gelu="tanh")
weights.save(small_model, path.replace("weights", "small", 1), format=source)
"""
READ = """
import os, sys
import vit_keras
from benchmarks import memory
path, source = sys.argv[1:]
vit_keras.open(path.replace("weights", "small", 1), source, num_heads=2, gelu="tanh")
before = memory.peak()
vit_keras.open(path, source, num_heads=16, gelu="tanh")
print(2**30 * (memory.peak() - before) / os.path.getsize(path))
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
        done = run_script(tmp_path / name, tmp_path / f"weights{SUFFIX[source]}", source)
    assert (tmp_path / f"weights{SUFFIX[source]}").stat().st_size > 3e8
    # The framework itself is left out, which is small beside the 1.2 GB of L/16.
    assert float(done.stdout.splitlines()[-1]) < 2.2
