"""The README's lines do what it says."""

import re

import numpy as np
import pytest

from tests.helpers import ROOT, assert_close, randomize, run_script
from vit_keras.models import VisionTransformer
from vit_keras.training import AdamW, SigmoidCrossentropy


@pytest.mark.once
def test_a_keras_file_opens_by_the_documented_lines_and_fails_without_as_documented(tmp_path, rng):
    sizes = {"hidden_size": 8, "num_layers": 1, "num_heads": 1, "mlp_dim": 8, "num_classes": 2}
    options = {"classifier": "map", "position_embedding": "rope2d", "dropout_rate": 0.1}
    model = randomize(VisionTransformer(8, 4, **sizes, **options), rng)
    model.compile(AdamW(1e-3), SigmoidCrossentropy())
    model.save(tmp_path / "model.keras")
    images = rng.normal(size=(2, 8, 8, 3)).astype("float32")
    np.save(tmp_path / "images.npy", images)
    readme = (ROOT / "README.md").read_text()
    (lines,) = re.findall(r"```python\n(import vit_keras  #.*?)```", readme, re.DOTALL)
    attempt = "import keras\ntry: keras.saving.load_model('model.keras')\nexcept TypeError as e: "
    use = "import numpy as np\nnp.save('outputs.npy', model.predict(np.load('images.npy')))"
    done = run_script("-c", f"{attempt}print(e)\n{lines}\n{use}", backend="torch", cwd=tmp_path)
    (error,) = re.findall(r'"TypeError: (Could not locate.*?)"', " ".join(readme.split()))
    assert error in done.stdout
    assert_close(np.load(tmp_path / "outputs.npy"), model(images), rtol=1e-5)
