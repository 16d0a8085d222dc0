"""Tuning of the garbage collector and of the C library's allocator."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

YOUNG: Final = 10_000
"""New objects before a collection of the young ones, which takes less than a millisecond. After
Python's default of 700 most objects of a batch are still in use.
"""
YOUNG_OF_A_COMMAND: Final = 200_000
"""The same for a command, which ends soon: what its modules are made of is no garbage, and to look
through it takes a tenth of a short command's time.
"""
_SELDOM: Final = 70
"""Collections of the middle generation before one of all objects: some seven million new ones."""
_MAP_THRESHOLD, _TRIM_THRESHOLD, _ARENAS = -3, -1, -8  # Parameters of glibc's mallopt (malloc.h)
_LARGE: Final = 128 * 1024


def give_back() -> None:
    """Have glibc give freed memory back to the system. By default it raises the size above which a
    block has pages of its own to that of the largest block freed, and so keeps hundreds of
    megabytes after many large request bodies.
    """
    with suppress(OSError, AttributeError):  # another C library has no such call
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _LARGE)
        mallopt(_ARENAS, 2)


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage while modules are loaded or long states read: the new objects stay, and
    looking through them again and again would take a sixth of the time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def collect_rarely(young: int = YOUNG) -> None:
    """Collect young garbage only, from now on, after every ``young`` new objects. A collection of
    all objects finds nothing, since the state stays and deciding leaves no cycles; under load it
    came every second and stopped all threads for a fifth of one. Called while collection is paused,
    it spares what was made meanwhile the look that would end the pause.
    """
    gc.freeze()
    _, grown, _ = gc.get_threshold()
    gc.set_threshold(young, grown, _SELDOM)
