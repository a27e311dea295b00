"""Files whose packages are missing are answered with the extra to install."""

import sys

import pytest

import vit_keras
from tests.weights.builds import build, other_numerics
from vit_keras import weights

pytestmark = pytest.mark.once

PACKAGES = [
    ("safetensors", ".safetensors", "timm", "Reading safetensors", "weights"),
    ("ml_dtypes", ".safetensors", "timm", "Reading safetensors", "weights"),
    ("h5py", ".weights.h5", "keras_hub", "Reading Keras files", "weights"),
    ("torch", ".pth", "timm", "Reading PyTorch files", "torch"),
]


@pytest.mark.parametrize(("package", "suffix", "source", "purpose", "extra"), PACKAGES)
def test_missing_package_is_named_with_its_extra(
    monkeypatch, tmp_path, package, suffix, source, purpose, extra
):
    if package == "torch":
        pytest.importorskip("torch")
    model, path = build(), tmp_path / f"a{suffix}"
    with other_numerics():
        weights.save(model, path, format=source)
    monkeypatch.setitem(sys.modules, package, None)
    message = rf'{purpose} needs {package.replace("_", "-")}: pip install "vit-keras\[{extra}\]"'
    for call in (vit_keras.open, weights.describe, lambda p: weights.load(model, p)):
        with pytest.raises(ImportError, match=message):
            call(path)


@pytest.mark.parametrize(
    ("package", "suffix", "purpose"),
    [("safetensors", ".safetensors", "safetensors"), ("h5py", ".weights.h5", "Keras files")],
)
def test_missing_package_leaves_no_file(monkeypatch, tmp_path, package, suffix, purpose):
    monkeypatch.delitem(sys.modules, "safetensors.numpy", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    source = "timm" if suffix == ".safetensors" else "keras_hub"
    message = f"Writing {purpose} needs {package}: pip install"
    with pytest.raises(ImportError, match=message), other_numerics():
        weights.save(build(), tmp_path / f"a{suffix}", format=source)
    assert not list(tmp_path.iterdir())
