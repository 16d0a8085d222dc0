"""What is used of each limit over time, for the burn-down pictures.

A series keeps a few hundred points, however many events there are. Reading the peak cell costs as
much as there are cells, so it is read only for the points that are kept: at first for every event;
whenever the series is full, every second point goes, and half as many events are read from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accountant.budget.accounts.sums import Sums
from accountant.budget.facts import grant_in
from accountant.budget.grants import Grant
from accountant.budget.outcome import RESERVED
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import AccountKey, State, account_key, matches
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import Currency, amount, show
from accountant.reporting.history import BOOKING, RECOVERED, REVALUED, SETTLING
from accountant.reporting.peak_cell import Ruler
from accountant.reporting.schema import PointFacts, SeriesFacts
from accountant.reporting.statement import adopted

MOST_POINTS: Final = 400
FEW_POINTS: Final = 100
MANY_CELLS: Final = 10_000
"""From so many cells on a series has at most FEW_POINTS points."""

_ADOPTED: Final = "policy.adopted.v1"
_CARRIED: Final = "ledger.carried_over.v1"
_ALL_DATASETS: Final = frozenset({_ADOPTED, "dataset.registered.v1", _CARRIED, RECOVERED})
"""May change what is used of every dataset."""
_ALL_GRANTS: Final = frozenset({_ADOPTED, "population.extended.v1", _CARRIED, RECOVERED})
"""May change what any open grant holds."""


class Held:
    """What open grants hold in each account, kept up with the events. Adding it up anew for each
    point would take as long as there are open grants.
    """

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._sums: dict[AccountKey, Sums] = {}

    def add(self, state: State, event: Event) -> None:
        """Follow one event that the state has folded in."""
        if event.type == RESERVED:
            grant = state.open[grant_in(event)]
            self._grants[grant.id] = grant
            self._book(state, grant, 1)
        elif event.type in SETTLING:
            self._book(state, self._grants.pop(grant_in(event)), -1)
        elif event.type in _ALL_GRANTS:
            self._grants, self._sums = dict(state.open), {}
            for grant in self._grants.values():
                self._book(state, grant, 1)

    def of(self, key: AccountKey) -> Sums | None:
        """Return what open grants hold in one account; None if nothing."""
        sums = self._sums.get(key)
        holds = sums is not None and (any(sums.most()) or any(sums.most_infinite()))
        return sums if holds else None

    def _book(self, state: State, grant: Grant, sign: int) -> None:
        for key, booked in grant.bookings:
            if (sums := self._sums.get(key)) is None:
                shape = state.accounts[key].used.shape
                sums = self._sums[key] = Sums(len(booked.axis), shape)
            sums.add(grant.selection, booked.finite, booked.infinite, sign)


@dataclass(slots=True)
class Series:
    """The points of one rule on one dataset; one in ``every`` events on it is a point."""

    points: list[PointFacts] = field(default_factory=list)
    every: int = 1
    seen: int = 0
    most: int = MOST_POINTS

    def due(self) -> bool:
        """Count an event; return True if it is a point."""
        self.seen += 1
        return (self.seen - 1) % self.every == 0

    def add(self, point: PointFacts) -> None:
        """Append a point, and thin the series if it is full."""
        self.points.append(point)
        if len(self.points) >= self.most:
            self.points = self.points[::2]
            self.every *= 2


class Burndowns:
    """The series of every limit rule on data; a client's limit has none."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str], Series] = {}
        self._rulers: dict[str, Ruler] = {}
        self._held = Held()

    def add(self, state: State, event: Event) -> None:
        """Add the points that ``event``, already folded in, is due for."""
        self._held.add(state, event)
        if event.type == _ADOPTED:
            policy = adopted(state)
            self._rulers = {r.id: Ruler(r, policy.epochs[r.id]) for r in policy.policy.limits}
        if state.adopted is None:
            return
        keys = {k: r for dataset in _touched(state, event) for r, k in _keys(state, dataset)}
        most = MOST_POINTS if state.people().cells < MANY_CELLS else FEW_POINTS
        for key, rule in keys.items():
            series = self._series.setdefault((rule.id, key.dataset), Series(most=most))
            if series.due():
                series.add(self._point(state, event.sequence, event.time, rule, key))

    def series(self, state: State) -> tuple[SeriesFacts, ...]:
        """Return the series of every rule in force, each with a point at the ledger's end."""
        found: dict[tuple[str, str], SeriesFacts] = {}
        for dataset in state.datasets if state.adopted else ():
            for rule, key in _keys(state, dataset):
                place = rule.id, key.dataset
                series = self._series.get(place, Series())
                points = tuple(series.points)
                if not points or points[-1].sequence < state.sequence - 1:
                    last = self._point(state, state.sequence - 1, state.time, rule, key)
                    points = (*points, last)
                found[place] = SeriesFacts(*place, series.every, points)
        return tuple(found[place] for place in sorted(found))

    def _point(
        self, state: State, sequence: int, time: int, rule: LimitRule, key: AccountKey
    ) -> PointFacts:
        account, ruler = state.seen(key), self._rulers[rule.id]
        used, reserved = account.used.stacked(), self._held.of(key)
        held = ruler.worst(used)
        spent = held if reserved is None else ruler.worst(used - reserved.stacked())
        return PointFacts(
            sequence=sequence,
            time=rfc3339(time),
            limit=show(ruler.capacity.epsilon, Currency.EPSILON),
            spent=amount(spent.epsilon, Currency.EPSILON),
            spent_and_reserved=amount(held.epsilon, Currency.EPSILON),
            epoch=key.epoch,
        )


def _touched(state: State, event: Event) -> list[str]:
    """Return the datasets of which ``event`` may change what is used."""
    if event.type in BOOKING or event.type == REVALUED:
        return [event.body["command"]["dataset"]]
    if event.type in SETTLING:
        return [state.grants[grant_in(event)].dataset]
    return list(state.datasets) if event.type in _ALL_DATASETS else []


def _keys(state: State, dataset: str) -> list[tuple[LimitRule, AccountKey]]:
    policy = adopted(state)
    return [
        (rule, account_key(rule, policy.epochs[rule.id].number, dataset, ""))
        for rule in policy.policy.limits
        if rule.per is None and matches(rule.datasets, dataset)
    ]
