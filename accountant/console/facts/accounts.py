"""The accounts of a ledger, each by its tightest limit: what is left, how fast it goes."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from msgspec import Struct

from accountant.budget.commands import (
    AskGrant,
    OpenSparseVector,
    RecordInvocations,
    command_from_json,
)
from accountant.budget.errors import Problem
from accountant.budget.evaluate import how_many
from accountant.budget.request import prepare
from accountant.budget.state import ALL, Counted, State
from accountant.console.facts.pace import Forecast, Use, forecast
from accountant.console.facts.standing import balance_of
from accountant.privacy.units import Currency, show
from accountant.reporting.activity import Activity, Usual
from accountant.reporting.desk import Page
from accountant.reporting.schema import STATUSES, Status
from accountant.reporting.statement import Balance, period, scopes

NO_LIMIT: Final = "no_limit"
_LEAST: Final = Decimal("1e-30")
"""Instead of a limit of zero, to divide by."""


class UsualFacts(Struct, frozen=True):
    """A usual request, the median of the latest. ``more``: how many like it, on everyone, would be
    granted.
    """

    epsilon: str
    more: int


class Row(Struct, frozen=True, kw_only=True):
    """A dataset, or all of them together ("*"), by the limit that is nearest to its end. Without
    any limit the amounts are None.
    """

    population: str
    dataset: str
    status: Status | str
    rule: str = ""
    shared: bool = False
    """The limit is on all datasets together, and the dataset has none of its own."""
    limit: str | None = None
    total: Balance | None = None
    window: str | None = None
    """In words, if it counts within a window, or refreshes."""
    forecast: Forecast | None = None
    usual: UsualFacts | None = None

    @property
    def gravity(self) -> tuple[int, Decimal, str]:
        """The key by which the worst dataset comes first: status, then the share that is left."""
        if self.total is None or self.limit is None:
            return -len(STATUSES), Decimal(0), self.dataset
        left = Decimal(self.total.remaining) / max(Decimal(self.limit), _LEAST)
        return -STATUSES.index(self.total.status), left, self.dataset


class Ranked(NamedTuple):
    """A dataset with the limit on it that is nearest to its end, if there is one, and its use."""

    dataset: str
    counted: Counted | None = None
    total: Balance | None = None

    @property
    def gravity(self) -> tuple[int, Decimal, str]:
        """The key by which the worst dataset comes first: status, then the share that is left."""
        if self.total is None or self.counted is None:
            return -len(STATUSES), Decimal(0), self.dataset
        left = Decimal(self.total.remaining) / max(self.counted.rule.limit.epsilon, _LEAST)
        return -STATUSES.index(self.total.status), left, self.dataset


def ranked(page: Page) -> list[Ranked]:
    """Return each dataset, and all together where a limit is; worst first."""
    state = page.followed.state
    if state.population is None:
        return []
    found = tightest(page, scopes(state))
    names = [*state.datasets, *([ALL] if ALL in found else [])]
    places = [Ranked(name, *found.get(name, (None, None))) for name in names]
    return sorted(places, key=lambda one: one.gravity)


def tightest(page: Page, limits: Iterable[Counted]) -> dict[str, tuple[Counted, Balance]]:
    """Return which of some limits is nearest to its end on each dataset, and on all together, with
    its balance. A limit over all datasets counts where one has none of its own.
    """
    state = page.followed.state
    found: dict[str, tuple[Counted, Balance]] = {}
    shared: list[tuple[Counted, Balance]] = []
    for counted in limits:
        if counted.rule.divides or counted.rule.subjects is not None:
            continue
        name, total = counted.key.dataset, balance_of(page, counted)
        if name == ALL:
            shared.append((counted, total))
        if name not in found or _gravity(counted, total) > _gravity(*found[name]):
            found[name] = counted, total
    for name, dataset in state.datasets.items():
        covering = [one for one in shared if one[0].rule.scope.holds(dataset)]
        if name not in found and covering:
            found[name] = max(covering, key=lambda one: _gravity(*one))
    return found


def rows(page: Page) -> list[Row]:
    """Return a row for each dataset, and for all together where a limit is; worst first."""
    return [row_of(page, one) for one in ranked(page)]


def _gravity(counted: Counted, total: Balance) -> tuple[int, bool, bool, Decimal]:
    left = Decimal(total.remaining) / max(counted.rule.limit.epsilon, _LEAST)
    whole, blocks = counted.rule.span is None, counted.rule.action == "block"
    return STATUSES.index(total.status), whole, blocks, -left


def row_of(page: Page, one: Ranked) -> Row:
    """Return the row of a dataset, with its forecast and what a usual request costs."""
    state, name, counted, total = page.followed.state, *one
    if counted is None or total is None:
        return Row(population=state.ledger, dataset=name, status=NO_LIMIT)
    return Row(
        population=state.ledger,
        dataset=name,
        status=total.status,
        rule=counted.rule.id,
        shared=counted.key.dataset != name,
        limit=f"{counted.rule.limit.epsilon:f}",
        total=total,
        window=counted.epoch.window.words if counted.epoch.window else None,
        forecast=forecast_of(page, counted, total),
        usual=usual(state, page.followed.activity, name, page.now),
    )


def forecast_of(page: Page, counted: Counted, total: Balance) -> Forecast:
    """Return how fast a limit is being used."""
    key, span = counted.key, period(page.followed.state, counted.epoch) or None
    use = Use(
        epoch=key.epoch,
        period=span,
        rolling=counted.rule.span is not None and span is None,
        spent=total.spent,
        left=total.remaining,
    )
    return forecast(page.followed.burndowns.points(key.rule, key.dataset), use, page.now)


def usual(state: State, activity: Activity, dataset: str, now: int) -> UsualFacts | None:
    """Return what a usual request costs, and how many more of it would be granted to its client at
    stamp ``now``; None if there were none, or it could no longer be asked.
    """
    found, policy = activity.usual(dataset), state.adopted
    if found is None or policy is None or all(r.action != "block" for r in policy.policy.limits):
        return None
    try:
        request = prepare(state, found.client, _asked(activity, dataset, found), now)
        more = how_many(state, request)
    except Problem:
        return None
    return UsualFacts(show(found.epsilon, Currency.EPSILON), more)


_ASKED: Final[WeakKeyDictionary[Activity, dict[str, tuple[Usual, AskGrant | OpenSparseVector]]]] = (
    WeakKeyDictionary()
)
"""The usual requests that were read before, by dataset: each remembers what it costs."""


def _asked(activity: Activity, dataset: str, found: Usual) -> AskGrant | OpenSparseVector:
    """Return the usual request of a dataset, on everyone; for what was recorded, one for the same.
    It is read once, as long as it is the usual one.
    """
    known = _ASKED.setdefault(activity, {})
    if dataset not in known or known[dataset][0] is not found:
        known[dataset] = found, _read(found)
    return known[dataset][1]


def _read(found: Usual) -> AskGrant | OpenSparseVector:
    command = {name: value for name, value in found.command.items() if name != "subjects"}
    if command["type"] == RecordInvocations.command:
        command["type"] = AskGrant.command
        command.pop("ran_at", None)
    asked = command_from_json(command)
    assert isinstance(asked, AskGrant | OpenSparseVector)  # noqa: S101 nothing else is remembered
    return asked
