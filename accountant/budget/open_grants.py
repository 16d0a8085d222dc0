"""Indexes of open grants: by the time when they expire, and by client and dataset.

A grant that has ended stays in an index until a reader comes to it: to find it sooner would take
longer. However many grants are open, a reader looks at little more than it returns.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush


class Calendar:
    """Names of grants by the stamp at which they expire, the soonest first."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[tuple[int, str]] = ()) -> None:
        self._entries = list(entries)
        heapify(self._entries)

    def put(self, expires: int, name: str) -> None:
        """Add a grant that was opened."""
        heappush(self._entries, (expires, name))

    def due(self, now: int, most: int, expires: Callable[[str], int | None]) -> list[str]:
        """Return at most ``most`` grants whose time has passed ``now``, the soonest first.
        ``expires`` gives the stamp of an open grant; None if it is not open.
        """
        entries, found = self._entries, dict[str, int]()
        while entries and entries[0][0] <= now and len(found) < most:
            at, name = heappop(entries)
            if expires(name) == at:
                found[name] = at
        for name, at in found.items():  # open until somebody settles them
            self.put(at, name)
        return list(found)


Wanted = tuple[str | None, str | None]
"""A client and a dataset; None stands for all."""


class Listing:
    """Ascending sequences of grants by client and dataset."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Wanted, list[int]] = {}

    def __len__(self) -> int:
        return len(self._entries.get((None, None), ()))

    def put(self, sequence: int, by: str, on: str) -> None:
        """Add the grant of client ``by`` on dataset ``on``; it may be listed already."""
        for wanted in ((None, None), (by, None), (None, on), (by, on)):
            entries = self._entries.setdefault(wanted, [])
            at = bisect_left(entries, sequence)
            if entries[at : at + 1] != [sequence]:
                entries.insert(at, sequence)

    def page(
        self, wanted: Wanted, after: int, most: int, is_open: Callable[[int], bool]
    ) -> list[int]:
        """Return at most ``most`` sequences of wanted grants beyond ``after``. ``is_open`` says
        whether a grant is still open, and still one that is wanted.
        """
        entries, found = self._entries.get(wanted, []), list[int]()
        first = at = bisect_right(entries, after)
        while at < len(entries) and len(found) < most:
            if is_open(entries[at]):
                found.append(entries[at])
            at += 1
        entries[first:at] = found
        return found
