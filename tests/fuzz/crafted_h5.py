"""HDF5 files with links, types and claims that no weights have, also inside `.keras` files."""

import io
import pathlib
import zipfile
from collections.abc import Callable, Iterator

import numpy as np

from tests.fuzz.craft import Craft
from tests.fuzz.crafted_archives import archive_cases, rewritten
from vit_keras.weights.containers.checks import KEY

H5 = "model.weights.h5"


def _changed(change: Callable):
    """Changes the HDF5 file; `change` takes it, the path of its first data set, and h5py."""

    def edit(target, folder):
        import h5py

        with h5py.File(target, "r+") as file:
            names: list[str] = []
            file.visititems(
                lambda name, item: names.append(name) if hasattr(item, "dtype") else None
            )
            for item in (file, *(file[name] for name in names)):
                item.attrs.pop(KEY, None)  # without hashes
            change(file, names[0], h5py, folder)

    def spoil(path):
        file = path / H5 if path.is_dir() else path
        if not zipfile.is_zipfile(file):
            return edit(file, file.parent)

        def inside(members):
            buffer = io.BytesIO(members[H5])
            edit(buffer, file.parent)
            members[H5] = buffer.getvalue()

        return rewritten(file, inside)

    return spoil


def _replaced(make: Callable):
    """Puts another thing in the place of a data set; `make` gets the file, its path and h5py."""

    def change(file, name, h5py, folder):
        del file[name]
        made = make(file, name, h5py, folder)
        if made is not None:
            file[name] = made

    return _changed(change)


def _virtual(file, name, h5py, folder):
    np.save(folder / "raw", np.zeros(100))
    layout = h5py.VirtualLayout(shape=(100,), dtype="f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(100,))
    file.create_virtual_dataset(name, layout)


def _external(file, name, h5py, folder):
    (folder / "raw").write_bytes(bytes(400))
    file.create_dataset(name, (100,), "f4", external=[(str(folder / "raw"), 0, 400)])


def _claims(shape, dtype="f4", **options):
    return _replaced(
        lambda file, name, h5py, folder: file.create_dataset(name, shape, dtype, **options) and None
    )


def _typed(dtype):
    return _replaced(lambda file, name, h5py, folder: np.zeros((4, 4)).astype(dtype))


def _group_in_itself(file, name, h5py, folder):
    file[f"layers/{'again'}"] = file["layers"]


def _doubled(file, name, h5py, folder):
    """Thirty groups, each of which holds the next one twice: 2**30 paths."""
    group = file["layers"]
    for i in range(30):
        inner = group.create_group(f"a{i}")
        group[f"b{i}"] = inner
        group = inner


def _deep(file, name, h5py, folder):
    group = file["layers"]
    for _ in range(3000):
        group = group.create_group("a")


def _wide(file, name, h5py, folder):
    for i in range(5000):
        file["layers"].create_group(f"a{i}/vars")


def _name(value):
    """Another value for the attribute that names a layer."""

    def change(file, name, h5py, folder):
        file[name].parent.attrs["name"] = value(h5py)

    return _changed(change)


def _vars_is_a_data_set(file, name, h5py, folder):
    group = file[name].parent.name
    del file[group]
    file[group] = np.zeros(4)


CHANGES: dict[str, Callable[[pathlib.Path], None]] = {
    "soft link": _replaced(lambda file, name, h5py, folder: h5py.SoftLink("/layers")),
    "soft link to itself": _replaced(lambda file, name, h5py, folder: h5py.SoftLink(f"/{name}")),
    "external link": _replaced(lambda file, name, h5py, folder: h5py.ExternalLink("b.h5", "/x")),
    "virtual data set": _replaced(_virtual),
    "data in another file": _replaced(_external),
    "group in a data set's place": _replaced(
        lambda file, name, h5py, folder: file.create_group(name) and None
    ),
    "type in a data set's place": _replaced(lambda file, name, h5py, folder: np.dtype("f4")),
    "nothing in a data set's place": _replaced(lambda file, name, h5py, folder: None),
    "data set without a space": _replaced(lambda file, name, h5py, folder: h5py.Empty("f4")),
    "one number": _typed("f4") and _replaced(lambda file, name, h5py, folder: np.float32(1)),
    "data set in a group's place": _changed(_vars_is_a_data_set),
    "layers is a data set": _changed(
        lambda file, name, h5py, folder: (file.pop("layers"), file.update(layers=np.zeros(3)))
    ),
    "no layers": _changed(lambda file, name, h5py, folder: file.pop("layers")),
    **{f"numbers of type {kind}": _typed(kind) for kind in ("i4", "?", "c8", "S3", "V7", "u1")},
    "references": _replaced(
        lambda file, name, h5py, folder: np.array([file.ref], dtype=h5py.ref_dtype)
    ),
    "texts of any length": _replaced(
        lambda file, name, h5py, folder: np.array(["a"], dtype=h5py.string_dtype())
    ),
    "claims 400 GB in chunks": _claims((10**5, 10**6), chunks=(100, 100)),
    "claims 2 GB": _claims((2**14, 2**15)),
    "claims 200 MB of zeros": _claims((50, 10**6), chunks=(50, 10**6), compression="gzip"),
    "a chunk of 2 GB": _claims((4, 4), chunks=(2**14, 2**15), maxshape=(None, None)),
    "empty axis beside a huge one": _claims((0, 2**40), maxshape=(0, 2**40)),
    "group in itself": _changed(_group_in_itself),
    "groups doubled 30 times": _changed(_doubled),
    "3,000 groups deep": _changed(_deep),
    "5,000 groups": _changed(_wide),
    "name is a number": _name(lambda h5py: 5),
    "name is a list": _name(lambda h5py: ["a", "b"]),
    "name is bytes that are no UTF-8": _name(lambda h5py: np.bytes_(b"\xff\xfe")),
    "name is empty": _name(lambda h5py: h5py.Empty("S1")),
    "name of slashes": _name(lambda h5py: "../../x"),
    "name of control characters": _name(lambda h5py: "\x1b[2J\u202e"),
    "name of 60 kB": _name(lambda h5py: "a" * 60_000),
    "NaN": _replaced(lambda file, name, h5py, folder: np.full((4, 4), np.nan)),
}


def h5_cases(subject: str) -> Iterator[Craft]:
    for name, spoil in CHANGES.items():
        yield Craft(subject, f"groups: {name}", spoil)
    if subject.endswith(".keras"):
        yield from archive_cases(subject)
