"""Hides TensorFlow from the process that imports this module, and tells which of our files want it.

`WANTED` lists the places in `vit_keras` that looked for it.
"""

import os
import sys

HIDDEN = ("tensorflow", "tf_keras", "keras_cv")
WANTED: list[str] = []


class Without:
    """A finder of modules that does not find the hidden ones."""

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in HIDDEN:
            return self.finder.find_spec(name, path, target)
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if f"{os.sep}vit_keras{os.sep}" in frame.f_code.co_filename:
            WANTED.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return None


assert not {*HIDDEN} & {*sys.modules}
sys.meta_path[:] = map(Without, sys.meta_path)
