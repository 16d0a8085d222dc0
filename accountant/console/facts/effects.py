"""Where each limit stands now, and would stand under another policy."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
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

Held = Callable[[AccountKey], Sums | None]
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
    held = held_then(page, then)
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
                then=None if is_ is None else _then(page, (then, held), is_, was),
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


def _then(page: Page, then: tuple[State, Held], counted: Counted, was: Counted | None) -> Standing:
    """Return where a limit would stand, used as fast as its account was so far."""
    total = balance_then(*then, counted)
    window = counted.epoch.window.words if counted.epoch.window else ""
    paces: tuple[Pace, ...] = ()
    why = "it comes back with time" if window else "nothing was counted by this rule so far"
    if was is not None and not window:
        before = balance_of(page, was)
        paces = carried_on(forecast_of(page, was, before).paces, total.remaining, page.now)
        why = "" if any(one.runs_out for one in paces) else "at this pace it does not run out"
    return Standing(f"{counted.rule.limit.epsilon:f}", window, total, paces, why)


def balance_then(then: State, held: Held, counted: Counted) -> Balance:
    """Return the balance of a limit in a state that another policy would make of a page's, where
    open grants would hold what ``held_then`` returns.
    """
    [total] = balances(then, counted, None, held)
    return total


def held_then(page: Page, then: State) -> Held:
    """Return what open grants would hold in an account: what they hold in that of the epoch before,
    which is known, where each is carried over as it is.
    """
    adopted = page.followed.state.adopted
    epochs = {rule: one.number for rule, one in adopted.epochs.items()} if adopted else {}
    otherwise = _otherwise(then, epochs)

    def held(key: AccountKey) -> Sums | None:
        if key in otherwise:
            return then.reserved_in(key)
        before = key._replace(epoch=epochs.get(key.rule, key.epoch))
        return page.followed.burndowns.held.of(before)

    return held


def _otherwise(then: State, before: Mapping[str, int]) -> set[AccountKey]:
    """Return the accounts in which an open grant holds another charge than in that of the epoch
    ``before``, by rule. Every grant is looked at once, for all accounts.
    """
    now = {rule: one.number for rule, one in then.adopted.epochs.items()} if then.adopted else {}
    pairs: dict[AccountKey, tuple[AccountKey, AccountKey] | None] = {}
    found = set()
    for grant in then.open.values():
        booked = dict(grant.bookings)
        for key in booked:
            if key not in pairs:
                pairs[key] = _in_both_epochs(key, before.get(key.rule), now.get(key.rule))
            pair = pairs[key]
            if pair is not None and booked.get(pair[0]) is not booked.get(pair[1]):
                found.add(pair[1])
    return found


def _in_both_epochs(
    key: AccountKey, was: int | None, is_: int | None
) -> tuple[AccountKey, AccountKey] | None:
    """Return the accounts of one limit in two epochs, None if they are the same; of a limit that
    was not there before, no account and its own.
    """
    if is_ is None or is_ == was:
        return None
    before = key._replace(epoch=-1 if was is None else was)
    return before, key._replace(epoch=is_)


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
