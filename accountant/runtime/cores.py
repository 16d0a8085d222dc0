"""Keeps all threads of the service on one core (Linux).

Python runs one thread of a process at a time. Where the event loop and the thread of a queue take
turns on two cores, neither finds in the caches of its core what the other has just written, and a
grant takes a tenth more processor time (ADR 0024).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

_CHOOSING: Final = 0.05  # Seconds in which the system may move the threads to any core
_STAY: Final = 5.0  # Seconds on one core: a second busy process may have come to it meanwhile
_TASKS: Final = Path("/proc/self/task")
_CORE: Final = 36  # The field of /proc/self/stat, after the name, with the main thread's core
USABLE: Final = frozenset(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ())
"""The cores that this process was started on."""


def share_one_core() -> None:
    """Keep the threads on the core that the system gives to the main one every few seconds."""
    if len(USABLE) > 1:  # none are known on another system
        threading.Thread(target=_stay, name="cores", daemon=True).start()


def _stay() -> None:
    with suppress(OSError):  # it is forbidden here
        while True:
            _allow(USABLE)
            time.sleep(_CHOOSING)
            _allow([_core()])
            time.sleep(_STAY)


def _allow(cores: Collection[int]) -> None:
    """Let all threads run on ``cores``; a new thread may run where the one that starts it may."""
    for task in os.listdir(_TASKS):
        with suppress(ProcessLookupError):
            os.sched_setaffinity(int(task), cores)


def _core() -> int:
    _, _, fields = Path("/proc/self/stat").read_text().rpartition(")")
    return int(fields.split()[_CORE])
