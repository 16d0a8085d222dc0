"""How many requests came each day, how they ended, and what a usual one costs."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from accountant.budget.batches import as_single
from accountant.budget.facts import SECOND, client_in, request_in
from accountant.budget.outcome import RECORDED, REFUSED, RESERVED, WAITING
from accountant.budget.reach import reach_in
from accountant.ledger.events import Event
from accountant.privacy.units import Charge, Currency

DAY: Final = 86_400 * SECOND
MOST_DAYS: Final = 400
"""Days that are counted; earlier ones are forgotten."""
LATEST: Final = 51
"""Requests of a dataset of which the usual one is the median."""
Ending = Literal["admitted", "flagged", "refused", "waiting", "recorded", "expired"]
EVERY: Final = "*"
"""All datasets: a request is counted once there, and on each dataset that it is charged to."""

_ENDINGS: Final[dict[str, Ending]] = {
    RESERVED: "admitted",
    REFUSED: "refused",
    RECORDED: "recorded",
    WAITING: "waiting",
    "grant.expired.v1": "expired",
}


class Usual(NamedTuple):
    """A request of the past: the epsilon that it was booked at, in units, and its command."""

    epsilon: int
    client: str
    command: dict[str, Any]


class ActivityKept(Struct, frozen=True):
    """What was collected, to write down: by day and dataset, and the latest requests."""

    days: dict[int, dict[str, dict[Ending, int]]]
    latest: dict[str, list[Usual]]


class Activity:
    """Collects from every event. Days are of UTC, numbered from 1970."""

    def __init__(self) -> None:
        self._days: dict[int, defaultdict[str, Counter[Ending]]] = {}
        self._latest: defaultdict[str, deque[Usual]] = defaultdict(lambda: deque(maxlen=LATEST))

    def add(self, event: Event) -> None:
        """Collect from one event."""
        event = as_single(event)
        if (ending := _ENDINGS.get(event.type)) is None:
            return
        datasets = () if ending == "expired" else reach_in(event.body).charged
        self._count(event.time // DAY, (EVERY, *datasets), ending)
        if ending in ("admitted", "recorded"):
            if event.body.get("fired"):
                self._count(event.time // DAY, (EVERY, *datasets), "flagged")
            self._remember(event, datasets)

    def within(self, first: int, last: int, dataset: str = EVERY) -> Counter[Ending]:
        """Return how requests on a dataset ended from day ``first`` to day ``last``."""
        found: Counter[Ending] = Counter()
        for day in range(first, last + 1):
            if (datasets := self._days.get(day)) is not None and dataset in datasets:
                found += datasets[dataset]
        return found

    def usual(self, dataset: str) -> Usual | None:
        """Return, of the latest requests charged to a dataset, the one of median epsilon; None if
        there were none.
        """
        found = sorted(self._latest.get(dataset, ()), key=lambda one: one.epsilon)
        return found[len(found) // 2] if found else None

    def kept(self) -> ActivityKept:
        """Return what was collected."""
        days: dict[int, dict[str, dict[Ending, int]]] = {
            day: {name: dict(one) for name, one in found.items()}
            for day, found in self._days.items()
        }
        return ActivityKept(days, {name: list(one) for name, one in self._latest.items()})

    @classmethod
    def begun(cls, kept: ActivityKept) -> Activity:
        """Return what goes on from there."""
        made = cls()
        for day, found in kept.days.items():
            each = made._days[day] = defaultdict(Counter)
            each.update((name, Counter(one)) for name, one in found.items())
        for name, latest in kept.latest.items():
            made._latest[name].extend(latest)
        return made

    def _count(self, day: int, datasets: tuple[str, ...], ending: Ending) -> None:
        if day not in self._days:
            self._days[day] = defaultdict(Counter)
            for old in [one for one in self._days if one <= day - MOST_DAYS]:
                del self._days[old]
        for dataset in datasets:
            self._days[day][dataset][ending] += 1

    def _remember(self, event: Event, datasets: tuple[str, ...]) -> None:
        on = Charge.from_json(event.body["total"]).on((Currency.EPSILON,))
        if not on.infinite[0]:
            usual = Usual(on.finite[0], client_in(event), dict(request_in(event.body)))
            for dataset in (EVERY, *datasets):
                self._latest[dataset].append(usual)
