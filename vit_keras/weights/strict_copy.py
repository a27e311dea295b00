"""Copies a file of weights into a model, all of it or nothing."""

import dataclasses
import os
import warnings

import keras
import numpy as np

from vit_keras.layers.base import check_choice
from vit_keras.models import resizing_of
from vit_keras.tasks import CLASSES
from vit_keras.weights.architectures import (
    ResNetArchitecture,
    VisionTransformerArchitecture,
    family_name,
    variant_name,
)
from vit_keras.weights.containers.checks import fits
from vit_keras.weights.containers.tensor_hashes import check_fit, check_tensors
from vit_keras.weights.formats.base import Link
from vit_keras.weights.licenses import warn_of_license
from vit_keras.weights.numerics import adopt_numerics
from vit_keras.weights.other_sizes import has_sizes, inferred, resize
from vit_keras.weights.published.download import check_download
from vit_keras.weights.weight_file import WeightFile

MARGIN = 1e3  # how much larger sums of channels and resized numbers may be than those of a file
HEADS = ("keep", "drop", "reset")
HEADS_OF_CLASSES = ("head/", "head_dist/")


def copy_weights(
    model: keras.Model,
    file: WeightFile,
    head: str,
    interpolation: str | None,
    patch_interpolation: str | None,
) -> None:
    """Assigns the file's tensors to the model's variables, or raises and leaves them unchanged.

    Shapes (from headers), checksums, types and values are looked at before the first variable
    changes. One tensor at a time is in memory.
    """
    check_choice(head, HEADS, "head")
    numerics = file.numerics()
    resizing = resizing_of(model) if numerics is None else numerics.resizing
    resizing = resizing.replaced(interpolation, patch_interpolation)
    plan = _Plan(model, file, head, resizing)
    plan.check()
    file.tensors.verify()
    largest = check_tensors(file.path, file.tensors, plan.tensors())
    if not all(fits(np.array(MARGIN * largest), v.dtype) for v in plan.variables.values()):
        check_fit(plan.arrays(), repr(file.path))
    for part in (*file.paths, *file.config_files):
        check_download(part)
    for link in plan.links:
        plan.assign(link)
    if head == "reset":
        for path, variable in plan.variables.items():
            if _is_head(path):
                variable.assign(np.zeros(variable.shape, "float32"))
    if numerics is not None:
        task = numerics.task if head == "keep" else CLASSES
        adopt_numerics(model, dataclasses.replace(numerics, resizing=resizing, task=task))
    if head == "keep":
        _warn_of_zero_head(plan.variables, file)
    if file.format.name != "vit_keras":
        warn_of_license(file.path, inferred(file))


class _Plan:
    """Which tensor goes to which variable; compared before anything is assigned."""

    def __init__(self, model, file, head, resizing):
        self.model, self.file = model, file
        self.keep_head, self.resizing = head == "keep", resizing
        self.arch = file.format.architecture.from_model(model)
        self.variables = {variable.path: variable for variable in model.weights}
        if len(self.variables) != len(model.weights):
            raise ValueError(
                f"The variables of model {model.name!r} must have different paths. Received: two "
                "with the same path; rename a layer"
            )
        links = file.format.links(self.arch, set(file.names), file.config)
        self.links = [k for k in links if self.keep_head or not _is_head(k.ours[0])]
        self.shapes, self.resized = file.shapes, {}

    def check(self):
        """Raises one ValueError with a line for each difference."""
        faults = [fault for link in self.links for fault in self._faults(link)]
        faults += [
            f"not in the model: {self.file.names[name]}, {self.shapes[name]}"
            for name in self._unused()
        ]
        linked = {path for link in self.links for path in link.ours}
        faults += [
            f"missing in the file: {path}, {tuple(variable.shape)} in the model"
            for path, variable in self.variables.items()
            if path not in linked and (self.keep_head or not _is_head(path))
        ]
        if faults:
            raise ValueError(self._title() + "\n  " + "\n  ".join(faults))

    def tensors(self) -> list[str]:
        """The names in the file of the tensors that are assigned."""
        names = dict.fromkeys(name for link in self.links for name in link.theirs)
        return [self.file.names[name] for name in names]

    def arrays(self):
        """Yields the name of each tensor, what its variable gets, and the variable's type."""
        for link in self.links:
            for path, array in self._read_resized(link):
                yield f"{', '.join(link.theirs)} -> {path}", array, self.variables[path].dtype

    def assign(self, link: Link):
        """Reads one link's tensors and assigns its variables."""
        for path, array in self._read_resized(link):
            shape = self.variables[path].shape  # another one has a 0 that the file leaves out
            self.variables[path].assign(np.ascontiguousarray(np.broadcast_to(array, shape)))

    def _read_resized(self, link):
        arrays = self.resized.get(link.ours[0])
        return zip(link.ours, self._read(link) if arrays is None else arrays)

    def _read(self, link):
        """The link's tensors in the model's layout."""
        return link.read(*(self.file.read(name) for name in link.theirs))

    def _faults(self, link):
        ours = ", ".join(link.ours)
        absent = [name for name in link.theirs if name not in self.shapes]
        if absent:
            return [f"missing in the file: {name} -> {ours}" for name in absent]
        if has_sizes(link.ours[0]):
            try:
                self.resized[link.ours[0]] = self._resize(link)
            except ValueError as error:
                return [f"{', '.join(link.theirs)} -> {ours}: {error}"]
            return []
        blank = [np.broadcast_to(np.float32(0), self.variables[p].shape) for p in link.ours]
        return [
            f"{name} -> {ours} is {self.shapes[name]} in the file, {expected.shape} in the model"
            for name, expected in zip(link.theirs, link.write(*blank))
            if not link.fits(self.shapes[name], expected.shape)
        ]

    def _resize(self, link):
        """Reads the tensors of a link, in the model's sizes."""
        arrays = self._read(link)
        if not link.theirs:  # made for the model's grid
            return arrays
        grid = getattr(self.arch, "grid", None)  # a ResNet has none
        shapes = [tuple(self.variables[path].shape) for path in link.ours]
        return tuple(
            resize(path, array, shape, grid, self.file, self.resizing)
            for path, array, shape in zip(link.ours, arrays, shapes)
        )

    def _unused(self):
        used = {name for link in self.links for name in link.theirs}
        row = self.file.format
        ignored = row.ignored + (() if self.keep_head else row.head)
        return [name for name in self.shapes if name not in used and not name.startswith(ignored)]

    def _title(self):
        title = f"{self.file.path!r} ({self.file.format.name}) does not fit model "
        title += f"{self.model.name!r}"
        title += f": {foreign}" if (foreign := self.file.foreign) else ""
        theirs = variant_name(inferred(self.file))
        ours = variant_name(sizes_of(self.model))
        if theirs != ours and theirs and ours:
            title += f": the file is for {theirs}, the model is {ours}"
        elif (family := family_name(inferred(self.file))) != family_name(sizes_of(self.model)):
            title += f": the file has a model of family {family}" if family else ""
        hint = '; head="drop" leaves the model\'s head as it is' if self._only_head() else ""
        return title + hint + ":"

    def _only_head(self):
        """Whether the classifier is all of the file that the model has no place for."""
        names = self._unused()
        return self.keep_head and names and all(n.startswith(self.file.format.head) for n in names)


def _is_head(path):
    return path.startswith(HEADS_OF_CLASSES)


def sizes_of(model):
    """The arguments of the model's constructor; empty if they cannot be told."""
    for architecture in (VisionTransformerArchitecture, ResNetArchitecture):
        try:
            return architecture.from_model(model).arguments
        except ValueError:
            continue
    return {}


def _warn_of_zero_head(variables, file):
    kernel = variables.get("head/kernel")
    if kernel is not None and not np.any(keras.ops.convert_to_numpy(kernel)):
        warnings.warn(
            f"The classifier in {os.path.basename(file.path)!r} is all zero, as in the original "
            "ImageNet-21k files: all classes get the same logit until it is trained",
            stacklevel=4,
        )
