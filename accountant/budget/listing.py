"""Open grants in order, by client and dataset: who asks for a page looks at little else, however
many are open.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accountant.budget.grants import Grant

Filter = tuple[str | None, str | None]
"""A client and a dataset; None stands for all."""


class Listing:
    """Sequences of grants by filter, ascending. A grant that has ended is left in it until somebody
    comes by: to look for it sooner would take longer.
    """

    __slots__ = ("_entries",)

    def __init__(self, grants: Iterable[Grant] = ()) -> None:
        self._entries: dict[Filter, list[int]] = {}
        for grant in sorted(grants, key=lambda grant: grant.sequence):
            self.put(grant)

    def __len__(self) -> int:
        return len(self._entries.get((None, None), ()))

    def put(self, grant: Grant) -> None:
        """A grant was opened; it may be in the list already."""
        for client in (None, grant.by):
            for dataset in (None, grant.dataset):
                entries = self._entries.setdefault((client, dataset), [])
                at = bisect_left(entries, grant.sequence)
                if entries[at : at + 1] != [grant.sequence]:
                    entries.insert(at, grant.sequence)

    def page(
        self, wanted: Filter, after: int, most: int, opened: Mapping[str, Grant]
    ) -> list[Grant]:
        """At most so many of the grants in ``opened`` that pass the filter, by sequence, those
        beyond ``after``.
        """
        entries = self._entries.get(wanted, [])
        found: list[Grant] = []
        first = at = bisect_right(entries, after)
        while at < len(entries) and len(found) < most:
            grant = opened.get(f"g{entries[at]}")
            if grant is not None and _passes(grant, wanted):
                found.append(grant)
            at += 1
        entries[first:at] = [grant.sequence for grant in found]
        return found


def _passes(grant: Grant, wanted: Filter) -> bool:
    """It may be another one of that name: the first was not opened after all."""
    client, dataset = wanted
    return client in (None, grant.by) and dataset in (None, grant.dataset)
