"""The changes that an event makes in accounts, and the proof that they add up to the accounts.

Nothing is priced or decided here: a change is what the fold keeps with a grant, or a difference of
accounts before and after an event. The latter where an event does not add one charge to one group:
new cells inherit a largest sum, a dataset comes into the scope of a total, a recovery lifts cells
to a least sum, a new epoch starts from what another account holds. Cells with the same difference
are one group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.classes import Classes
from accountant.budget.accounts.integers import Integers
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.apply import apply, drop_journal, keep_journal
from accountant.budget.changes import Admit, Booked, End, Record, Reserve
from accountant.budget.grants import AccountKey
from accountant.budget.outcome import REGISTRATIONS
from accountant.budget.population.selection import EVERYONE, Selection, alike
from accountant.budget.reading import read
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.units import Axis, Charge
from accountant.store.ledgers import StoreError

_CARRIED: Final = ("ledger.carried_over.v1", "ledger.recovered.v1")
_ANYWHERE: Final = frozenset(
    (*_CARRIED, *REGISTRATIONS, "population.extended.v1", "charge.revalued.v1")
)
"""Events that may change any account."""


class ChargeRow(NamedTuple):
    """Units added to every cell of ``selection`` in one account: finite sums, then infinite."""

    key: AccountKey
    axis: Axis
    selection: Selection
    reserved: list[int]
    spent: list[int]


def applied(state: State, event: Event) -> list[ChargeRow]:
    """Fold ``event`` into ``state``; return its changes, and what windows have passed since."""
    return [*_passed(state, event.time), *_changed(state, event)]


def _passed(state: State, now: int) -> Iterator[ChargeRow]:
    """Yield what no longer counts in a window at the stamp ``now``, as negative changes."""
    for key, account in state.accounts.items():
        if isinstance(account, WindowAccount):
            known = len(account.passed)
            account.at(now)
            for part in account.passed[known:]:
                for cells, charge in part.charges.items():
                    selection = EVERYONE if cells.everyone else cells  # lasting or not
                    nothing = Charge().on(charge.axis)
                    yield _change(key, selection, reserved=nothing, spent=nothing - charge)


def _changed(state: State, event: Event) -> Iterator[ChargeRow]:
    opens = event.type == "policy.adopted.v1"
    if opens or event.type in _ANYWHERE:
        before = {} if opens else pictures(state, event.time)
        known = set(state.accounts) if opens else ()
        apply(state, read(state, event))
        for key, after in pictures(state, event.time).items():
            if key not in known:
                for selection, reserved, spent in differences(before.get(key), after):
                    yield ChargeRow(key, state.accounts[key].axis, selection, reserved, spent)
        return
    outcome = read(state, event)
    keep_journal(state)
    try:
        apply(state, outcome)
        booked = state.journal[-1].before if state.journal else None
    finally:
        drop_journal(state)
    yield from _booked(state, outcome.change, booked)


def _booked(state: State, change: object, before: Any) -> Iterator[ChargeRow]:
    """Yield what a request, or settling a grant, has booked in each account."""
    nothing = Charge()
    match change:
        case Reserve(grant):
            for key, added in _by_key(before.booked):
                cells = state.cells(key.unit, grant.selection)
                yield _change(key, cells, reserved=added, spent=nothing)
        case Admit(reserve=Reserve(grant)):
            for key, added in _by_key(before[1].booked):
                cells = state.cells(key.unit, grant.selection)
                yield _change(key, cells, reserved=added, spent=nothing)
        case Record(selection=selection):
            for key, added in _by_key(before.booked):
                cells = state.cells(key.unit, selection)
                yield _change(key, cells, reserved=nothing, spent=added)
        case End():
            grant, booked = before
            bookings = dict(grant.bookings)
            for key, added in _by_key(booked):
                held = bookings[key]
                back = nothing.on(held.axis) - held
                cells = state.cells(key.unit, grant.selection)
                yield _change(key, cells, reserved=back, spent=held + added)


def _by_key(booked: Iterable[Booked]) -> list[tuple[AccountKey, Charge]]:
    """Return what was added to each account, in the order of the keys."""
    return sorted({key: one.added for one in booked for key in one.keys}.items())


def _change(key: AccountKey, selection: Selection, *, reserved: Charge, spent: Charge) -> ChargeRow:
    axis = reserved.axis or spent.axis
    units = ([*on.finite, *on.infinite] for on in (reserved.on(axis), spent.on(axis)))
    return ChargeRow(key, axis, selection, *units)


class Picture(NamedTuple):
    """The sums of an account, reserved above spent: those of everyone, and of cells beside."""

    everyone: Integers
    cells: Integers | None
    used: Sums
    """Whose layout the cells have: they may be by class."""
    classes: Classes | None

    @classmethod
    def of(cls, account: Account, reserved: Sums | None) -> Picture:
        """Return what ``account`` holds now, and how much of that is only reserved."""
        used = account.used
        held = reserved or Sums(used.rows, used.space)
        both = np.concatenate([_everyone(held), _everyone(used) - _everyone(held)])
        if used.flat and held.flat:
            return cls(both, None, used, used.classes)
        cells = held.narrower()
        return cls(both, np.concatenate([cells, used.narrower() - cells]), used, used.classes)

    def by(self, classes: Classes) -> Integers:
        """Return the cells by the classes that there are now, of perhaps more cells."""
        if self.cells is None:
            return np.zeros((len(self.everyone), classes.count), dtype=np.int64)
        return classes.gathered(self.cells) if self.classes is None else classes.widened(self.cells)


def _everyone(sums: Sums) -> Integers:
    return np.array(sums.everyone + sums.everyone_infinite, dtype=np.int64)


def pictures(state: State, now: int) -> dict[AccountKey, Picture]:
    """Return what all accounts hold at stamp ``now``."""
    reserved = state.reserved()
    return {key: Picture.of(one.at(now), reserved.get(key)) for key, one in state.accounts.items()}


def differences(
    before: Picture | None, after: Picture
) -> Iterator[tuple[Selection, list[int], list[int]]]:
    """Yield (cells, reserved, spent) that, added to ``before``, make ``after``."""
    everyone = after.everyone - (0 if before is None else before.everyone)
    if everyone.any():
        yield EVERYONE, *_halves(everyone)
    beside = None if before is None else before.cells
    if after.cells is None and beside is None:
        return
    if (classes := after.used.classes) is not None:
        more = after.by(classes) - (0 if before is None else before.by(classes))
        for boxes, column in after.used.groups(more):
            yield Selection(everyone=False, boxes=boxes), *_halves(column)
        return
    cells = np.zeros_like(beside) if after.cells is None else after.cells.copy()
    if before is not None and before.cells is not None:  # there may be more cells after
        cells[tuple(slice(side) for side in before.cells.shape)] -= before.cells
    for boxes, column in alike(cells):
        yield Selection(everyone=False, boxes=boxes), *_halves(column)


def _halves(column: Integers) -> tuple[list[int], list[int]]:
    values = column.tolist()
    return values[: len(values) // 2], values[len(values) // 2 :]


class ChargeSums:
    """A sum for each account and group of cells, as any SQL engine adds up the same rows."""

    def __init__(self) -> None:
        self._of: dict[AccountKey, dict[Selection, Integers]] = {}

    def add(self, change: ChargeRow) -> None:
        """Add one change."""
        groups = self._of.setdefault(change.key, {})
        units = np.array(change.reserved + change.spent, dtype=np.int64)
        known = groups.setdefault(change.selection, units)
        if known is not units:
            known += units

    def agree(self, state: State) -> None:
        """Raise StoreError unless the sums are what every account holds in every cell."""
        for key, picture in pictures(state, state.time).items():
            everyone, cells = picture.everyone, picture.cells
            rows = len(everyone)
            added = Sums(rows, state.space)
            for selection, units in self._of.pop(key, {}).items():
                added.add(selection, units.tolist(), [0] * rows)
            cells = cells if state.classes is None else picture.by(state.classes)
            wide = everyone.reshape(-1, *(1,) * len(added.sides))
            held = wide + (0 if cells is None else cells)
            if not np.array_equal(added.cells(), np.broadcast_to(held, added.cells().shape)):
                raise StoreError(
                    f"the charges of {state.ledger} do not add up to what {tuple(key)} holds: "
                    "nothing is exported; run `accountant replay` on the ledger"
                )
        if self._of:
            raise StoreError(f"charges of {state.ledger} are in no account: {list(self._of)}")
