"""``state = fold(events)``: what each type of event changes. Nothing else changes a state.

An event is believed in what it says was booked; ``replay`` is what checks the saying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Final

from accountant.budget import batches, keeping
from accountant.budget.accounts import Account
from accountant.budget.batches import OpenBatch
from accountant.budget.commands import Batch, command_from_json
from accountant.budget.epochs import Adopted, Epoch, Start, next_epoch, start_of
from accountant.budget.grants import Bookings, Ending
from accountant.budget.policy import LimitRule, Policy
from accountant.budget.population import Dataset, Membership, Population
from accountant.budget.selection import EVERYONE, Selection, reaching, select
from accountant.budget.state import (
    ALL,
    AccountKey,
    Grant,
    State,
    account_key,
    asked_of,
    lifetime,
    matches,
)
from accountant.ledger.events import Event, canonical, microseconds
from accountant.privacy.filters import GATES
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import SURE, Charge


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
    batch = state.batch
    if batch is not None:
        state.batch = batch.taken(event)
    elif "batch" in event.body:
        raise ValueError(f"event {event.sequence} is an item of a batch that is not open")
    handler(state, event)
    for rule in state.adopted.policy.others if state.adopted else ():
        state.memories[rule.id] = rule.remember(state.memories.get(rule.id), event)
    if key := event.body.get("key"):
        command = sha256(canonical(event.body["command"])).digest()
        state.answers.put(event.by, key, command, event.sequence)
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
        for grant in list(state.open.values()):
            _widen(state, grant, dimension, values, inherit)


def _widen(state: State, grant: Grant, dimension: str, values: list[str], inherited: bool) -> None:
    """An open grant on a group that does not name ``dimension`` covers the new values too: what it
    runs from now on reaches their members. A rule that does not hold the reservation counts it
    there as spent.
    """
    asked = command_from_json(grant.command)
    new = reaching(state.people(), getattr(asked, "subjects", None), dimension, values)
    if grant.selection.everyone or not new.boxes:
        return
    holding = dict(grant.bookings)
    for key, booked in grant.bookings:
        state.accounts[key].widen(new, booked, spend=not inherited)
    if not inherited:
        for counted in state.limits_on(grant.dataset, grant.by):
            if counted.key not in holding:
                state.to_change(counted.key).book(new, grant.total, reserve=False)
    state.grants.keep(grant._replace(selection=grant.selection | new))


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
        number = state.last_epoch.get(rule.id, 0) + 1
        epoch, start = next_epoch(before, rule, number, event.time), start_of(before, rule)
        state.last_epoch[rule.id] = epoch.number
        old = before.epochs[rule.id].number if before and rule.id in before.epochs else 0
        carried = False
        if start is Start.CARRIED:
            carried = _carry(state, rule, old, epoch.number)
        elif start in (Start.CONVERTED, Start.BROUGHT):
            sources = _own(state, rule, old) if start is Start.CONVERTED else _used(state, rule)
            carried = _bring(state, rule, epoch, sources)
        epochs[rule.id] = replace(epoch, carried=carried) if carried else epoch
    state.memories = {r.id: state.memories[r.id] for r in policy.others if r.id in state.memories}
    state.custody = replace(state.custody, policies=(*state.custody.policies, event.sequence))
    state.adopted = Adopted(policy, event.body["command"]["source_digest"], event.sequence, epochs)


def _own(state: State, rule: LimitRule, epoch: int) -> list[AccountKey]:
    return [key for key in state.accounts if (key.rule, key.epoch) == (rule.id, epoch)]


def _used(state: State, rule: LimitRule) -> list[AccountKey]:
    """The lifetimes of the rule's datasets; none for a client's sub-limit, which starts at zero:
    it is no promise about the data.
    """
    datasets = [d for d in sorted(state.datasets) if matches(rule.datasets, d) and not rule.per]
    return [lifetime(dataset) for dataset in datasets if lifetime(dataset) in state.accounts]


def _carry(state: State, rule: LimitRule, old: int, new: int) -> bool:
    """Goes on from the accounts of the epoch ``old``, open reservations included; says if any."""
    keys = {key: key._replace(epoch=new) for key in _own(state, rule, old)}
    for key, after in keys.items():
        state.accounts[after] = state.accounts[key].copy()
    for grant in list(state.open.values()):
        also = tuple((keys[key], booked) for key, booked in grant.bookings if key in keys)
        if also:
            state.grants.keep(grant._replace(bookings=grant.bookings + also))
    return bool(keys)


def _bring(state: State, rule: LimitRule, epoch: Epoch, sources: list[AccountKey]) -> bool:
    """Starts from what was used in ``sources``, reserved or not, as a sure sum of epsilons; says
    if any.
    """
    brought: dict[AccountKey, Account] = {}
    for source in sources:
        account = state.accounts[source]
        key = account_key(rule, epoch.number, source.dataset, source.client)
        brought.setdefault(key, Account.empty(account.used.shape, epoch.axis)).absorb(account)
    for gate in GATES.values() if epoch.axis != SURE else ():
        if (currency := gate.currency(epoch.limit)) is not None:
            for account in brought.values():
                account.restate(currency, gate.per_epsilon(epoch.limit))
    state.accounts |= brought
    return bool(brought)


def _book(
    state: State, dataset: str, by: str, selection: Selection, charge: Charge, *, reserve: bool
) -> Bookings:
    keys = [counted.key for counted in state.limits_on(dataset, by)]
    bookings = []
    for key in [*keys, lifetime(dataset), lifetime(ALL)]:
        booked = state.to_change(key).book(selection, charge, reserve=reserve)
        bookings.append((key, booked))
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
    state.grants.keep(grant)


def _settle(ending: Ending) -> Callable[[State, Event], None]:
    def settle(state: State, event: Event) -> None:
        grant = state.open[event.body["grant"]]
        final = Charge.from_json(event.body["charge"])
        for key, booked in grant.bookings:
            state.to_change(key).settle(grant.selection, booked, final)
        state.grants.settle(grant, ending, event.sequence)

    return settle


def _note(state: State, event: Event) -> None:
    state.grants.note(event.body["grant"])


def _answered(state: State, event: Event) -> None:
    grant = state.open[event.body["grant"]]
    positives, negatives = event.body["positives"], event.body["negatives"]
    state.grants.keep(grant._replace(positives=positives, negatives=negatives))


def _record(state: State, event: Event) -> None:
    body = event.body
    selection = EVERYONE if body.get("charged_to") == "everyone" else _selection(state, event)
    total = Charge.from_json(body["total"])
    _book(state, body["command"]["dataset"], event.by, selection, total, reserve=False)


def _revalue(state: State, event: Event) -> None:
    command = event.body["command"]
    selection = EVERYONE if command.get("everyone") else _selection(state, event)
    more = Charge.from_json(event.body["more"])
    _book(state, command["dataset"], command["by"], selection, more, reserve=False)
    state.revalued[command["event"]] = state.custody.engine


def _selection(state: State, event: Event) -> Selection:
    if event.body["command"].get("subjects") is None:
        return EVERYONE  # nothing else of the command bears on it
    return select(state.people(), getattr(asked_of(event).command, "subjects", None))


def _open_batch(state: State, event: Event) -> None:
    asked = asked_of(event).command
    if not isinstance(asked, Batch):
        raise ValueError(f"event {event.sequence} answers {asked.command}, which is no batch")
    state.batch = OpenBatch(event.sequence, event.time, event.by, asked)


def _nothing(state: State, event: Event) -> None:
    """A refusal changes no account; its key is remembered by ``apply``."""


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = keeping.HANDLERS | {
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
    "charge.revalued.v1": _revalue,
    batches.OPENED: _open_batch,
    batches.REFUSED: _nothing,
}
