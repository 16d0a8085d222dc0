"""When Python looks for garbage: where there may be some, and seldom at all there is."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_YOUNG: Final = 10_000
"""Objects more before the young ones are looked through, which takes less than a millisecond. By
Python's own 700 most of them are still in use, for a batch is not through yet.
"""
_SELDOM: Final = 70
"""Collections of what has grown up before one of all there is: some seven million objects more."""


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
