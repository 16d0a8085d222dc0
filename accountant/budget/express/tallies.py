"""Accounts as runs of events change them: by whole numbers that are written back in one step.

What is pending is a count for each form of event; the sums that findings compare are kept beside
it, in atoms. A finding's texts are remembered, for one event's sum after is the next one's before.
"""

from __future__ import annotations

from typing import Final

from accountant.budget.accounts import Account
from accountant.budget.express.atoms import Atom, Atoms, Places
from accountant.budget.express.grid import Grid
from accountant.budget.express.views import View, view
from accountant.budget.limits import compared
from accountant.budget.meter import Integers
from accountant.budget.population import Population
from accountant.budget.selection import Selection
from accountant.budget.state import Counted
from accountant.privacy.filters import Gate, Limit
from accountant.privacy.units import INFINITE, LARGEST, Currency, amount, show

Most = tuple[int, ...]
"""The most that a cell may hold, in three currencies; below zero where there is none."""

_INFINITE: Final = INFINITE.encode()
_REMEMBERED: Final = 16


class Count:
    """How often something was booked, how often of that it is still reserved; ``waits``: some of
    it has not been written back.
    """

    __slots__ = ("booked", "reserved", "waits")

    def __init__(self) -> None:
        self.booked = 0
        self.reserved = 0
        self.waits = False


class Pending:
    """What each count of ``of`` adds to the sums used and reserved in one account."""

    __slots__ = ("_booked", "_of", "_reserved", "_used", "_withheld", "selection", "waits")

    def __init__(
        self, of: Count, selection: Selection, used: Integers, withheld: Integers | None
    ) -> None:
        self._of, self.selection = of, selection
        self._used, self._withheld = used, withheld
        self._booked = self._reserved = 0
        self.waits = False

    def used(self) -> Integers | None:
        """What is pending of the sums used, which now counts as written."""
        booked, self._booked = self._of.booked - self._booked, self._of.booked
        self.waits = self._of.waits = False
        return self._used * booked if booked else None

    def withheld(self) -> Integers | None:
        """What is pending of the sums reserved, which now counts as written."""
        reserved, self._reserved = self._of.reserved - self._reserved, self._of.reserved
        return self._withheld * reserved if reserved and self._withheld is not None else None


def _add(sums: dict[Selection, Integers], selection: Selection, change: Integers | None) -> None:
    if change is not None:
        sums[selection] = sums[selection] + change if selection in sums else change


def _plus(left: list[int], right: list[int]) -> list[int]:
    return [a + b for a, b in zip(left, right, strict=True)]


class Tally:
    """One account, with the sums that findings compare; one that no rule reads has none of them."""

    __slots__ = (
        "_atoms",
        "_grid",
        "_inside",
        "_known",
        "_places",
        "_seen",
        "_spent",
        "_texts",
        "_units",
        "_upset",
        "_views",
        "_waiting",
        "account",
        "compared",
        "counted",
        "currencies",
        "odd",
    )

    def __init__(self, account: Account, counted: Counted | None) -> None:
        self.account = account
        self.counted = counted
        self.currencies = tuple(c for c, _ in compared(counted.epoch.capacity)) if counted else ()
        self.odd = False
        """It falls into too many atoms."""
        self.compared: list[Most] = []
        """What its sums are compared with."""
        self._grid: Grid | None = None
        self._atoms = Atoms(account, self.currencies)
        self._known: list[Selection] = []
        self._places: list[Places] = []
        self._inside: list[list[Atom] | None] = []
        self._seen = -1
        self._texts: list[tuple[int, bytes]] = [(0, b"0")] * 3
        self._spent: dict[tuple[int | None, int | None], bytes] = {}
        self._units: dict[tuple[int | None, int | None], int | None] = {}
        self._upset: list[list[int]] = []
        self._views: dict[int, View | None] = {}
        self._waiting: list[Pending] = []

    @property
    def room(self) -> int:
        """How many units more may be booked before a sum could wrap."""
        return LARGEST - max(self.account.bound)

    @property
    def limit(self) -> tuple[Gate, Limit]:
        """The rule's gate and limit, of an account that a rule reads."""
        if self.counted is None:
            raise ValueError("no rule reads this account")
        return self.counted.rule.filter, self.counted.epoch.limit

    @property
    def fresh(self) -> bool:
        """Nobody else has changed the account since its atoms were made."""
        return self._seen == self.account.used.changes

    def upset(self) -> None:
        """The atoms are not what the account says any more."""
        self._seen = -1

    def know(self, selection: Selection) -> int:
        """Tells ``selection`` apart from now on; returns its number."""
        if selection not in self._known:
            self._known.append(selection)
            self._seen = -1
        return self._known.index(selection)

    def look(self, people: Population) -> bool:
        """Makes the atoms anew; False if there are too many."""
        self.write()
        if self.odd or not self._atoms.look(self._known):
            self.odd = True
            return False
        self._places = [self._atoms.places(selection, people) for selection in self._known]
        self._inside = [self._atoms.within(selection) for selection in self._known]
        self._upset = [self._upset_by(selection) for selection in range(len(self._known))]
        self._views.clear()
        self._grid = None
        self._seen = self.account.used.changes
        return True

    def _upset_by(self, selection: int) -> list[int]:
        """The selections that have some of this one's atoms beside others: where all get the same,
        and finite, their order stays as it is.
        """
        mine = {id(atom) for atom in self._inside[selection] or ()}
        sets = [{id(atom) for atom in inside or ()} for inside in self._inside]
        return [number for number, theirs in enumerate(sets) if theirs & mine and theirs - mine]

    def wait(self, pending: Pending) -> None:
        """Will write it back."""
        if not pending.waits:
            pending.waits = True
            self._waiting.append(pending)

    def write(self) -> None:
        """Adds what is pending to the account, whose atoms have it already."""
        if not self._waiting:
            return
        fresh, account, n = self.fresh, self.account, len(self.account.axis)
        used: dict[Selection, Integers] = {}
        withheld: dict[Selection, Integers] = {}
        for pending in self._waiting:  # few selections, each added in one step
            _add(used, pending.selection, pending.used())
            _add(withheld, pending.selection, pending.withheld())
        self._waiting.clear()
        for selection, change in used.items():
            account.used.add(selection, change)
            account.bound = _plus(account.bound, change[:n].tolist())
        for selection, change in withheld.items():
            account.reserved.add(selection, change)
            account.held = _plus(account.held, change[:n].tolist())
        if fresh:
            self._seen = account.used.changes

    @property
    def atoms(self) -> list[Atom]:
        """All atoms, each set of cells that are not told apart once."""
        return self._atoms.all

    @property
    def grid(self) -> Grid:
        """The atoms that known selections consist of, if they are ``apart``."""
        if self._grid is None:
            self._grid = Grid(self._atoms.all, self._inside, self._places)
        return self._grid

    def comparison(self, most: Most) -> int:
        """The number of the comparison with ``most``, from now on."""
        if most not in self.compared:
            self.compared.append(most)
        return self.compared.index(most)

    def replace(self, sums: list[list[int]]) -> None:
        """Sets what the atoms have used, finite, in the three currencies."""
        for atom, finite in zip(self._atoms.all, sums, strict=True):
            atom[::2] = finite
        self._views.clear()

    def cell(self, group: int) -> tuple[int, ...] | None:
        """The cell that a finding on ``group`` names."""
        return self._atoms.cells[group]

    def places(self, selection: int) -> Places:
        """Where the atoms of a known selection lie."""
        return self._places[selection]

    def apart(self, selection: int) -> bool:
        """A known selection has atoms of its own: what is booked on it can be told apart."""
        return self._inside[selection] is not None

    def view(self, selection: int) -> View | None:
        """What there is to see of a known selection, if it is one box."""
        if selection not in self._views:
            places = self._places[selection]
            self._views[selection] = view(places[0][1]) if len(places) == 1 else None
        return self._views[selection]

    def book(self, selection: int, change: Atom) -> None:
        """Adds to the atoms of a known selection."""
        a, b, c, d, e, f = change
        if b or d or f:
            self._views.clear()
        for other in self._upset[selection]:
            self._views.pop(other, None)
        for atom in self._inside[selection] or ():
            atom[0] += a
            atom[1] += b
            atom[2] += c
            atom[3] += d
            atom[4] += e
            atom[5] += f

    def text(self, i: int, finite: int, infinite: int) -> bytes:
        """A sum in the currency number ``i`` of those compared."""
        if infinite:
            return _INFINITE
        last, text = self._texts[i]
        if last != finite:
            text = show(finite, self.currencies[i]).encode()
            self._texts[i] = (finite, text)
        return text

    def units(self, epsilon: int | None, second: int | None) -> int | None:
        """The epsilon that the limit's gate makes of two sums; None is infinite."""
        place = epsilon, second
        if place not in self._units and self.counted is not None:
            if len(self._units) >= _REMEMBERED:
                self._units.clear()
            gate, limit = self.counted.rule.filter, self.counted.epoch.limit
            self._units[place] = gate.spent(limit, epsilon, second)
        return self._units[place]

    def spent(self, epsilon: int | None, second: int | None) -> bytes:
        """``units`` in words."""
        found = self._spent.get((epsilon, second))
        if found is None:
            if len(self._spent) >= _REMEMBERED:
                self._spent.clear()
            found = amount(self.units(epsilon, second), Currency.EPSILON).encode()
            self._spent[epsilon, second] = found
        return found
