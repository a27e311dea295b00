"""Private names of Keras are used in one file, which accepts only versions that were tested."""

import re
import tomllib

import keras
import pytest

from tests.helpers import ROOT
from vit_keras.support import keras_internals


@pytest.mark.once
def test_another_version_of_keras_is_refused(monkeypatch):
    for version in ("3.14.1", "3.16.0", "4.0"):
        monkeypatch.setattr(keras, "__version__", version)
        with pytest.raises(ImportError, match=rf"{version}.*pip install \"keras>=3.15,<3.16\""):
            keras_internals.check_keras()


@pytest.mark.once
def test_the_package_requires_the_versions_that_are_checked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert keras_internals.REQUIREMENT in project["dependencies"]


@pytest.mark.once
def test_no_other_file_uses_these_names():
    file = ROOT / "vit_keras" / "support" / "keras_internals.py"
    names = {*re.findall(r"\.(_[a-z]\w+)", file.read_text())} - {"_kernel", "_value"}  # ours too
    private = re.compile(rf"(\.|def )({'|'.join(names)})\b|^from keras\.src", re.MULTILINE)
    assert len(names) > 20
    for path in (ROOT / "vit_keras").rglob("*.py"):
        assert path == file or not private.search(path.read_text()), path
