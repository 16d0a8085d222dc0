"""What events about the ledger's custody change in a state (``apply`` has all others)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from accountant.budget.commands import CarriedAccount, CarryOver
from accountant.budget.custody.custody import AcceptedTime, SigningKey
from accountant.budget.state import AccountKey, State
from accountant.ledger.events import Event, microseconds
from accountant.privacy import engine as bounds
from accountant.privacy.units import Charge


def _adopt_key(state: State, event: Event) -> None:
    key = SigningKey(event.sequence, event.body["command"]["key"])
    state.custody = replace(state.custody, keys=(*state.custody.keys, key))


def _stop(state: State, event: Event) -> None:
    state.custody = replace(state.custody, stopped=event.sequence)


def _resume(state: State, event: Event) -> None:
    state.custody = replace(state.custody, stopped=None)


def _carry_over(state: State, event: Event) -> None:
    fields = {name: v for name, v in event.body["command"].items() if name != "type"}
    for carried in CarryOver.model_validate(fields).accounts:
        _lift(state, carried, event.time)


def _lift(state: State, carried: CarriedAccount, now: int) -> None:
    """A rule's account of an epoch that is not in force any more, or not yet, is no limit now: when
    the rule is adopted again it starts from the lifetimes, which are always lifted.
    """
    key = AccountKey(carried.rule, carried.epoch, carried.dataset, carried.client)
    epoch = state.adopted.epochs.get(key.rule) if state.adopted else None
    if key.rule and (epoch is None or epoch.number != key.epoch):
        return
    account = state.to_change(key)
    least = Charge.from_json(carried.used).on(account.axis).saturated()
    for grant in list(state.open.values()):
        for held_in, booked in grant.bookings:
            if held_in == key:  # nobody can tell it from what the lost events had spent
                account.release(grant.selection, booked, now)
                kept = tuple(pair for pair in grant.bookings if pair[0] != key)
                state.grants.keep(grant._replace(bookings=kept))
    account.lift(least, now)


def _recover(state: State, event: Event) -> None:
    for grant in list(state.open.values()):
        for account, _, booked in state.accounts.holding(grant.bookings):
            account.settle(grant.selection, booked, grant.total, event.time)
        state.grants.settle(grant, "expired", event.sequence)
    state.custody = replace(
        state.custody, recovered=event.sequence, recoveries=state.custody.recoveries + 1
    )


def _adopt_engine(state: State, event: Event) -> None:
    version = event.body["command"]["version"]
    if version > bounds.CURRENT:
        raise ValueError(
            f"event {event.sequence} was decided by version {version} of the bounds, and this "
            f"program knows up to {bounds.CURRENT}: take a later one"
        )
    engines = (*state.custody.engines, (event.sequence, version))
    state.custody = replace(state.custody, engines=engines)


def _accept_time(state: State, event: Event) -> None:
    shown = microseconds(event.body["command"]["clock"])
    accepted = AcceptedTime(event.sequence, shown, event.time)
    state.custody = replace(state.custody, accepted=accepted)


def _nothing(state: State, event: Event) -> None:
    """The text is gone from where it was kept; the event that held its digest stays."""


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "signing_key.adopted.v1": _adopt_key,
    "publication.stopped.v1": _stop,
    "publication.resumed.v1": _resume,
    "ledger.carried_over.v1": _carry_over,
    "ledger.recovered.v1": _recover,
    "text.erased.v1": _nothing,
    "engine.adopted.v1": _adopt_engine,
    "clock.accepted.v1": _accept_time,
}
