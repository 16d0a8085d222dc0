"""``state = fold(events)``: what each type of event changes. Nothing else changes a state.

An event is believed in what it says was booked; ``replay`` is what checks the saying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from accountant.budget.policy import LimitRule, Policy
from accountant.budget.population import Dataset, Membership, Population
from accountant.budget.selection import EVERYONE, Selection, select
from accountant.budget.state import (
    ALL,
    AccountKey,
    Adopted,
    Epoch,
    Grant,
    State,
    Status,
    account_key,
    asked_of,
    lifetime,
    limit_rule,
    matches,
    opens_epoch,
    same_scope,
)
from accountant.ledger.events import Event, digest, microseconds
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import Charge


def fold(ledger: str, events: Iterable[Event]) -> State:
    """The state after ``events``."""
    state = State(ledger)
    for event in events:
        apply(state, event)
    return state


def apply(state: State, event: Event) -> None:
    """Folds one event in. Raises ValueError if it is not the next one or of no known type."""
    if event.ledger != state.ledger or event.sequence != state.sequence:
        raise ValueError(
            f"{event.ledger}/{event.sequence} does not follow {state.ledger}/{state.sequence - 1}"
        )
    if event.time < state.time:
        raise ValueError(f"event {event.sequence} is stamped before the one it follows")
    handler = HANDLERS.get(event.type)
    if handler is None:
        raise ValueError(f"event {event.sequence} has the unknown type {event.type!r}")
    handler(state, event)
    if key := event.body.get("key"):
        state.answers[event.by, key] = (digest(event.body["command"]), event.sequence)
    state.sequence, state.time = event.sequence + 1, event.time


def _register_population(state: State, event: Event) -> None:
    body = event.body["command"]
    state.population = Population(
        name=state.ledger,
        privacy_unit=body["privacy_unit"],
        relation=Relation(body["neighbouring"]),
        membership=Membership(body["membership"]),
        dimensions=tuple((k, tuple(v)) for k, v in sorted(body.get("dimensions", {}).items())),
    )


def _extend_population(state: State, event: Event) -> None:
    inherit = not event.body["command"].get("attested_new", False)
    for dimension, values in event.body["added"].items():
        population = state.people()
        axis = population.axis(dimension)
        for account in state.accounts.values():
            account.extend(axis, len(values), inherit)
        state.population = population.extended(dimension, tuple(values))


def _register_dataset(state: State, event: Event) -> None:
    body = event.body["command"]
    state.datasets[body["id"]] = Dataset(
        id=body["id"],
        namespace=body["namespace"],
        name=body["name"],
        owner=body.get("owner"),
        parents=tuple(body.get("parents", ())),
    )


def _adopt_policy(state: State, event: Event) -> None:
    policy = Policy.model_validate(event.body["command"]["policy"])
    before = state.adopted
    epochs: dict[str, Epoch] = {}
    for rule in policy.limits:
        old = limit_rule(before, rule.id)
        if before and old and not opens_epoch(old, rule):
            epochs[rule.id] = before.epochs[rule.id]
            continue
        number = state.last_epoch.get(rule.id, 0) + 1
        state.last_epoch[rule.id] = number
        epochs[rule.id] = Epoch(number, event.time, carried=rule.carry == "used")
        if rule.carry == "used":
            if old and same_scope(old, rule):
                _carry_epoch(state, rule, number)
            else:
                _carry_lifetime(state, rule, number)
    state.adopted = Adopted(policy, event.body["command"]["source_digest"], event.sequence, epochs)


def _carry_epoch(state: State, rule: LimitRule, number: int) -> None:
    for key, account in list(state.accounts.items()):
        if key.rule == rule.id and key.epoch == number - 1:
            state.accounts[key._replace(epoch=number)] = account.carried()


def _carry_lifetime(state: State, rule: LimitRule, number: int) -> None:
    """A rule that is new starts with what its datasets have used in their lifetime. A client's
    sub-limit starts at zero: it is no promise about the data.
    """
    if rule.per:
        return
    for dataset in sorted(state.datasets):
        account = state.accounts.get(lifetime(dataset))
        if account is None or not matches(rule.datasets, dataset):
            continue
        key = account_key(rule, number, dataset, "")
        if key in state.accounts:
            state.accounts[key].absorb(account)
        else:
            state.accounts[key] = account.carried()


def _book(
    state: State, dataset: str, by: str, selection: Selection, charge: Charge, *, reserve: bool
) -> tuple[tuple[AccountKey, Charge], ...]:
    keys = [key for _, key in state.limits_on(dataset, by)]
    bookings = []
    for key in [*keys, lifetime(dataset), lifetime(ALL)]:
        account = state.accounts.setdefault(key, state.account(key))
        bookings.append((key, account.book(selection, charge, reserve=reserve)))
    return tuple(bookings)


def _reserve(state: State, event: Event) -> None:
    body = event.body
    command = body["command"]
    selection = _selection(state, event)
    total = Charge.from_json(body["total"])
    dataset = command["dataset"]
    grant = Grant(
        id=body["grant"],
        by=event.by,
        dataset=dataset,
        selection=selection,
        command=command,
        total=total,
        opened=event.time,
        expires=microseconds(body["expires"]),
        sequence=event.sequence,
        bookings=_book(state, dataset, event.by, selection, total, reserve=True),
        session=command["type"] == "open_sparse_vector",
    )
    state.grants[grant.id] = state.open[grant.id] = grant


def _settle(status: Status) -> Callable[[State, Event], None]:
    def settle(state: State, event: Event) -> None:
        grant = state.grants[event.body["grant"]]
        final = Charge.from_json(event.body["charge"])
        for key, booked in grant.bookings:
            state.accounts[key].settle(grant.selection, booked, final)
        state.open.pop(grant.id)
        state.grants[grant.id] = replace(grant, status=status, charged=final)

    return settle


def _note(state: State, event: Event) -> None:
    grant = state.grants[event.body["grant"]]
    state.grants[grant.id] = replace(grant, late_note=True)


def _answered(state: State, event: Event) -> None:
    grant = state.grants[event.body["grant"]]
    counted = replace(grant, positives=event.body["positives"], negatives=event.body["negatives"])
    state.grants[grant.id] = state.open[grant.id] = counted


def _record(state: State, event: Event) -> None:
    body = event.body
    selection = EVERYONE if body.get("charged_to") == "everyone" else _selection(state, event)
    total = Charge.from_json(body["total"])
    _book(state, body["command"]["dataset"], event.by, selection, total, reserve=False)


def _selection(state: State, event: Event) -> Selection:
    return select(state.people(), getattr(asked_of(event).command, "subjects", None))


def _nothing(state: State, event: Event) -> None:
    """A refusal changes no account; its key is remembered by ``apply``."""


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
    "population.registered.v1": _register_population,
    "population.extended.v1": _extend_population,
    "dataset.registered.v1": _register_dataset,
    "policy.adopted.v1": _adopt_policy,
    "grant.reserved.v1": _reserve,
    "grant.refused.v1": _nothing,
    "grant.committed.v1": _settle("committed"),
    "grant.released.v1": _settle("released"),
    "grant.expired.v1": _settle("expired"),
    "grant.noted.v1": _note,
    "sparse_vector.answered.v1": _answered,
    "sparse_vector.closed.v1": _settle("committed"),
    "invocation.recorded.v1": _record,
}
