"""Signals to a program that runs another one."""

from __future__ import annotations

import os
import signal
import subprocess
from types import FrameType
from typing import Any, Final, Self

_PASSED_ON: Final = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2")
_OF_THE_KEYBOARD: Final = ("SIGINT", "SIGQUIT")


class Signals:
    """Passes signals on to the child while there is one. Before and after it notes them, so that a
    grant is settled first; the second of a kind then ends this program at once. Signals that are
    ignored stay so, for the child as well.
    """

    def __init__(self) -> None:
        self.noted: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:  # else no exit code would be left
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for name in _PASSED_ON:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._came)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def waited(self, child: subprocess.Popen[bytes]) -> int:
        """Pass on what was noted and what comes, until the child ends. Return how it ended."""
        self._child = child
        while self.noted:
            child.send_signal(self.noted.pop(0))
        code = child.wait()
        self._child = None
        return code

    def _came(self, number: int, _: FrameType | None) -> None:
        if self._child is not None:
            if not _reached_both(number):
                self._child.send_signal(number)
        elif number in self.noted:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            self.noted.append(number)


def _reached_both(number: int) -> bool:
    """Return whether a signal of the keyboard has reached the child as well: a terminal sends it
    to all processes in its foreground.
    """
    if number not in [getattr(signal, name, None) for name in _OF_THE_KEYBOARD]:
        return False
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
