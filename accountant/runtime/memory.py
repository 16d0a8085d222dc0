"""Memory: when Python looks for garbage, and what the C library gives back."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_YOUNG: Final = 10_000
"""Objects more before the young ones are looked through, which takes less than a millisecond. By
Python's own 700 most of them are still in use, for a batch is not through yet.
"""
_SELDOM: Final = 70
"""Collections of what has grown up before one of all there is: some seven million objects more."""


_MAP_THRESHOLD, _TRIM_THRESHOLD, _ARENAS = -3, -1, -8
"""Parameters of glibc's mallopt (malloc.h)."""
_LARGE: Final = 128 * 1024


def give_back() -> None:
    """From now on what is freed goes back to the system, where glibc is the C library. By default
    it raises the size from which a block has pages of its own to that of the largest one freed, and
    keeps what request bodies leave behind: hundreds of megabytes after a crowd of large ones.
    """
    with suppress(OSError, AttributeError):  # another C library has no such call
        mallopt = ctypes.CDLL(None).mallopt
        for parameter, value in (
            (_MAP_THRESHOLD, _LARGE),
            (_TRIM_THRESHOLD, _LARGE),
            (_ARENAS, 2),
        ):
            mallopt(parameter, value)


@contextmanager
def not_looked_for() -> Iterator[None]:
    """While modules are loaded or long states read: many objects come and stay. To look through
    them again and again would take a sixth of the time.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def seldom() -> None:
    """From now on garbage is looked for where it is young. To look at all there is finds nothing,
    for what was read stays and what is decided leaves no cycles; it stops everybody for as long as
    that takes, a fifth of a second where there are many forms, and came every second under load.
    """
    gc.freeze()
    _, grown, _ = gc.get_threshold()
    gc.set_threshold(_YOUNG, grown, _SELDOM)
