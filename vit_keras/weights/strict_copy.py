"""Copying a checkpoint into a model, all of it or nothing."""

import dataclasses
import os
import warnings

import keras
import numpy as np

from vit_keras.layers.base import check_choice
from vit_keras.models import ImageModel
from vit_keras.resizing import (
    INTERPOLATIONS,
    adapt_patch_kernel,
    change_channels,
    resize_position_embeddings,
)
from vit_keras.weights.architectures import resnet as stems
from vit_keras.weights.architectures import vision_transformer as architecture
from vit_keras.weights.formats.base import Link, Numerics
from vit_keras.weights.weight_file import WeightFile

HEADS = ("keep", "drop", "reset")
HEAD = "head/"
POSITIONS, PATCHES = "posembed_input/pos_embedding", "embedding/kernel"
ROOTS = ("conv_root/kernel", "root_block/conv_root/kernel")
FITTED = (POSITIONS, PATCHES, *ROOTS)


def copy(model: keras.Model, file: WeightFile, head: str, interpolation: str | None) -> None:
    """Assigns the file's tensors to the model's variables, or raises and leaves them as they are.

    Shapes are compared from headers, and checksums, before the first variable changes; then one
    tensor at a time is in memory.
    """
    check_choice(head, HEADS, "head")
    numerics = file.numerics()
    if interpolation is None:
        interpolation = (numerics or Numerics()).interpolation
    check_choice(interpolation, INTERPOLATIONS, "interpolation")
    plan = _Plan(model, file, head, interpolation)
    plan.check()
    file.tensors.verify()
    for link in plan.links:
        plan.assign(link)
    if head == "reset":
        for path, variable in plan.variables.items():
            if path.startswith(HEAD):
                variable.assign(np.zeros(variable.shape, "float32"))
    if numerics is not None:
        adopt(model, numerics)
    if head == "keep":
        _warn_of_zero_head(plan.variables, file)


class _Plan:
    """What goes where, compared before anything is assigned."""

    def __init__(self, model, file, head, interpolation):
        self.model, self.file = model, file
        self.keep_head, self.interpolation = head == "keep", interpolation
        self.arch = file.format.describe(model)
        self.variables = {variable.path: variable for variable in model.weights}
        if len(self.variables) != len(model.weights):
            raise ValueError(f"Two variables of model {model.name!r} have one path; rename a layer")
        links = file.format.links(self.arch, set(file.names))
        self.links = [k for k in links if self.keep_head or not k.ours[0].startswith(HEAD)]
        self.shapes, self.fitted = file.shapes, {}

    def check(self):
        """One ValueError with a line for everything that does not fit."""
        faults = [fault for link in self.links for fault in self._faults(link)]
        faults += [
            f"not in the model: {self.file.names[name]}, {self.shapes[name]}"
            for name in self._left_over()
        ]
        linked = {path for link in self.links for path in link.ours}
        faults += [
            f"missing in the file: {path}, {tuple(variable.shape)} in the model"
            for path, variable in self.variables.items()
            if path not in linked and (self.keep_head or not path.startswith(HEAD))
        ]
        if faults:
            raise ValueError(self._title() + "\n  " + "\n  ".join(faults))

    def assign(self, link: Link):
        """Reads one link's tensors and assigns its variables."""
        arrays = self.fitted.get(link.ours[0])
        if arrays is None:
            arrays = link.read(*(self.file.read(name) for name in link.theirs))
        for path, array in zip(link.ours, arrays):
            self.variables[path].assign(np.ascontiguousarray(array))

    def _faults(self, link):
        ours = ", ".join(link.ours)
        absent = [name for name in link.theirs if name not in self.shapes]
        if absent:
            return [f"missing in the file: {name} -> {ours}" for name in absent]
        if link.ours[0] in FITTED:
            try:
                arrays = link.read(*(self.file.read(name) for name in link.theirs))
                self.fitted[link.ours[0]] = (self._fit(link.ours[0], *arrays),)
            except ValueError as error:
                return [f"{', '.join(link.theirs)} -> {ours}: {error}"]
            return []
        blank = [np.broadcast_to(np.float32(0), self.variables[p].shape) for p in link.ours]
        return [
            f"{name} -> {ours} is {self.shapes[name]} in the file, {wanted.shape} in the model"
            for name, wanted in zip(link.theirs, link.write(*blank))
            if not link.fits(self.shapes[name], wanted.shape)
        ]

    def _left_over(self):
        used = {name for link in self.links for name in link.theirs}
        form = self.file.format
        ignored = form.ignored + (() if self.keep_head else form.head)
        return [name for name in self.shapes if name not in used and not name.startswith(ignored)]

    def _fit(self, path, array):
        """Position embeddings on the model's grid, a patch kernel of its size and channels."""
        shape = tuple(self.variables[path].shape)
        if array.shape == shape:
            return array
        if array.ndim != len(shape) or array.shape[-1] != shape[-1]:
            raise ValueError(f"{array.shape} in the file, {shape} in the model")
        if path in ROOTS and array.shape[:2] == shape[:2]:
            return change_channels(array, shape[2])
        if path in ROOTS:
            raise ValueError(f"{array.shape} in the file, {shape} in the model")
        if path == PATCHES:
            how = {"bilinear": "bilinear_half_pixel"}.get(self.interpolation, self.interpolation)
            return adapt_patch_kernel(array, shape[:2], shape[2], how)
        token = self.arch.classifier == "token"
        rows, columns = self._grid(array.shape[1], token)
        if token and array.shape[1] == rows * columns:  # no slot for the class token: zero
            array = np.concatenate([np.zeros_like(array[:, :1]), array], axis=1)
        return resize_position_embeddings(
            array, (rows, columns), self.arch.grid, self.interpolation
        )

    def _grid(self, positions, token):
        """The file's rows and columns of patches."""
        possible = (positions, positions - token)
        found = _inferred(self.file)
        candidates = [self.arch.grid]
        if "image_size" in found:
            sizes = (found.get(key) for key in ("image_size", "patch_size", "resnet_layers"))
            candidates.insert(0, architecture.grid_of(*sizes))
        for rows, columns in candidates:
            if rows * columns in possible:
                return rows, columns
        raise ValueError(
            f"the file has {positions} positions of a grid that is not square and that no config "
            "beside it describes; open it with from_checkpoint(path, image_size=(height, width)) "
            "and change its size with vit_keras.models.with_image_size"
        )

    def _title(self):
        title = f"{self.file.path!r} ({self.file.format.name}) does not fit model "
        title += f"{self.model.name!r}"
        theirs = architecture.variant_name(_inferred(self.file))
        ours = architecture.variant_name(_sizes(self.model))
        if theirs != ours and theirs and ours:
            title += f": the file is for {theirs}, the model is {ours}"
        hint = '; head="drop" leaves the model\'s head as it is' if self._only_head() else ""
        return title + hint + ":"

    def _only_head(self):
        left = self._left_over()
        return self.keep_head and left and all(n.startswith(self.file.format.head) for n in left)


def _sizes(model):
    """What is known of a model, whatever the format."""
    for describe in (architecture.describe, stems.describe):
        try:
            return dataclasses.asdict(describe(model))
        except ValueError:
            continue
    return {}


def _inferred(file: WeightFile) -> dict:
    try:
        return file.infer()
    except ValueError:
        return {}


def adopt(model: keras.Model, numerics: Numerics) -> None:
    """Makes the model compute, and say that it prepares images, as the source of its weights."""
    architecture.set_numerics(model, numerics)
    if isinstance(model, ImageModel):
        model.preprocessing = numerics.preprocessing
        names = numerics.class_names
        if names is not None and len(names) == model.output_shape[-1]:
            model.class_names = tuple(names)


def _warn_of_zero_head(variables, file):
    kernel = variables.get(f"{HEAD}kernel")
    if kernel is not None and not np.any(keras.ops.convert_to_numpy(kernel)):
        warnings.warn(
            f"The classifier in {os.path.basename(file.path)!r} is all zero, as in the raw "
            "ImageNet-21k files: all classes get the same logit until it is trained",
            stacklevel=4,
        )
