"""SIGTERM and Ctrl-C, which wait until a run can stop."""

import contextlib
import signal
import threading

from vit_keras import _command_line

EXIT_CODES = {number: 128 + number for number in (signal.SIGTERM, signal.SIGINT)}  # of a shell
NAMES = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}


class StopSignals:
    """The signals that ask a run to stop at the end of an update.

    Attributes:
        number: The signal that came first, or 0.
        begun: Whether an update has ended. Until then nothing is lost, and Ctrl-C has its usual
            effect.
    """

    def __init__(self):
        self.number, self.begun = 0, False

    @contextlib.contextmanager
    def collected(self):
        """Notes the first signal that comes while it is open; a second has its usual effect."""
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return
        previous = {number: signal.getsignal(number) for number in NAMES}

        def collect(number, _):
            signal.signal(number, previous[number])
            if number == signal.SIGINT and not self.begun:
                signal.raise_signal(number)
                return
            self.number = self.number or number
            if number == signal.SIGINT:
                _command_line.set_exit_code(EXIT_CODES[number])  # the next one ends the process

        for number, handler in previous.items():
            if handler is not signal.SIG_IGN:  # as the shell wants it for a job in the background
                signal.signal(number, collect)
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
