"""The use of each limit over time: a few hundred points, however many events there are."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from accountant.budget.accounts.sums import Sums
from accountant.budget.ancestors import related_in
from accountant.budget.facts import grant_in
from accountant.budget.grants import Grant
from accountant.budget.outcome import ADMITTED, REGISTRATIONS, RESERVED
from accountant.budget.reach import by_now, reach_in
from accountant.budget.state import AccountKey, Counted, State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import Currency, amount, show
from accountant.reporting.history import ADOPTED, BOOKING, RECOVERED, REVALUED, SETTLING
from accountant.reporting.peak_cell import Ruler
from accountant.reporting.schema import PointFacts, SeriesFacts

MOST_POINTS: Final = 400
FEW_POINTS: Final = 100
MANY_CELLS: Final = 10_000
MANY_DATASETS: Final = 100
"""From so many cells or datasets on a series has at most FEW_POINTS points."""

_ALL_GRANTS: Final = {
    ADOPTED,
    "population.extended.v1",
    *REGISTRATIONS,
    "ledger.carried_over.v1",
    RECOVERED,
}
"""Events that may change the bookings of any open grant."""
_ALL_DATASETS: Final = {ADOPTED, "ledger.carried_over.v1", RECOVERED}
"""Events that may change the use of every dataset."""


class Held:
    """The sums that open grants hold in each account of a limit, followed by event."""

    def __init__(self) -> None:
        self._grants: dict[str, Grant] = {}
        self._sums: dict[AccountKey, Sums] = {}
        self._count = Counter[AccountKey]()
        """How many grants are in each."""

    def add(self, state: State, event: Event) -> None:
        """Follow one event that the state has folded in."""
        if event.type in (RESERVED, ADMITTED):
            grant = self._grants[grant_in(event)] = state.open[grant_in(event)]
            self._book(state, grant, 1)
        elif event.type in SETTLING:
            self._book(state, self._grants.pop(grant_in(event)), -1)
        elif event.type in _ALL_GRANTS:
            self.anew(state)

    def anew(self, state: State) -> None:
        """Add up all open grants."""
        self._grants, self._sums = dict(state.open), {}
        self._count.clear()
        for grant in self._grants.values():
            self._book(state, grant, 1)

    def of(self, key: AccountKey) -> Sums | None:
        """Return the sums that open grants hold in one account; None if they hold nothing."""
        return self._sums[key] if self._count[key] else None

    def _book(self, state: State, grant: Grant, sign: int) -> None:
        for key, booked in grant.bookings:
            if not key.rule:
                continue
            self._count[key] += sign
            if (sums := self._sums.get(key)) is None:
                space = state.accounts[key].used.space
                sums = self._sums[key] = Sums(len(booked.axis), space)
            cells = state.cells(key.unit, grant.selection)
            sums.add(cells, booked.finite, booked.infinite, sign)


class Series(Struct):
    """The points of one limit. Whenever there are too many, every second one is dropped."""

    points: list[PointFacts] = []
    every: int = 1
    seen: int = 0
    """Events on the limit."""

    def due(self) -> bool:
        """Count an event; return whether its point is due."""
        self.seen += 1
        return (self.seen - 1) % self.every == 0

    def add(self, point: PointFacts, most: int) -> None:
        """Add a point."""
        self.points.append(point)
        if len(self.points) >= most:
            self.points = self.points[::2]
            self.every *= 2


class Burndowns:
    """The series of every limit rule on data; a client's limit has none."""

    def __init__(self) -> None:
        self._series: defaultdict[tuple[str, str], Series] = defaultdict(Series)
        self._rulers: dict[AccountKey, Ruler] = {}
        self.held = Held()
        """What open grants hold now."""

    def add(self, state: State, event: Event) -> None:
        """Add the points that ``event``, already folded in, is due for."""
        self.held.add(state, event)
        for counted in _limits(state, _touched(state, event)):
            series = self._series[counted.rule.id, counted.key.dataset]
            if series.due():
                many = len(state.datasets) >= MANY_DATASETS or state.people().cells >= MANY_CELLS
                most = FEW_POINTS if many else MOST_POINTS
                series.add(self._point(state, event.sequence, event.time, counted), most)

    def kept(self) -> list[tuple[str, str, Series]]:
        """Return the series, to write them down."""
        return [(*place, series) for place, series in self._series.items()]

    @classmethod
    def begun(cls, kept: Iterable[tuple[str, str, Series]], state: State) -> Burndowns:
        """Return what goes on from there, in the state of that moment."""
        made = cls()
        made._series.update(((rule, dataset), series) for rule, dataset, series in kept)
        made.held.anew(state)
        return made

    def points(self, rule: str, dataset: str) -> Sequence[PointFacts]:
        """Return the points of one limit so far."""
        return self._series[rule, dataset].points if (rule, dataset) in self._series else ()

    def every(self, rule: str, dataset: str) -> int:
        """Return of how many events on a limit one is a point."""
        return self._series[rule, dataset].every if (rule, dataset) in self._series else 1

    def series(self, state: State) -> tuple[SeriesFacts, ...]:
        """Return the series of every rule in force, each with a point at the ledger's end."""
        found = []
        for counted in _limits(state, state.datasets):
            place = counted.rule.id, counted.key.dataset
            points, every = self._series[place].points, self._series[place].every
            if not points or points[-1].sequence < state.last:
                points = [*points, self._point(state, state.last, state.time, counted)]
            found.append(SeriesFacts(*place, every, tuple(points)))
        return tuple(sorted(found, key=lambda one: (one.rule, one.dataset)))

    def _point(self, state: State, sequence: int, time: int, counted: Counted) -> PointFacts:
        key = counted.key
        if (ruler := self._rulers.get(key)) is None:
            ruler = self._rulers[key] = Ruler(counted.rule, counted.epoch)
        used, held = state.seen(key).used, self.held.of(key)
        spent = together = ruler.spent(used)
        if held is not None:
            spent = ruler.spent(used, held)
        return PointFacts(
            sequence=sequence,
            time=rfc3339(time),
            limit=show(ruler.capacity.epsilon, Currency.EPSILON),
            spent=amount(spent, Currency.EPSILON),
            spent_and_reserved=amount(together, Currency.EPSILON),
            epoch=key.epoch,
        )


def _touched(state: State, event: Event) -> Iterable[str]:
    """Return the datasets whose use ``event`` may change."""
    if event.type == REVALUED:
        first = event.body["command"]["event"]
        return by_now(state.datasets, reach_in(event.body).charged, first)
    if event.type in (*BOOKING, ADMITTED):
        return reach_in(event.body).charged
    if event.type in SETTLING:
        return state.grant(grant_in(event)).on.charged
    if event.type in REGISTRATIONS:
        related = related_in(event)
        return {event.body["command"]["id"], *related.made_from, *related.charged_with}
    return state.datasets if event.type in _ALL_DATASETS else ()


def _limits(state: State, datasets: Iterable[str]) -> Iterable[Counted]:
    """Return the accounts of the limit rules on some datasets, without those that only divide, or
    are about some cells.
    """
    limits = (counted for dataset in datasets for counted in state.limits_on((dataset,), ""))
    return {one.key: one for one in limits if not (one.rule.divides or one.rule.subjects)}.values()
