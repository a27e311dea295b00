"""A thread that writes checkpoints while training goes on."""

import threading
import warnings
from collections.abc import Callable

from vit_keras.training.distribution import ALONE, Topology


class CheckpointWriter:
    """Writes one checkpoint at a time, in a thread of each process that has something to write.

    The thread touches files alone. What the processes tell each other stays in their main threads,
    in the order of the calls. At the end of a `with` block, the last checkpoint is written; an
    error that ends the block does not hide behind one of the thread.

    Args:
        topology: The devices and processes of the run.

    Example:
        with CheckpointWriter() as writer:
            checkpoints.save(model, folder, 10, keep=2, writer=writer)
            train_further(model)
            checkpoints.save(model, folder, 20, keep=2, writer=writer)  # waits for the first
    """

    def __init__(self, topology: Topology = ALONE):
        self.topology = topology
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._several, self._written = False, threading.Event()

    def start(self, write: Callable[[threading.Event], None] | None, several: bool) -> None:
        """Calls `write` in a thread; every process must call `wait` before and after.

        Args:
            write: A function that is called with an event, which is set when every process has
                written its part; None if this process has nothing to write.
            several: Whether several processes write parts of this checkpoint.
        """
        self._several, self._written = several, threading.Event()
        if write is not None:
            self._thread = threading.Thread(
                target=self._run, args=(write, self._written), name="checkpoint", daemon=True
            )
            self._thread.start()

    def check(self) -> None:
        """Raises the error that has ended the thread, if there is one."""
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self) -> None:
        """Waits until the checkpoint is whole; every process must call it.

        Raises:
            OSError: The checkpoint could not be written. The earlier ones stay as they are.
        """
        if not self.topology.is_chief:
            self._join()  # before it says so
        if self._several:
            self._several = False
            self.topology.gather(0)
        self._join()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if error is None:
            self.wait()
            return
        try:  # the other processes may have ended
            self._join()
        except Exception as unwritten:
            warnings.warn(f"The last checkpoint is not whole: {unwritten}", stacklevel=2)

    def _join(self):
        if self._thread is not None:
            self._written.set()
            self._thread.join()
            self._thread = None
        self.check()

    def _run(self, write, written):
        try:
            write(written)
        except BaseException as error:  # `check` raises it in the main thread
            self._error = error
