"""Balances over time, for the burn-down pictures: a few hundred points however many events.

Reading the most charged cell costs as much as there are cells, so it is read only for the points
that are kept: every event at first; whenever the series is full, every second point goes and only
half as many events are read from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from accountant.budget.facts import grant_in
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import AccountKey, State, account_key, matches
from accountant.ledger.events import Event
from accountant.privacy.units import Currency, amount, show
from accountant.reporting.held import Held
from accountant.reporting.history import BOOKING, RECOVERED, REVALUED, SETTLING
from accountant.reporting.peak_cell import Ruler
from accountant.reporting.statement import adopted

MOST_POINTS: Final = 400
FEW_POINTS: Final = 100
MANY_CELLS: Final = 10_000
"""From so many cells on a series has only FEW_POINTS points."""

_WHOLE: Final = frozenset(
    {"policy.adopted.v1", "dataset.registered.v1", "ledger.carried_over.v1", RECOVERED}
)
"""What may move the balances of all datasets."""


@dataclass(frozen=True, slots=True)
class Point:
    """The balance after an event, in decimal strings. ``time`` is microseconds since 1970."""

    sequence: int
    time: int
    limit: str
    spent: str
    held: str
    """Spent and reserved together."""
    epoch: int


@dataclass(slots=True)
class Series:
    """One rule on one scope. ``every``: of the events that touch it, each so many is a point."""

    points: list[Point] = field(default_factory=list)
    every: int = 1
    seen: int = 0
    most: int = MOST_POINTS

    def due(self) -> bool:
        """Counts an event; true if its balance is to be read."""
        self.seen += 1
        return (self.seen - 1) % self.every == 0

    def add(self, point: Point) -> None:
        """Appends a point and thins the series if it is full."""
        self.points.append(point)
        if len(self.points) >= self.most:
            self.points = self.points[::2]
            self.every *= 2


class Burndowns:
    """The series of every limit rule that is about data, not about one client."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}
        self._rulers: dict[str, Ruler] = {}
        self._held = Held()

    def add(self, state: State, event: Event) -> None:
        """Takes the points that ``event``, already folded in, is due for."""
        self._held.add(state, event)
        if event.type == "policy.adopted.v1":
            policy = adopted(state)
            self._rulers = {r.id: Ruler(r, policy.epochs[r.id]) for r in policy.policy.limits}
        if state.adopted is None:
            return
        touched = {
            key: rule
            for dataset in self._touched(state, event)
            for rule, key in _keys(state, dataset)
        }
        most = MOST_POINTS if state.people().cells < MANY_CELLS else FEW_POINTS
        for key, rule in touched.items():
            series = self.series.setdefault((rule.id, key.dataset), Series(most=most))
            if series.due():
                series.add(self._point(state, event.sequence, event.time, rule, key))

    def close(self, state: State) -> None:
        """Ends the series of every rule in force at the ledger's end; drops the others."""
        kept = {}
        for dataset in state.datasets if state.adopted else ():
            for rule, key in _keys(state, dataset):
                series = self.series.get((rule.id, key.dataset), Series())
                kept[rule.id, key.dataset] = series
                last = series.points[-1].sequence if series.points else -1
                if last < state.sequence - 1:
                    point = self._point(state, state.sequence - 1, state.time, rule, key)
                    series.points.append(point)
        self.series = kept

    def _touched(self, state: State, event: Event) -> list[str]:
        if event.type in BOOKING or event.type == REVALUED:
            return [event.body["command"]["dataset"]]
        if event.type in SETTLING:
            return [state.grants[grant_in(event)].dataset]
        return list(state.datasets) if event.type in _WHOLE else []

    def _point(
        self, state: State, sequence: int, time: int, rule: LimitRule, key: AccountKey
    ) -> Point:
        account, ruler = state.seen(key), self._rulers[rule.id]
        used, reserved = account.used.stacked(), self._held.of(key)
        held = ruler.worst(used)
        spent = held if reserved is None else ruler.worst(used - reserved.stacked())
        return Point(
            sequence,
            time,
            show(ruler.capacity.epsilon, Currency.EPSILON),
            amount(spent.epsilon, Currency.EPSILON),
            amount(held.epsilon, Currency.EPSILON),
            key.epoch,
        )


def _keys(state: State, dataset: str) -> list[tuple[LimitRule, AccountKey]]:
    policy = adopted(state)
    return [
        (rule, account_key(rule, policy.epochs[rule.id].number, dataset, ""))
        for rule in policy.policy.limits
        if rule.per is None and matches(rule.datasets, dataset)
    ]
