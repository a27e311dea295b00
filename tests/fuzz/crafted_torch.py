"""PyTorch files with tensors of other kinds, and pickles that would run code."""

import collections
import io
import pathlib
import pickle
import zipfile
from collections.abc import Callable, Iterator

from tests.fuzz.craft import Craft
from tests.fuzz.crafted_archives import archive_cases, rewritten


class Runs:
    """Creates a file when it is unpickled."""

    def __init__(self, path, call=open):
        self.path, self.call = str(path), call

    def __reduce__(self):
        return (self.call, (self.path, "w") if self.call is open else (self.path,))


def trap(path: pathlib.Path) -> pathlib.Path:
    """The file that appears if a pickle ran."""
    return path.with_name("a pickle ran")


def _changed(change: Callable, legacy: bool = False):
    """Rewrites the state dict; `change` takes it, the name of its first matrix, and torch."""

    def spoil(path):
        import torch

        state = torch.load(path, weights_only=True)
        name = next(name for name, tensor in state.items() if tensor.ndim == 2)
        changed = change(state, name, torch)  # torch writes no hashes
        state = state if changed is None else changed
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)

    return spoil


def _tensor(make: Callable):
    """Replaces a matrix by what `make` makes of it and torch."""
    return _changed(lambda state, name, torch: state.update({name: make(state[name], torch)}))


def _to(kind: str):
    return _tensor(lambda x, torch: x.to(getattr(torch, kind)))


def _quantized(x, torch):
    return torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)


def _pickled(path, value):
    """Puts a pickle of anything in the place of the archive's own."""
    pickle_name = next(n for n in zipfile.ZipFile(path).namelist() if n.endswith("/data.pkl"))
    rewritten(path, lambda members: members.update({pickle_name: value}))


def _program(opcodes: bytes):
    return lambda path: _pickled(path, b"\x80\x02" + opcodes + b".")


def _shared(state, name, torch):
    """One storage of a megabyte that 300 tensors share."""
    block = torch.zeros(2**18)
    return {f"x{i}": block for i in range(300)} | state


def _large(path):
    """A record whose bytes a pickle claims to be more."""

    def change(members):
        key = next(name for name in members if name.endswith("/data/0"))
        members[key] = members[key][: len(members[key]) // 2]

    rewritten(path, change)


def _without(part: str):
    def change(members):
        del members[next(name for name in members if name.endswith(part))]

    return lambda path: rewritten(path, change)


def _legacy_claims(path):
    """A file of the old form whose storage claims 2**40 numbers."""
    import torch

    buffer = io.BytesIO()
    torch.save({"x": torch.zeros(77)}, buffer, _use_new_zipfile_serialization=False)
    path.write_bytes(buffer.getvalue().replace(b"KM", b"\x8a\x06\x00\x00\x00\x00\x00\x01"))


TENSORS: dict[str, Callable[[pathlib.Path], None]] = {
    **{kind: _to(kind) for kind in ("int32", "uint8", "bool", "complex64", "float8_e4m3fn")},
    "sparse": _tensor(lambda x, torch: x.to_sparse()),
    "compressed sparse": _tensor(lambda x, torch: x.to_sparse_csr()),
    "quantized": _tensor(_quantized),
    "meta": _tensor(lambda x, torch: x.to("meta")),
    "conjugate": _tensor(lambda x, torch: x.to(torch.complex64).conj()),
    "nested": _tensor(lambda x, torch: torch.nested.nested_tensor([x[0], x[0, :2]])),
    "needs a gradient": _tensor(lambda x, torch: x.requires_grad_()),
    "parameter": _tensor(lambda x, torch: torch.nn.Parameter(x)),
    "strides of another order": _tensor(lambda x, torch: x.t().contiguous().t()),
    "strides of 0": _tensor(lambda x, torch: torch.ones(1).as_strided((10**6, 10**6), (0, 0))),
    "empty axis beside a huge one": _tensor(lambda x, torch: torch.zeros(0, 2**40)),
    "NaN": _tensor(lambda x, torch: x * float("nan")),
    "list of tensors": _changed(lambda state, name, torch: list(state.values())),
    "tensor alone": _changed(lambda state, name, torch: state[name]),
    "names are numbers": _changed(lambda state, name, torch: dict(enumerate(state.values()))),
    "name twice": _changed(lambda state, name, torch: {**state, 1: state[name], "1": state[name]}),
    "name of control characters": _changed(
        lambda state, name, torch: {**state, "\x1b[2J\u202e": state[name]}
    ),
    "values that are no tensors": _changed(
        lambda state, name, torch: {**state, name: 5, "epoch": [None, {"x": 1.5}]}
    ),
    "nested state dicts": _changed(
        lambda state, name, torch: {"model": {"state_dict": {"model": state}}}
    ),
    "state dict in itself": _changed(lambda state, name, torch: _in_itself(state)),
    "shared storage": _changed(_shared),
    "old form": _changed(lambda state, name, torch: None, legacy=True),
    "old form that runs code": lambda path: _changed(
        lambda state, name, torch: {**state, "x": Runs(trap(path))}, legacy=True
    )(path),
    "old form that claims 2**40 numbers": _legacy_claims,
    "runs open": lambda path: _changed(lambda state, name, torch: {**state, "x": Runs(trap(path))})(
        path
    ),
    "a set and a counter": _changed(
        lambda state, name, torch: {**state, "x": collections.Counter("aab")}
    ),
    "pickle of open": lambda path: _pickled(path, pickle.dumps(Runs(trap(path)))),
    "record too short": _large,
    "without version": _without("/version"),
    "without data.pkl": _without("/data.pkl"),
    "without a record": _without("/data/0"),
    "program: nothing": _program(b""),
    "program: stack too short": _program(b"0" * 9),
    "program: memo of nothing": _program(b"h\x07"),
    "program: os.system": _program(b"cposix\nsystem\nX\x04\x00\x00\x00trueq\x00\x85q\x01R"),
    "program: 10**5 tuples": _program(b")" + b"\x85" * 10**5),
    "program: 10**5 lists": _program(b"]" * 10**5 + b"a" * (10**5 - 1)),
    "program: a text of 4 GB": _program(b"X\xff\xff\xff\xff"),
    "program: bytearray of 2**40": _program(
        b"c__builtin__\nbytearray\n\x8a\x06" + bytes(5) + b"\1\x85R"
    ),
    "program: doubled 60 times": _program(b"]" + b"q\x00h\x00h\x00\x86" * 60),
    "program: object that is its own state": _program(b"}q\x00X\x01\x00\x00\x00xh\x00s"),
}


def _in_itself(state):
    outer = collections.OrderedDict(state)
    outer["model"] = outer
    return outer


def torch_cases(subject: str) -> Iterator[Craft]:
    for name, spoil in TENSORS.items():
        yield Craft(subject, f"tensors: {name}", spoil)
    yield from archive_cases(subject)
