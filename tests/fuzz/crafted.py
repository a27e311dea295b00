"""Crafted files: forged archives, headers, pickles, groups, and bytes that are no weights at all.

`CRAFTS` holds, for some subjects, functions that take the path of a valid file and change the file.
"""

import collections
import io
import json
import pathlib
import pickle
import struct
import warnings
import zipfile
from collections.abc import Callable

import numpy as np

from tests.fuzz.damage import CONTENTS, put_text, rewritten, texts_of
from vit_keras.weights.containers.checks import KEY

Crafts = dict[str, Callable[[pathlib.Path], None]]
KERNEL = "embedding/kernel.npy"  # of the arrays that are replaced


def written(content: bytes):
    return lambda path: path.write_bytes(content)


def npy(descr: str = "'<f4'", shape: str = "(4, 4)", data: bytes = bytes(64)) -> bytes:
    """A `.npy` whose header claims something."""
    return with_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n", data)


def with_header(header: str, data: bytes = bytes(64)) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data


ARRAYS: dict[str, bytes] = {
    "negative shape": npy(shape="(-4, -4)"),
    "shape of 10**12": npy(shape="(1000000, 1000000)"),
    "shape of 70 axes": npy(shape=str((2,) * 4 + (1,) * 66)),
    "empty axis beside a huge one": npy(shape=f"(0, {10**12})", data=b""),
    "objects": npy("'O'", "(8,)", b"\x80\x04cposix\nsystem\n(S'true'\ntR."),
    "other byte order": npy("'>f4'"),
    "code": with_header("__import__('os').abort()\n"),
    "many brackets": with_header("(" * 9000),
    "header of 4 GB": b"\x93NUMPY\x02\x00" + b"\xff" * 4 + npy(),
    "empty": b"",
    "NaN": npy(shape="(4,)", data=np.full(4, np.nan, "<f4").tobytes()),
}


def _array(content: bytes):
    def change(members):
        name = next((name for name in (KERNEL, "embeddings.npy") if name in members), None)
        members[name or next(iter(members))] = content

    return lambda path: rewritten(path, change)


def _duplicate(path):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        name = archive.namelist()[0]
        archive.writestr(name, archive.read(name)[:-4] + b"\1\2\3\4")


def _bomb(path):
    """80 deflated megabytes in 80 kilobytes."""
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.npy", npy(shape=f"({20 * 2**20},)", data=bytes(80 * 2**20)))


def _patched(signature: bytes, offset: int, content: bytes):
    """Overwrites bytes after the first signature of a record in an archive."""

    def spoil(path):
        data = bytearray(path.read_bytes())
        place = (data.rindex if signature == END else data.index)(signature) + offset
        data[place : place + len(content)] = content
        path.write_bytes(bytes(data))

    return spoil


def _compressed(kind):
    return lambda path: rewritten(path, lambda members: None, compression=kind)


LOCAL, ENTRY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
ARCHIVES: Crafts = {
    "entry twice": _duplicate,
    "deflate bomb": _bomb,
    "LZMA": _compressed(zipfile.ZIP_LZMA),
    "deflate": _compressed(zipfile.ZIP_DEFLATED),
    "encrypted": _patched(ENTRY, 8, b"\x01\x00"),
    "wrong checksum": _patched(ENTRY, 16, b"\1\2\3\4"),
    "claims 3 GB": _patched(ENTRY, 24, b"\x00\x00\x00\xc0"),
    "offset elsewhere": _patched(ENTRY, 42, b"\x00\x00\x00\x70"),
    "name elsewhere in the local header": _patched(LOCAL, 30, b"zz"),
    "directory of 4 GB": _patched(END, 12, b"\xfe\xff\xff\xff"),
}


def _header(change: Callable):
    """Rewrites a safetensors header, without hashes; `change` takes it and the first tensors'."""

    def spoil(path):
        data = path.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header, data = json.loads(data[8 : 8 + length]), data[8 + length :]
        header["__metadata__"].pop(KEY, None)
        rows = [row for name, row in header.items() if name != "__metadata__"]
        text = change(header, sorted(rows, key=lambda row: row["data_offsets"]))
        text = json.dumps(header).encode() if text is None else text
        path.write_bytes(struct.pack("<Q", len(text)) + text + data)

    return spoil


def _row(**fields):
    return _header(lambda header, rows: rows[0].update(fields))


def _metadata(value):
    return _header(lambda header, rows: header.update(__metadata__=value))


def _text(text: bytes):
    return _header(lambda header, rows: text)


def _length(length: int):
    return lambda path: path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])


def _twice(header, rows):
    """The name of a matrix twice, with the axes of its shape reversed the second time."""
    name = next(name for name, row in header.items() if len(row.get("shape", ())) == 2)
    row = {**header[name], "shape": header[name]["shape"][::-1]}
    return (json.dumps(header)[:-1] + f", {json.dumps(name)}: {json.dumps(row)}}}").encode()


def _renamed(header, rows):
    header["\x1b[2J\0\u202e"] = header.pop(next(n for n in header if header[n] is rows[0]))


EMPTY = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
HEADERS: Crafts = {
    "overlapping tensors": _header(lambda h, rows: rows[1].update(rows[0])),
    "tensor twice": _header(_twice),
    "200,000 tensors": _header(lambda h, rows: h.update({f"x{i}": EMPTY for i in range(200_000)})),
    "offsets outside": _row(data_offsets=[0, 10**12], shape=[25 * 10**10]),
    "name of control characters": _header(_renamed),
    "note of brackets": _metadata({"vit_keras": "[" * 100_000}),
    "note of lists": _metadata({"vit_keras": '{"architecture": [], "numerics": []}'}),
    "header of 2**64 - 1 bytes": _length(2**64 - 1),
    "header of objects": _text(b'{"a":' * 100_000),
}


def _groups(change: Callable):
    """Changes the HDF5 in a `.keras` file, without its hash.

    `change` takes it, the path of its first data set, and h5py, and may return what takes the place
    of that data set.
    """

    def spoil(path):
        rewritten(path, lambda members: members.update({H5: edited(members[H5])}))

    def edited(content):
        import h5py

        with h5py.File(buffer := io.BytesIO(content), "r+") as file:
            names: list[str] = []
            file.visititems(lambda name, x: names.append(name) if hasattr(x, "dtype") else None)
            file.attrs.pop(KEY, None)
            if (made := change(file, names[0], h5py)) is not None:
                del file[names[0]]
                file[names[0]] = made
        return buffer.getvalue()

    return spoil


def _claims(shape, **options):
    def change(file, name, h5py):
        del file[name]
        file.create_dataset(name, shape, "f4", **options)

    return _groups(change)


def _virtual(file, name, h5py):
    layout = h5py.VirtualLayout(shape=(100,), dtype="f4")
    layout[:] = h5py.VirtualSource("other.h5", "x", shape=(100,))
    del file[name]
    file.create_virtual_dataset(name, layout)


def _deep(file, name, h5py):
    group = file["layers"]
    for _ in range(3000):
        group = group.create_group("a")


def _doubled(file, name, h5py):
    """Groups that hold the next one twice: 2**30 paths after thirty of them."""
    group = file["layers"]
    for i in range(30):
        group[f"b{i}"] = inner = group.create_group(f"a{i}")
        group = inner


def _named(value):
    """Another value for the attribute that names a layer."""
    return _groups(lambda file, name, h5py: file[name].parent.attrs.update(name=value))


H5 = "model.weights.h5"
GROUPS: Crafts = {
    "soft link": _groups(lambda file, name, h5py: h5py.SoftLink("/layers")),
    "external link": _groups(lambda file, name, h5py: h5py.ExternalLink("b.h5", "/x")),
    "virtual data set": _groups(_virtual),
    "data in another file": _claims((100,), external=[("raw", 0, 400)]),
    "complex numbers": _groups(lambda file, name, h5py: np.zeros((4, 4), "c8")),
    "references": _groups(lambda file, name, h5py: np.array([file.ref], dtype=h5py.ref_dtype)),
    "claims 400 GB in chunks": _claims((10**5, 10**6), chunks=(100, 100)),
    "a chunk of 2 GB": _claims((4, 4), chunks=(2**14, 2**15), maxshape=(None, None)),
    "empty axis beside a huge one": _claims((0, 2**40), maxshape=(0, 2**40)),
    "group in itself": _groups(
        lambda file, name, h5py: file["layers"].update(again=file["layers"])
    ),
    "groups doubled 30 times": _groups(_doubled),
    "3,000 groups deep": _groups(_deep),
    "name is bytes that are no UTF-8": _named(np.bytes_(b"\xff\xfe")),
    "name of control characters": _named("\x1b[2J\u202e"),
    "NaN": _groups(lambda file, name, h5py: np.full((4, 4), np.nan)),
}


class Runs:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


def trap(path: pathlib.Path) -> pathlib.Path:
    """The file that appears if a pickle ran."""
    return path.with_name("a pickle ran")


def _state(change: Callable, zipped: bool = True):
    """Rewrites a state dict, without hashes; `change` takes it, its first matrix, and torch."""

    def spoil(path):
        import torch

        state = torch.load(path, weights_only=True)
        matrix = next(tensor for tensor in state.values() if tensor.ndim == 2)
        runs = Runs(trap(path))
        changed = change(state, matrix, torch) if zipped else {**state, "x": runs}
        changed = {**state, "x": runs} if changed is Runs else changed
        torch.save(changed, path, _use_new_zipfile_serialization=zipped)

    return spoil


def _tensor(make: Callable):
    """Puts a tensor in the place of the first matrix."""
    return _state(lambda s, x, torch: {n: make(x, torch) if t is x else t for n, t in s.items()})


def _program(opcodes: bytes):
    """A program of pickle in the place of the archive's own."""

    def change(members):
        members[next(n for n in members if n.endswith("/data.pkl"))] = b"\x80\x02" + opcodes + b"."

    return lambda path: rewritten(path, change)


def _without_record(path):
    rewritten(path, lambda members: members.pop(next(n for n in members if n.endswith("/data/0"))))


def _legacy_claims(path):
    """A file of the old form whose storage claims 2**40 numbers."""
    import torch

    torch.save({"x": torch.zeros(77)}, buffer := io.BytesIO(), _use_new_zipfile_serialization=False)
    path.write_bytes(buffer.getvalue().replace(b"KM", b"\x8a\x06\x00\x00\x00\x00\x00\x01"))


def _in_itself(state, x, torch):
    outer = collections.OrderedDict(state)
    outer["model"] = outer
    return outer


STATES: Crafts = {
    **{
        kind: _tensor(lambda x, torch, kind=kind: x.to(getattr(torch, kind)))
        for kind in ("complex64", "float8_e4m3fn")
    },
    "sparse": _tensor(lambda x, torch: x.to_sparse()),
    "strides of another order": _tensor(lambda x, torch: x.t().contiguous().t()),
    "strides of 0": _tensor(lambda x, torch: torch.ones(1).as_strided((10**6, 10**6), (0, 0))),
    "empty axis beside a huge one": _tensor(lambda x, torch: torch.zeros(0, 2**40)),
    "NaN": _tensor(lambda x, torch: x * float("nan")),
    "list of tensors": _state(lambda state, x, torch: list(state.values())),
    "name twice": _state(lambda state, x, torch: {**state, 1: x, "1": x}),
    "nested state dicts": _state(lambda state, x, torch: {"model": {"state_dict": state}}),
    "state dict in itself": _state(_in_itself),
    "old form that runs code": _state(lambda *_: None, zipped=False),
    "old form that claims 2**40 numbers": _legacy_claims,
    "runs code": _state(lambda state, x, torch: Runs),
    "without a record": _without_record,
    "program: os.system": _program(b"cposix\nsystem\nX\x04\x00\x00\x00trueq\x00\x85q\x01R"),
    "program: 10**5 tuples": _program(b")" + b"\x85" * 10**5),
}
YAML: dict[str, bytes] = {
    "aliases without end": b"name: &a [*a]\n",
    "merges": b"a0: &a0 {seed: 1}"
    + b"".join(b"\na%d: &a%d {<<: [*a%d, *a%d]}" % (i, i, i - 1, i - 1) for i in range(1, 30)),
    "NUL": b"name: a\0b",
    "object of Python": b"name: !!python/object/apply:os.system [true]\n",
    "number of 5,000 digits": b"seed: " + b"1" * 5000,
    "two megabytes": b"# " + b"x" * 2**21,
    "list in a section's place": b"pretext:\n  dino: [1, x]\n",
}
# Files that are no file of weights at all.
BYTES: dict[str, bytes] = {
    "empty": b"",
    "zeros": bytes(5000),
    "pointer of git": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
    "end of an archive": b"PK\x05\x06" + bytes(18),
    "signature of HDF5": b"\x89HDF\r\n\x1a\n" + bytes(600),
}
LISTS = (
    b'{"x": [' + b"[]," * 2_000_000 + b"[]]}"
)  # half of the limit, and 25 times as large in memory

CRAFTS: dict[str, Crafts] = {
    "google .npz": {**{name: _array(ARRAYS[name]) for name in ARRAYS}, **ARCHIVES},
    "texts .npz": {name: _array(ARRAYS[name]) for name in ("objects", "NaN", "empty")},
    "timm .safetensors": HEADERS,
    "adapters .safetensors": {name: HEADERS[name] for name in HEADERS if "note" in name},
    "timm .pth": {**STATES, **ARCHIVES},
    "vit_keras .keras": {**GROUPS, **ARCHIVES},
    "huggingface folder, foreign": {"2,000,000 lists": lambda p: put_text(p, "config.json", LISTS)},
    "open_clip folder, foreign": {
        "no model": lambda path: put_text(path, "open_clip_config.json", '{"model_cfg": null}')
    },
    "step_000000010/meta.json": {
        "another step": lambda path: path.write_text(path.read_text().replace("10", "11", 1))
    },
    "configuration .yaml": {name: written(content) for name, content in YAML.items()},
}


def crafts(subject: str, path: pathlib.Path) -> Crafts:
    """All crafted files of a subject whose valid file or folder is at `path`."""
    of_text = path.is_dir() or path.suffix in (".json", ".yaml")
    tried = CONTENTS if "foreign" in subject or not path.is_dir() else ["brackets"]
    contents = {
        f"{name} is {what}": lambda path, name=name, what=what: put_text(path, name, CONTENTS[what])
        for name in texts_of(path)
        for what in tried
    }
    others: Crafts = {name: written(content) for name, content in BYTES.items()}
    others["pickle"] = lambda path: path.write_bytes(pickle.dumps(Runs(trap(path))))
    return {**CRAFTS.get(subject, {}), **(contents if of_text else others)}
