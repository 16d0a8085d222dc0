"""What a limit says of a form of request, from the atoms of its account.

The rules are those of ``limits.tightest`` and ``accounts.room``, on few integers instead of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accountant.budget.express.atoms import Atom, Member, Places
from accountant.budget.express.tallies import Tally
from accountant.budget.express.views import View, frontier, rows_of
from accountant.budget.limits import compared
from accountant.privacy.filters import Capacity
from accountant.privacy.units import LARGEST

GAUGES: Final = 10
"""Values that every event has beside those of its gauges, which follow."""
TEXTS: Final = 5
"""Values that a gauge reads: the used sums in three currencies, spent before and after."""


def first_of(gauge: int) -> int:
    """The slot of the first of a gauge's values."""
    return GAUGES + TEXTS * gauge


class Gauge:
    """One finding's comparison: a capacity, a charge, and an account."""

    __slots__ = (
        "_charge",
        "_first",
        "_most",
        "_second",
        "comparison",
        "fits",
        "member",
        "selection",
        "tally",
        "twin",
    )

    def __init__(
        self,
        tally: Tally,
        selection: int,
        capacity: Capacity,
        charge: Atom,
        before: Sequence[Gauge],
    ) -> None:
        self.tally = tally
        self.selection = selection
        self._charge = charge
        most = [m for _, m in compared(capacity)]
        self._second = len(most) > 2
        self._most = (most[0] - charge[0], most[1] - charge[2], most[-1] - charge[4])
        self.comparison = tally.comparison((*map(_bound, most), *[-1] * (3 - len(most))))
        """The number of the comparison with what is allowed, in its tally."""
        self.member: Member = ([], 0)
        """What was read last; ``fits``: because every atom can take the charge."""
        self.fits = False
        twins = [i for i, gauge in enumerate(before) if gauge.tally is tally]
        self.twin = before[twins[0]] if twins else None
        """An earlier gauge of the same request on the same account: it may have the same texts."""
        self._first = first_of(twins[0]) if twins else 0

    def read(self, values: list[bytes]) -> int:
        """Appends the texts; returns the comparisons' outcomes and the group as one number."""
        tally, twin = self.tally, self.twin
        view = tally.view(self.selection)
        self.fits = False
        if view is None:
            member = self._tightest(tally.places(self.selection))
        else:
            member = view.top or self._tightest_in(view)
        atom = member[0]
        self.member = member
        if twin is not None and twin.member is member:
            values += values[self._first : self._first + TEXTS]
            return member[1] << 3 | self._holds(atom)
        e, e_infinite, d, d_infinite, s, s_infinite = atom
        ce, ce_infinite, _, _, cs, cs_infinite = self._charge
        text, spent = tally.text, tally.spent
        before = None if e_infinite else e
        after = None if e_infinite or ce_infinite else e + ce
        if self._second:
            second = None if s_infinite else s
            more = None if s_infinite or cs_infinite else s + cs
            third = text(2, s, s_infinite)
            numbers = (third, spent(before, second), spent(after, more))
        else:
            numbers = (b"", spent(before, None), spent(after, None))
        values += (text(0, e, e_infinite), text(1, d, d_infinite), *numbers)
        return member[1] << 3 | self._holds(atom)

    def _holds(self, atom: Atom) -> int:
        """Bits: epsilon holds, delta holds, the gate's own currency holds."""
        e, e_infinite, d, d_infinite, s, s_infinite = atom
        charge, most = self._charge, self._most
        holds = 0
        if not (e_infinite or charge[1]) and e <= most[0]:
            holds = 1
        if not (d_infinite or charge[3]) and d <= most[1]:
            holds |= 2
        if self._second and not (s_infinite or charge[5]) and s <= most[2]:
            holds |= 4
        return holds

    def _tightest_in(self, view: View) -> Member:
        """``limits.tightest`` in one box: what has most fits, so that all fit, or each is tried."""
        epsilon, delta, second = view.most
        holds = self._holds
        if not (holds(delta) & 2 and (holds(epsilon) & 1 or holds(second) & 4)):
            return self._tightest(self.tally.places(self.selection))
        self.fits = True
        if self.twin is not None and self.twin.fits:
            return self.twin.member
        return self._most_spent(view.frontier)[1]

    def _tightest(self, places: Places) -> Member:
        """``limits.tightest``."""
        best: tuple[bool, int] | None = None
        found = places[0][1][0]
        for size, members in places:
            full = [member for member in members if not fits(self._holds(member[0]))]
            spent, member = 0, members[0]
            if size > 1:
                among = full or members
                rows = [rows_of(atom) for atom, _ in among]
                spent, member = self._most_spent([among[i] for i in frontier(rows)])
            rank = (bool(full), spent)
            if best is None or rank > best:
                best, found = rank, member
        return found

    def _most_spent(self, members: list[Member]) -> tuple[int, Member]:
        """``limits._most_spent``, of the members on the frontier."""
        most: int | None = None
        found, second = members[0], self._second
        for member in members:
            e, e_infinite, _, _, s, s_infinite = member[0]
            epsilon = None if e_infinite else e
            units = self.tally.units(epsilon, (None if s_infinite else s) if second else 0)
            if units is None:
                units = LARGEST + e_infinite
            if most is None or units > most:
                most, found = units, member
        return most or 0, found


def _bound(most: int) -> int:
    """What no sum tells from ``most``: sums are from 0 to ``LARGEST``."""
    return max(-1, min(most, LARGEST))


def fits(holds: int) -> bool:
    """Own delta fits, and epsilon fits or the gate's own currency fits."""
    return holds & 2 != 0 and holds & 5 != 0
