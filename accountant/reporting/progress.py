"""How far somebody is with reading events, told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")
Progress = Callable[[int], object]
"""Is told how many more events were read."""
STEP: Final = 500
"""Events between two words about the progress."""


def silent(_: int) -> None:
    """Say nothing."""


def counted(events: Iterable[T], progress: Progress) -> Iterator[T]:
    """Yield the events, and tell how many were taken."""
    taken = 0
    for one in events:
        yield one
        taken += 1
        if taken % STEP == 0:
            progress(STEP)
    progress(taken % STEP)
