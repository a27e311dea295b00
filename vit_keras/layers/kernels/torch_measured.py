"""Which of torch's implementations is faster on this machine: measured once, and kept.

A choice is kept in Keras' folder, so that a run that goes on computes the same bits.
"""

import json
import os
import pathlib
import tempfile
import time
from collections.abc import Callable
from typing import TypeVar

import torch

from vit_keras import machine

Choice = TypeVar("Choice", bound=tuple)  # a NamedTuple of booleans
GAIN = 1.05  # less than this is noise
# CPU time, which other work on the machine changes little; on Windows it is too coarse.
CLOCK = time.process_time if os.name == "posix" else time.perf_counter


def concerns(x: torch.Tensor) -> bool:
    """Whether such a choice is to be made: on CPUs, where torch does not compile the model."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def kept(name: str, kind: type[Choice], measure: Callable[[], Choice]) -> Choice:
    """The choice of this `kind` called `name`: what was measured before, or `measure()` now."""
    path = _record(name)
    return _read(path, kind) or _keep(path, measure())


def is_faster(new: Callable, old: Callable, operands: list[tuple], rounds: int) -> bool:
    """Whether `new` takes less time for all `operands`, in turns with `old`."""
    seconds = {new: [], old: []}
    for turn in range(rounds + 1):
        for function in (new, old):
            start = CLOCK()
            for arguments in operands:
                function(*arguments)
            if turn:  # the first allocates
                seconds[function].append(CLOCK() - start)
    return min(seconds[old]) > GAIN * min(seconds[new])


def _record(name) -> pathlib.Path:
    """The file of this machine, number of threads and version of torch."""
    threads = torch.get_num_threads()
    return machine.folder() / f"torch_{torch.__version__}_{name}_{threads}_threads.json"


def _read(path, kind: type[Choice]) -> Choice | None:
    """What was kept; None, and no file any more, where it cannot be read."""
    try:
        return kind(**json.loads(path.read_text()))
    except (ValueError, TypeError):
        path.unlink(missing_ok=True)
    except OSError:
        pass
    return None


def _keep(path, choice: Choice) -> Choice:
    """Writes `choice` unless another process was first, whose choice then holds for both."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:
            json.dump(choice._asdict(), file)
            file.flush()
            os.link(file.name, path)
    except FileExistsError:
        return _read(path, type(choice)) or choice
    except OSError:  # nowhere to write: the choice holds for this process
        pass
    return choice
