"""Event handlers: what each type of event changes in a state. Nothing else changes a state.

Handlers believe what an event says was booked; ``replay`` checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from accountant.budget import batches
from accountant.budget.accounts.account import Account
from accountant.budget.accounts.epochs import Adopted, Epoch, Start, next_epoch, start_of
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.batches import OpenBatch
from accountant.budget.changes import NOTHING, Count, End, Note, Record, Reserve
from accountant.budget.commands import DEFAULT_TTL, Batch, command_from_json
from accountant.budget.commands.stored import read_subjects
from accountant.budget.custody import handlers as custody
from accountant.budget.grants import Ending, Grant
from accountant.budget.outcome import (
    ANSWERED,
    CLOSED,
    COMMITTED,
    EXPIRED,
    NOTED,
    RECORDED,
    REFUSED,
    RELEASED,
    RESERVED,
    Change,
    Outcome,
)
from accountant.budget.policy import Policy
from accountant.budget.population.population import Dataset, Membership, Population
from accountant.budget.population.selection import EVERYONE, Selection, reaching, select
from accountant.budget.request import selected
from accountant.budget.rules.base import matches
from accountant.budget.rules.limit import LimitRule
from accountant.budget.state import AccountKey, State, account_key, envelope_of, lifetime
from accountant.ledger.events import Entry, Event, to_keep, written
from accountant.privacy.filters import FILTERS
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import SURE, Charge

_SECOND: Final = 1_000_000
_REMEMBERED: Final = 1_024
"""Charges that are kept as they were read."""


def fold(ledger: str, events: Iterable[Event]) -> State:
    """Return the state after ``events``."""
    state = State(ledger)
    for event in events:
        apply(state, read(state, event))
    return state


def follow(state: State, data: bytes) -> None:
    """Apply the next event, which another process decided. Raises ValueError if it is not the next
    one, or cannot be applied.
    """
    apply(state, read(state, Event.from_bytes(data), data))


class _Undo(NamedTuple):
    """What ``rollback`` needs to take one outcome back."""

    change: Change
    before: Any
    sequence: int
    time: int
    batch: OpenBatch | None
    answers: int
    memories: dict[str, Any]


def apply(state: State, outcome: Outcome) -> None:
    """Apply one outcome. Raises ValueError if it is not the next one; after that or any other
    exception the state may be half changed.
    """
    entry = outcome.entry
    if entry.sequence != state.sequence:
        raise ValueError(f"event {entry.sequence} does not follow {state.sequence - 1}")
    batch, time, answers, memories = (
        state.batch,
        state.time,
        len(state.idempotency),
        state.memories,
    )
    if batch is not None:
        state.batch = batch.taken(outcome)
    before = outcome.change.fold(state, entry)
    if state.adopted is not None and state.adopted.policy.remembering:
        event = outcome.event()
        state.memories = state.memories | {
            rule.id: rule.remember(state.memories.get(rule.id), event)
            for rule in state.adopted.policy.remembering
        }
    if outcome.key is not None:
        state.idempotency.put(outcome.by, outcome.key, outcome.fingerprint, entry.sequence)
    state.sequence, state.time = entry.sequence + 1, entry.time
    if state.journal is not None:
        undo = _Undo(outcome.change, before, entry.sequence, time, batch, answers, memories)
        state.journal.append(undo)


def keep_journal(state: State) -> None:
    """Begin a transaction: what is applied until ``drop_journal`` can be rolled back."""
    state.journal = []


def drop_journal(state: State) -> None:
    """End the transaction; what was applied stays."""
    state.journal = None


def rollback(state: State, mark: int = 0) -> bool:
    """Take back all outcomes of the transaction but the first ``mark``. Returns False, and changes
    nothing, if one of them cannot be taken back.
    """
    journal = state.journal
    if journal is None or any(isinstance(u.change, Happened) for u in journal[mark:]):
        return False
    while len(journal) > mark:
        undo: _Undo = journal.pop()
        undo.change.undo(state, undo.before)
        state.idempotency.take_back(undo.answers)
        state.sequence, state.time = undo.sequence, undo.time
        state.batch, state.memories = undo.batch, undo.memories
    state.held = None
    return True


@contextmanager
def savepoint(state: State) -> Iterator[None]:
    """Roll back, at the end of the block, what was applied in it, which has to be possible."""
    if alone := state.journal is None:
        keep_journal(state)
    mark = len(state.journal) if state.journal else 0
    try:
        yield
    finally:
        rollback(state, mark)
        if alone:
            drop_journal(state)


@dataclass(frozen=True, slots=True)
class Happened:
    """A change of the ledger as a whole: a registration, an adoption, a recovery. It follows its
    event, and cannot be taken back.
    """

    event: Event

    def fold(self, state: State, entry: Entry) -> None:
        """Run the handler of the event's type."""
        HANDLERS[self.event.type](state, self.event)

    def undo(self, state: State, before: None) -> None:
        """Never called: ``rollback`` refuses."""


@dataclass(frozen=True, slots=True)
class OpenedBatch:
    """A batch begins."""

    header: OpenBatch

    def fold(self, state: State, entry: Entry) -> None:
        """Open the batch; its items follow."""
        state.batch = self.header

    def undo(self, state: State, before: None) -> None:
        """Nothing to do: ``rollback`` restores the batch that was open before."""


def read(state: State, event: Event, data: bytes | None = None) -> Outcome:
    """Return the outcome that ``event`` records; ``data`` are its bytes, if known.

    Raises ValueError if it is not the next one, or its type is unknown.
    """
    if event.ledger != state.ledger or event.sequence != state.sequence:
        raise ValueError(
            f"{event.ledger}/{event.sequence} does not follow {state.ledger}/{state.sequence - 1}"
        )
    if event.time < state.time:
        raise ValueError(f"event {event.sequence} is stamped before the one it follows")
    body = event.body
    if state.batch is None and "batch" in body:
        raise ValueError(f"event {event.sequence} is an item of a batch that is not open")
    reader = _CHANGES.get(event.type)
    if reader is not None:
        change = reader(state, event)
    elif event.type in HANDLERS:
        change = Happened(event)
    else:
        raise ValueError(f"event {event.sequence} has the unknown type {event.type!r}")
    entry = Entry(event.sequence, event.type, event.time, data or event.to_bytes())
    command = to_keep(written(body["command"]))
    return Outcome(entry, event.by, body.get("key"), command, change, body.get("batch"))


def _reserve(state: State, event: Event) -> Change:
    command = event.body["command"]
    grant = Grant(
        id=f"g{event.sequence}",
        by=event.by,
        dataset=command["dataset"],
        selection=_selection(state, event),
        command=to_keep(written(command)),
        total=_charge(event.body["total"]),
        opened=event.time,
        expires=event.time + command.get("ttl_seconds", DEFAULT_TTL) * _SECOND,
        sequence=event.sequence,
        bookings=(),
        session=command["type"] == "open_sparse_vector",
    )
    return Reserve(grant)


def _end(ending: Ending) -> Callable[[State, Event], Change]:
    def read_end(state: State, event: Event) -> Change:
        body = event.body
        name = body["command"]["grant"]
        if "charge" in body:
            return End(name, ending, _charge(body["charge"]))
        return End(name, ending, Charge().on(state.open[name].total.axis))

    return read_end


def _note(state: State, event: Event) -> Change:
    return Note(event.body["command"]["grant"])


def _answered(state: State, event: Event) -> Change:
    body = event.body
    return Count(body["command"]["grant"], body["positives"], body["negatives"])


def _record(state: State, event: Event) -> Change:
    body = event.body
    selection = EVERYONE if body.get("charged_to") == "everyone" else _selection(state, event)
    dataset, total = body["command"]["dataset"], _charge(body["total"])
    return Record(dataset, event.by, selection, total)


def _refused(state: State, event: Event) -> Change:
    return NOTHING


def _open_batch(state: State, event: Event) -> Change:
    asked = envelope_of(event).command
    if not isinstance(asked, Batch):
        raise ValueError(f"event {event.sequence} answers {asked.command}, which is no batch")
    return OpenedBatch(OpenBatch(event.sequence, event.time, event.by, asked))


_CHANGES: Final[dict[str, Callable[[State, Event], Change]]] = {
    RESERVED: _reserve,
    REFUSED: _refused,
    COMMITTED: _end("committed"),
    RELEASED: _end("released"),
    EXPIRED: _end("expired"),
    NOTED: _note,
    ANSWERED: _answered,
    CLOSED: _end("committed"),
    RECORDED: _record,
    batches.OPENED: _open_batch,
    batches.REFUSED: _refused,
}


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
        for account in state.accounts.distinct():
            account.at(event.time).extend(axis, len(values), inherit)
        state.population = population.extended(dimension, tuple(values))
        for grant in state.grants.in_order():
            _widen(state, grant, dimension, values, inherit, event.time)
        if inherit:
            _inherit(state, dimension, values, event.time)


def _inherit(state: State, dimension: str, values: list[str], now: int) -> None:
    """In a window, treat what new cells inherited as spent now, so that it expires with it."""
    state.held = None
    reserved, new = state.reserved(), select(state.people(), {dimension: values})
    for key, account in state.accounts.items():
        if isinstance(account, WindowAccount):
            account.inherit(new, reserved.get(key), now)


def _widen(
    state: State, grant: Grant, dimension: str, values: list[str], inherited: bool, now: int
) -> None:
    """Extend an open grant whose group does not name ``dimension`` to the new values: what it runs
    from now on reaches their members. A rule that does not hold the reservation counts it there as
    spent.
    """
    asked = command_from_json(grant.document)
    new = reaching(state.people(), getattr(asked, "subjects", None), dimension, values)
    if grant.selection.everyone or not new.boxes:
        return
    holding = dict(grant.bookings)
    if not inherited:
        for key, booked in grant.bookings:
            state.accounts.alone(key).widen(new, booked)
        for key in state.route(grant.dataset, grant.by).keys:
            if key not in holding:
                state.to_change(key).book(new, grant.total, reserve=False, now=now)
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
        elif sources := sources_of(state, rule, start):
            carried = _bring(state, rule, epoch, sources)
        epochs[rule.id] = replace(epoch, carried=carried) if carried else epoch
    state.accounts.share()
    rules = {rule.id: rule for rule in before.policy.remembering} if before else {}
    state.memories = {
        rule.id: rule.begins(state.memories.get(rule.id), rules[rule.id])
        for rule in policy.remembering
        if rule.id in rules
    }
    state.custody = replace(state.custody, policies=(*state.custody.policies, event.sequence))
    state.adopted = Adopted(policy, event.body["command"]["source_digest"], event.sequence, epochs)


def sources_of(state: State, rule: LimitRule, start: Start) -> list[AccountKey]:
    """Return the accounts whose sums of epsilons and deltas a new epoch of ``rule`` starts from."""
    if start is Start.CONVERTED and state.adopted is not None:
        return _own(state, rule, state.adopted.epochs[rule.id].number)
    return _used(state, rule) if start is Start.BROUGHT else []


def _own(state: State, rule: LimitRule, epoch: int) -> list[AccountKey]:
    return [key for key in state.accounts if (key.rule, key.epoch) == (rule.id, epoch)]


def _used(state: State, rule: LimitRule) -> list[AccountKey]:
    """Return the lifetimes of the rule's datasets; none for a client's sub-limit, which starts at
    zero: it is no promise about the data.
    """
    datasets = [d for d in sorted(state.datasets) if matches(rule.datasets, d) and not rule.per]
    return [lifetime(dataset) for dataset in datasets if lifetime(dataset) in state.accounts]


def _carry(state: State, rule: LimitRule, old: int, new: int) -> bool:
    """Copy the accounts of the epoch ``old`` to ``new``, with open reservations. Returns whether
    there were any.
    """
    keys = {key: key._replace(epoch=new) for key in _own(state, rule, old)}
    for key, after in keys.items():
        state.accounts.put(after, state.accounts[key].copy())
    for grant in list(state.open.values()):
        also = tuple((keys[key], booked) for key, booked in grant.bookings if key in keys)
        if also:
            state.grants.keep(grant._replace(bookings=grant.bookings + also))
    return bool(keys)


def _bring(state: State, rule: LimitRule, epoch: Epoch, sources: list[AccountKey]) -> bool:
    """Open accounts that start from what was used or reserved in ``sources``, as a plain sum of
    epsilons. Returns whether there were any.
    """
    brought: dict[AccountKey, Account] = {}
    for source in sources:
        account = state.accounts[source]
        key = account_key(rule, epoch.number, source.dataset, source.client)
        brought.setdefault(key, Account.empty(account.used.shape, epoch.axis)).absorb(account)
    for gate in FILTERS.values() if epoch.axis != SURE else ():
        if (currency := gate.currency(epoch.limit)) is not None:
            for account in brought.values():
                account.restate(currency, gate.per_epsilon(epoch.limit))
    for key, account in brought.items():
        state.accounts.put(key, account)
    return bool(brought)


def _revalue(state: State, event: Event) -> None:
    command = event.body["command"]
    selection = EVERYONE if command.get("everyone") else _selection(state, event)
    more = Charge.from_json(event.body["more"])
    booked = Record(command["dataset"], command["by"], selection, more)
    booked.fold(state, Entry.of(event))
    state.revalued[command["event"]] = state.custody.engine


def _selection(state: State, event: Event) -> Selection:
    subjects = event.body["command"].get("subjects")
    if subjects is None:
        return EVERYONE  # nothing else of the command bears on it
    return selected(state.people(), read_subjects(subjects))


def _charge(document: Any) -> Charge:
    return _charge_of(to_keep(orjson.dumps(document)))


@lru_cache(maxsize=_REMEMBERED)
def _charge_of(data: bytes) -> Charge:
    return Charge.from_json(orjson.loads(data))


HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = custody.HANDLERS | {
    "population.registered.v1": _register_population,
    "population.extended.v1": _extend_population,
    "dataset.registered.v1": _register_dataset,
    "policy.adopted.v1": _adopt_policy,
    "charge.revalued.v1": _revalue,
}
TYPES: Final = frozenset(_CHANGES) | frozenset(HANDLERS)
"""All types of events that can be folded in."""
