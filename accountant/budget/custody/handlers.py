"""Fold events about a ledger's custody into a state (``apply`` folds all others)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from accountant.budget.commands import CarriedAccount, CarryOver
from accountant.budget.custody.custody import AcceptedTime, SigningKey
from accountant.budget.state import AccountKey, State
from accountant.ledger.events import Event, microseconds
from accountant.privacy import engine as bounds
from accountant.privacy.units import Charge


def _set(state: State, **fields: Any) -> None:
    state.custody = replace(state.custody, **fields)


def _adopt_key(state: State, event: Event) -> None:
    key = SigningKey(event.sequence, event.body["command"]["key"])
    _set(state, keys=(*state.custody.keys, key))


def _carry_over(state: State, event: Event) -> None:
    fields = {name: v for name, v in event.body["command"].items() if name != "type"}
    for carried in CarryOver.model_validate(fields).accounts:
        _lift(state, carried, event.time)


def _lift(state: State, carried: CarriedAccount, now: int) -> None:
    """Raise an account. One of an epoch that is not in force is no limit now and is left out: a
    rule that is adopted again starts from the lifetimes, which are always raised.
    """
    key = AccountKey(carried.rule, carried.epoch, carried.dataset, carried.client)
    epoch = state.adopted.epochs.get(key.rule) if state.adopted else None
    if key.rule and (epoch is None or epoch.number != key.epoch):
        return
    account = state.to_change(key)
    least = Charge.from_json(carried.used).on(account.axis).saturated()
    for grant in list(state.open.values()):
        for held_in, booked in grant.bookings:
            if held_in == key:  # it may be among the spending of lost events
                account.release(grant.selection, booked, now)
                kept = tuple(pair for pair in grant.bookings if pair[0] != key)
                state.grants.keep(grant._replace(bookings=kept))
    account.lift(least, now)


def _recover(state: State, event: Event) -> None:
    for grant in list(state.open.values()):
        for account, _, booked in state.accounts.holding(grant.bookings):
            account.settle(grant.selection, booked, grant.total, event.time)
        state.grants.settle(grant, "expired", event.sequence)
    _set(state, recovered=event.sequence, recoveries=state.custody.recoveries + 1)


def _adopt_engine(state: State, event: Event) -> None:
    version = event.body["command"]["version"]
    if version > bounds.CURRENT:
        raise ValueError(
            f"event {event.sequence} was decided by version {version} of the bounds, and this "
            f"program knows up to {bounds.CURRENT}: take a later one"
        )
    _set(state, engines=(*state.custody.engines, (event.sequence, version)))


def _accept_time(state: State, event: Event) -> None:
    clock = microseconds(event.body["command"]["clock"])
    _set(state, accepted=AcceptedTime(event.sequence, clock, event.time))


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "signing_key.adopted.v1": _adopt_key,
    "publication.stopped.v1": lambda state, event: _set(state, stopped=event.sequence),
    "publication.resumed.v1": lambda state, _: _set(state, stopped=None),
    "ledger.carried_over.v1": _carry_over,
    "ledger.recovered.v1": _recover,
    "text.erased.v1": lambda state, _: None,  # the event that held its digest stays
    "engine.adopted.v1": _adopt_engine,
    "clock.accepted.v1": _accept_time,
}
