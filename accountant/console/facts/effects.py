"""Where each limit stands now, and would stand under another policy."""

from __future__ import annotations

from collections.abc import Container
from functools import partial
from typing import Final

from msgspec import Struct

from accountant.budget.accounts.sums import Sums
from accountant.budget.facts import SECOND
from accountant.budget.state import AccountKey, Counted, State
from accountant.console.facts.accounts import forecast_of
from accountant.console.facts.pace import Pace
from accountant.console.facts.standing import balance_of
from accountant.ledger.events import rfc3339
from accountant.privacy.units import INFINITE
from accountant.reporting.desk import Page
from accountant.reporting.statement import Balance, balances, scopes

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


def effects_of(page: Page, then: State, only: Container[str] | None = None) -> list[Effect]:
    """Return each limit on each account now and then, the new policy's order first; of some rules
    ``only``.
    """
    state = page.followed.state
    before = {_name(one.key): one for one in scopes(state)}
    after = {_name(one.key): one for one in scopes(then)}
    found = []
    for name in (*after, *(one for one in before if one not in after)):
        was, is_ = before.get(name), after.get(name)
        counted = is_ or was
        assert counted is not None  # noqa: S101 for the type checker
        if only is not None and name[0] not in only:
            continue
        key, rule = counted.key, counted.rule
        now = None if was is None else _standing(page, was)
        found.append(
            Effect(
                rule=rule.id,
                dataset=key.dataset,
                scope=rule.place_in_words((key.dataset, key.client, key.purpose), state.people()),
                divides=rule.divides,
                now=now,
                then=None if is_ is None else _then(page, then, is_, was),
            )
        )
    return found


def _name(key: AccountKey) -> tuple[str, ...]:
    return key.rule, key.dataset, key.client, key.purpose


def _standing(page: Page, counted: Counted) -> Standing:
    total = balance_of(page, counted)
    forecast = forecast_of(page, counted, total)
    return Standing(
        f"{counted.rule.limit.epsilon:f}",
        counted.epoch.window.words if counted.epoch.window else "",
        total,
        forecast.paces,
        forecast.why,
    )


def _then(page: Page, state: State, counted: Counted, was: Counted | None) -> Standing:
    """Return where a limit would stand, used as fast as its account was so far."""
    total = balance_then(page, state, counted)
    window = counted.epoch.window.words if counted.epoch.window else ""
    paces: tuple[Pace, ...] = ()
    why = "it comes back with time" if window else "nothing was counted by this rule so far"
    if was is not None and not window:
        before = balance_of(page, was)
        paces = carried_on(forecast_of(page, was, before).paces, total.remaining, page.now)
        why = "" if any(one.runs_out for one in paces) else "at this pace it does not run out"
    return Standing(f"{counted.rule.limit.epsilon:f}", window, total, paces, why)


def balance_then(page: Page, then: State, counted: Counted) -> Balance:
    """Return the balance of a limit in a state that another policy would make of the page's."""
    [total] = balances(then, counted, None, partial(_held, page, then))
    return total


def _held(page: Page, then: State, key: AccountKey) -> Sums | None:
    """Return what open grants would hold in an account: what they hold in that of the epoch before,
    which is known, where each is carried over as it is.
    """
    adopted = page.followed.state.adopted
    epoch = adopted.epochs.get(key.rule) if adopted else None
    before = key if epoch is None else key._replace(epoch=epoch.number)
    bookings = (dict(grant.bookings) for grant in then.open.values())
    if all(booked.get(key) is booked.get(before) for booked in bookings):
        return page.followed.burndowns.held.of(before)
    return then.reserved_in(key)


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
