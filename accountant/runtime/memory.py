"""Memory: when Python looks for garbage, and what the C library gives back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_YOUNG: Final = 10_000
"""New objects before the young ones are collected, which takes less than a millisecond. At Python's
own 700 a batch is not through yet, and most of them are still in use.
"""
_SELDOM: Final = 70
"""Collections of the middle generation before one of all objects: some seven million new ones."""
_MAP_THRESHOLD, _TRIM_THRESHOLD, _ARENAS = -3, -1, -8
"""Parameters of glibc's mallopt (malloc.h)."""
_LARGE: Final = 128 * 1024


def give_back() -> None:
    """Have glibc give freed memory back to the system. By default it raises the size from which a
    block has pages of its own to that of the largest one freed, and keeps what request bodies leave
    behind: hundreds of megabytes after many large ones.
    """
    with suppress(OSError, AttributeError):  # another C library has no such call
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _LARGE)
        mallopt(_ARENAS, 2)


@contextmanager
def not_looked_for() -> Iterator[None]:
    """Collect no garbage while modules are loaded or long states read: many objects come and stay,
    and looking through them again and again would take a sixth of the time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def seldom() -> None:
    """Collect young garbage only, from now on. A collection of all objects finds nothing, for what
    was read stays and deciding leaves no cycles; it stops all threads for a fifth of a second, and
    came every second under load.
    """
    gc.freeze()
    _, grown, _ = gc.get_threshold()
    gc.set_threshold(_YOUNG, grown, _SELDOM)
