"""When open grants expire, soonest first: who asks every second what is due looks at that alone,
however many are open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush


class Calendar:
    """Names of grants by when they expire. A grant that has ended is left in it until it would be
    due: to look for it sooner would take longer.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, str]] = ()) -> None:
        self._entries = list(entries)
        heapify(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, expires: int, name: str) -> None:
        """A grant was opened."""
        heappush(self._entries, (expires, name))

    def due(self, now: int, most: int, expires: Callable[[str], int | None]) -> list[str]:
        """At most so many of those whose time has passed ``now``, soonest first. ``expires`` says
        when an open grant does; None if it is not open.
        """
        entries, found = self._entries, dict[str, int]()
        while entries and entries[0][0] <= now and len(found) < most:
            at, name = heappop(entries)
            if expires(name) == at:
                found[name] = at
        for name, at in found.items():  # open until somebody settles them
            self.put(at, name)
        return list(found)
