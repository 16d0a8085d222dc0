"""Where each limit stands now, and would stand under another policy."""

from __future__ import annotations

from collections.abc import Container, Iterable
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import Struct

from accountant.budget.facts import SECOND
from accountant.budget.state import AccountKey, Counted
from accountant.console.facts.accounts import forecast_of
from accountant.console.facts.adopting import Adopted
from accountant.console.facts.pace import Pace
from accountant.console.facts.standing import balance_of
from accountant.ledger.events import rfc3339
from accountant.privacy.units import INFINITE
from accountant.reporting.desk import Page
from accountant.reporting.statement import Balance, scopes

_FARTHEST: Final = 100 * 366 * 86_400 * SECOND


class Standing(Struct, frozen=True):
    """A limit on an account, as it is or would be."""

    limit: str
    window: str
    total: Balance
    paces: tuple[Pace, ...]
    why: str
    """Why there is no date."""


class Effect(Struct, frozen=True):
    """A limit on an account now and then; None where it is not there."""

    rule: str
    dataset: str
    scope: str
    divides: bool
    now: Standing | None
    then: Standing | None


class Moved(NamedTuple):
    """A limit on an account now and under another policy, with its balances; None where it is not
    there.
    """

    was: Counted | None
    now: Balance | None
    becomes: Counted | None
    then: Balance | None

    @property
    def counted(self) -> Counted:
        """The limit as it would be, as it is where it would not be there."""
        found = self.becomes or self.was
        assert found is not None  # noqa: S101 one of them is there
        return found

    @property
    def changes(self) -> bool:
        """Whether the limit, its window, or what is left of it would be another."""
        if self.was is None or self.becomes is None or self.now != self.then:
            return True
        return _numbers(self.was) != _numbers(self.becomes)

    @property
    def left(self) -> Decimal:
        """What would be left."""
        return Decimal(0 if self.then is None else self.then.remaining)


def moved(
    page: Page, limits: Iterable[Counted], then: Adopted, only: Container[str] | None = None
) -> list[Moved]:
    """Return each limit on each account now, of which all are in ``limits``, and then, the new
    policy's order first; of some rules ``only``.
    """
    before = {_name(one.key): one for one in limits}
    after = {_name(one.key): one for one in scopes(then.state)}
    found = []
    for name in (*after, *(one for one in before if one not in after)):
        was, becomes = before.get(name), after.get(name)
        if only is None or name[0] in only:
            now = None if was is None else balance_of(page, was)
            found.append(Moved(was, now, becomes, becomes and then.balance(becomes)))
    return found


def effect_of(page: Page, one: Moved) -> Effect:
    """Return how a limit on an account would move, with how long it would last."""
    rule, key = one.counted.rule, one.counted.key
    return Effect(
        rule=rule.id,
        dataset=key.dataset,
        scope=rule.place_in_words(
            (key.dataset, key.client, key.purpose), page.followed.state.people()
        ),
        divides=rule.divides,
        now=None if one.was is None or one.now is None else _standing(page, one.was, one.now),
        then=_then(page, one),
    )


def _name(key: AccountKey) -> tuple[str, ...]:
    return key.rule, key.dataset, key.client, key.purpose


def _numbers(counted: Counted) -> tuple[str, str]:
    """Return the epsilon and the window of a limit."""
    window = counted.epoch.window
    return f"{counted.rule.limit.epsilon:f}", window.words if window else ""


def _standing(page: Page, counted: Counted, total: Balance) -> Standing:
    forecast = forecast_of(page, counted, total)
    return Standing(*_numbers(counted), total, forecast.paces, forecast.why)


def _then(page: Page, one: Moved) -> Standing | None:
    """Return where a limit would stand, used as fast as its account was so far."""
    if one.becomes is None or one.then is None:
        return None
    limit, window = _numbers(one.becomes)
    paces: tuple[Pace, ...] = ()
    why = "it comes back with time" if window else "nothing was counted by this rule so far"
    if one.was is not None and one.now is not None and not window:
        before = forecast_of(page, one.was, one.now).paces
        paces = carried_on(before, one.then.remaining, page.now)
        why = "" if any(each.runs_out for each in paces) else "at this pace it does not run out"
    return Standing(limit, window, one.then, paces, why)


def carried_on(paces: tuple[Pace, ...], left: str, now: int) -> tuple[Pace, ...]:
    """Return the same paces with the dates on which ``left`` is used up."""
    found = []
    for one in paces:
        a_day, runs_out = float(one.a_day or 0), None
        if a_day > 0 and left != INFINITE and float(left) > 0:
            stamp = float(left) / a_day * 86_400 * SECOND
            runs_out = rfc3339(now + int(stamp)) if stamp < _FARTHEST else None
        found.append(Pace(one.days, one.a_day, runs_out))
    return tuple(found)
