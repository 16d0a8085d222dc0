"""The statement of a dataset: what its most used group had spent when the period began, each charge
to that group, what it has spent at the end.

**Which sums.** People are apart by group, and the number of a limit is that of the group that has
used most of it. So the statement is of one cell, the peak at the closing, in the account of the
limit that is nearest to its end; without any limit, in the lifetime total. Its sums are integers,
read from the account before and after each event: opening and movements add up to the closing,
exactly, in the currency in which the limit compares the group. What they come to in epsilon, along
the line of that currency, is said beside.

**Parts.** When the limit changes, another epoch begins, which may keep other currencies and may
start from what was used before in another way. Each epoch is a part of the statement with an
opening and a closing of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from accountant.budget.accounts.classes import Cell
from accountant.budget.accounts.epochs import Epoch
from accountant.budget.batches import as_single
from accountant.budget.facts import client_in, grant_in, request_in, stated_by
from accountant.budget.outcome import RESERVED
from accountant.budget.reach import reach_in
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import ALL, AccountKey, Counted, State, lifetime
from accountant.ledger.events import Event
from accountant.privacy.filters import Line
from accountant.privacy.units import SURE, Axis
from accountant.reporting.history import ADOPTED, BOOKING, REVALUED, SETTLING
from accountant.reporting.peak_cell import Columns, Region, Ruler
from accountant.reporting.periods.cell import ALL_GRANTS, CellBook, Held, minus
from accountant.reporting.statement import balances, scopes
from accountant.reporting.texts import Texts

TIME: Final = "time"
"""Stands for the type of the event where sums change because time passes."""
OTHER: Final = "other"
"""What no event of a kind that is listed explains. There should never be any."""


class Asked(NamedTuple):
    """Who asked, on which datasets, about which group (as events hold it), what for."""

    by: str
    dataset: str = ""
    subjects: Any = None
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Movement:
    """A change of the sums of the cell: by an event, or because time passed (its sequence is then
    that of the next event). ``grant``: the one that it is about.
    """

    sequence: int
    time: int
    kind: str
    asked: Asked
    grant: str
    spent: tuple[int, ...]
    reserved: tuple[int, ...]


@dataclass(slots=True)
class Part:
    """The sums of the cell while one epoch counts. ``rule`` is None for the lifetime total."""

    rule: LimitRule | None
    epoch: Epoch | None
    axis: Axis
    since: int
    event: int | None
    """The event that began it within the period; None where it counted before."""
    opening: Held
    closing: Held
    until: int = 0
    movements: list[Movement] = field(default_factory=list)

    def line(self) -> tuple[Line | None, bool]:
        """Return the line that decides what the cell has spent at the end, None for the sum of
        epsilons; and whether it has spent less than the line shows.
        """
        if self.rule is None or self.epoch is None:
            return None, False
        return Ruler(self.rule, self.epoch).decides(self.closing.column())

    def epsilon(self, held: Held, *, spent: bool) -> int | None:
        """Return what sums of this part come to in epsilon, in units, None if infinite."""
        if self.rule is None or self.epoch is None:
            sums = held.spent if spent else held.used
            return None if sums[len(self.axis)] else sums[0]
        return Ruler(self.rule, self.epoch).worst(held.column(spent=spent)).epsilon


class Place(NamedTuple):
    """Where a statement reads: the account of a dataset, of whatever epoch, and the cell."""

    dataset: str
    key: AccountKey
    cell: Cell


class Subject(NamedTuple):
    """Whose statement it is: the limit of a dataset (None: its lifetime), and the peak cell."""

    dataset: str
    counted: Counted | None
    cell: Cell

    @property
    def place(self) -> Place:
        """Where it is read."""
        key = self.counted.key if self.counted else lifetime(self.dataset)
        return Place(self.dataset, key._replace(epoch=0), self.cell)


def subject_of(state: State, dataset: str) -> Subject:
    """Return the limit on a dataset that is nearest to its end, and the cell that has used most."""
    state.dataset(dataset)
    found = [
        one
        for one in scopes(state)
        if not one.rule.divides
        and one.rule.subjects is None
        and one.key.dataset in (dataset, ALL)
        and (one.key.dataset == dataset or one.rule.scope.holds(state.datasets[dataset]))
    ]
    own = [one for one in found if one.key.dataset == dataset] or found
    ranked = sorted(own, key=lambda one: _gravity(state, one))
    counted = ranked[0] if ranked else None
    key = counted.key if counted else lifetime(dataset)
    return Subject(dataset, counted, _peak(state, key, counted))


def _gravity(state: State, counted: Counted) -> tuple[bool, bool, float, str]:
    [total] = balances(state, counted, None)
    share = float("inf") if total.share is None else total.share
    return counted.rule.span is not None, counted.rule.action != "block", -share, counted.rule.id


def _peak(state: State, key: AccountKey, counted: Counted | None) -> Cell:
    """Return the first of the cells that have used most."""
    sums, classes = state.seen(key).used, state.classes
    if counted is None:
        infinite, finite = (
            np.broadcast_to(sums.row(0, infinite=counts), sums.sides).reshape(-1)
            for counts in (True, False)
        )
        among = np.flatnonzero(infinite == infinite.max())
        worst = int(among[finite[among].argmax()])
    else:
        worst = Ruler(counted.rule, counted.epoch).worst(Columns.of(sums)).cell
    shape = state.people().shape
    if classes is not None:
        about = Region(classes)
        return classes.first(about.selection, about.numbers[[worst]], classes.count)
    return tuple(map(int, np.unravel_index(worst, shape))) if shape else ()


_BEGIN: Final = frozenset({ADOPTED, "population.registered.v1"})
"""Events from which on something else may count."""
Counts = tuple[LimitRule, Epoch] | tuple[None, None]
"""The rule and the epoch of a part; Nones for the lifetime."""


class Statement:
    """Reads the movements on the way (``walk.Reader``)."""

    def __init__(self, place: Place, texts: Texts) -> None:
        self.parts: list[Part] = []
        self._place, self._texts = place, texts
        self._book: CellBook | None = None
        self._names: dict[str, Asked] = {}
        """By open grant."""
        self._last = Held((), ())

    def opens(self, state: State) -> None:
        """Begin with what counts at the start of the period."""
        if (found := self._counts(state)) is not None:
            self._begin(state, found, None)

    def comes(self, state: State, event: Event) -> None:
        """Note what stops counting before the event because time has passed."""
        if self._passes():
            state.now = event.time
            self._note(state, event.sequence, event.time, None)
            state.now = 0

    def came(self, state: State, event: Event, *, inside: bool) -> None:
        """Note what an event changes."""
        single = as_single(event)
        if single.type == RESERVED:
            self._remember(event, single)
        if inside and event.type in _BEGIN:
            self._change(state, event)
        if self._book is not None:
            touches = self._touches(single, event)
            self._book.add(state, event)
            if touches:
                self._note(state, event.sequence, event.time, event)
        if event.type in SETTLING:
            self._names.pop(grant_in(event), None)

    def close(self, state: State) -> None:
        """Finish at the stamp of the state."""
        if self._book is not None:
            kind = TIME if self._passes() else OTHER
            self._note(state, state.sequence, max(state.now, state.time), None, kind)
            self.parts[-1].until = max(state.now, state.time)

    def _counts(self, state: State) -> Counts | None:
        """Return the rule and the epoch that count now; Nones for the lifetime; None if the rule is
        not in force.
        """
        if state.population is None:
            return None
        if not self._place.key.rule:
            return None, None
        adopted = state.adopted
        rule = adopted.rule(self._place.key.rule) if adopted else None
        if adopted is None or not isinstance(rule, LimitRule):
            return None
        return rule, adopted.epochs[rule.id]

    def _begin(self, state: State, counts: Counts, event: int | None) -> None:
        rule, epoch = counts
        key = self._place.key
        if epoch is not None:
            key = key._replace(epoch=epoch.number)
        if self._book is None:
            self._book = CellBook(state, key, self._place.cell)
        else:
            self._book.turn_to(state, key)
        self._last = self._book.read(state)
        axis = SURE if epoch is None else epoch.axis
        since = max(state.time, state.now)
        self.parts.append(Part(rule, epoch, axis, since, event, self._last, self._last))

    def _change(self, state: State, event: Event) -> None:
        found = self._counts(state)
        now = self.parts[-1].epoch if self.parts and self._book is not None else None
        if found is not None and self._book is not None and (found[1] is None or found[1] == now):
            return  # the epoch goes on
        if self._book is not None:
            self.parts[-1].until = event.time
            self._book = None
        if found is not None:
            self._begin(state, found, event.sequence)

    def _passes(self) -> bool:
        part = self.parts[-1] if self._book is not None else None
        return part is not None and part.epoch is not None and part.epoch.window is not None

    def _touches(self, single: Event, event: Event) -> bool:
        if single.type == RESERVED or event.type in BOOKING:
            return self._reached(single)
        if event.type in SETTLING:
            return self._book is not None and self._book.holds(grant_in(event))
        return event.type in ALL_GRANTS or event.type == REVALUED

    def _reached(self, event: Event) -> bool:
        """Return whether a charge may count in the account."""
        dataset, key, _ = self._place
        return key.dataset == ALL or dataset in reach_in(event.body).charged

    def _note(
        self, state: State, sequence: int, time: int, event: Event | None, kind: str = TIME
    ) -> None:
        assert self._book is not None  # noqa: S101 for the type checker
        held = self._book.read(state)
        if held == self._last:
            return
        spent = minus(held.spent, self._last.spent)
        reserved = minus(held.reserved, self._last.reserved)
        asked, grant = Asked(""), ""
        if event is not None:
            kind = event.type
            asked, grant = self._told(as_single(event), event)
        part = self.parts[-1]
        part.movements.append(Movement(sequence, time, kind, asked, grant, spent, reserved))
        part.closing = self._last = held

    def _told(self, single: Event, event: Event) -> tuple[Asked, str]:
        if single.type == RESERVED:
            return self._names[grant_in(event)], grant_in(event)
        if event.type in BOOKING:
            return self._asked(event), ""
        if event.type in SETTLING:
            grant = grant_in(event)
            return self._names.get(grant, Asked(event.by)), grant
        return Asked(stated_by(event)), ""

    def _remember(self, event: Event, single: Event) -> None:
        if self._reached(single):
            self._names[grant_in(event)] = self._asked(event)

    def _asked(self, event: Event) -> Asked:
        command = request_in(self._texts.opened(event).body)
        dataset, purpose = command.get("dataset", ""), command.get("purpose")
        named = dataset if isinstance(dataset, str) else ", ".join(dataset)
        text = purpose if isinstance(purpose, str) else ""
        return Asked(client_in(event), named, command.get("subjects"), text)
