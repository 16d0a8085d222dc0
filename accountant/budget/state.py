"""The state of a ledger: what its events, folded in order, amount to.

``State.apply`` is the only code that changes a state, and it believes what an event says was
booked; ``replay`` is what checks the saying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple

from accountant.budget.accounts import Account
from accountant.budget.commands import Asked, command_from_json
from accountant.budget.errors import Invalid, NotFound
from accountant.budget.policy import LimitRule, Policy
from accountant.budget.population import Dataset, Membership, Population
from accountant.budget.selection import EVERYONE, Selection, select
from accountant.ledger.events import Event, digest, microseconds
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import Charge

ALL: Final = "*"
"""The scope of a person's total over all datasets. (No dataset id contains a star.)"""

Status = Literal["reserved", "committed", "released", "expired"]


class AccountKey(NamedTuple):
    """Which accumulator: a rule's (or "" for the lifetime), its epoch, dataset and client."""

    rule: str
    epoch: int
    dataset: str
    client: str = ""


def lifetime(dataset: str) -> AccountKey:
    """The accumulator of everything ever booked on a dataset, or on all of them."""
    return AccountKey("", 0, dataset)


@dataclass(frozen=True, slots=True)
class Grant:
    """A reservation and what became of it. ``bookings`` are the accounts that hold it."""

    id: str
    by: str
    dataset: str
    selection: Selection
    command: dict[str, Any]
    total: Charge
    opened: int
    expires: int
    sequence: int
    bookings: tuple[tuple[AccountKey, Charge], ...]
    session: bool = False
    status: Status = "reserved"
    charged: Charge | None = None
    positives: int = 0
    negatives: int = 0
    late_note: bool = False

    def due(self, now: int) -> bool:
        """Past its time: expired, noticed or not."""
        return self.status == "reserved" and now >= self.expires


@dataclass(frozen=True, slots=True)
class Epoch:
    """A rule's life with one limit. ``since`` is the stamp from which it counts."""

    number: int
    since: int
    carried: bool


@dataclass(frozen=True, slots=True)
class Adopted:
    """The policy in force and the epoch of each of its limit rules."""

    policy: Policy
    digest: str
    sequence: int
    epochs: dict[str, Epoch]


@dataclass(slots=True)
class State:
    """Everything that decisions read. ``sequence`` is the next event's, ``time`` the last stamp."""

    ledger: str
    sequence: int = 0
    time: int = 0
    population: Population | None = None
    datasets: dict[str, Dataset] = field(default_factory=dict)
    adopted: Adopted | None = None
    accounts: dict[AccountKey, Account] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    open: dict[str, Grant] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    last_epoch: dict[str, int] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The sequence of the last event; -1 before the first."""
        return self.sequence - 1

    def people(self) -> Population:
        """The population. Raises NotFound while none is registered."""
        if self.population is None:
            raise NotFound(
                "unknown-population",
                f"no population is called {self.ledger!r}; register it with "
                f"PUT /v1/populations/{self.ledger}",
            )
        return self.population

    def dataset(self, name: str) -> Dataset:
        """A registered dataset. Raises Invalid otherwise."""
        if name not in self.datasets:
            raise Invalid(
                "unknown-dataset",
                f"no dataset is called {name!r} in population {self.ledger}; register it with "
                f"PUT /v1/populations/{self.ledger}/datasets/{name}",
            )
        return self.datasets[name]

    def grant(self, name: str) -> Grant:
        """A grant, whatever became of it. Raises NotFound."""
        if name not in self.grants:
            raise NotFound("unknown-grant", f"no grant is called {name!r} in {self.ledger}")
        return self.grants[name]

    def account(self, key: AccountKey) -> Account:
        """The account of ``key``, or an empty one; it is not kept."""
        return self.accounts.get(key) or Account.empty(self.people().shape)

    def limits_on(self, dataset: str, client: str) -> list[tuple[LimitRule, AccountKey]]:
        """The limit rules that a charge by ``client`` on ``dataset`` counts in, each with its
        account.
        """
        if self.adopted is None:
            return []
        return [
            (rule, account_key(rule, self.adopted.epochs[rule.id].number, dataset, client))
            for rule in self.adopted.policy.limits
            if matches(rule.datasets, dataset)
        ]

    def next_event(self, asked: Asked, kind: str, now: int, body: dict[str, Any]) -> Event:
        """The event of ``kind`` that would answer ``asked`` at stamp ``now``."""
        body = {"command": asked.command.to_json()} | body
        if asked.key is not None:
            body["key"] = asked.key
        return Event(self.ledger, self.sequence, kind, now, asked.by, body)

    def apply(self, event: Event) -> None:
        """Folds one event in. Raises ValueError if it is not the next one or of no known type."""
        if event.ledger != self.ledger or event.sequence != self.sequence:
            raise ValueError(
                f"{event.ledger}/{event.sequence} does not follow {self.ledger}/{self.sequence - 1}"
            )
        if event.time < self.time:
            raise ValueError(f"event {event.sequence} is stamped before the one it follows")
        handler = _HANDLERS.get(event.type)
        if handler is None:
            raise ValueError(f"event {event.sequence} has the unknown type {event.type!r}")
        handler(self, event)
        if key := event.body.get("key"):
            self.answers[event.by, key] = (digest(event.body["command"]), event.sequence)
        self.sequence, self.time = event.sequence + 1, event.time


def account_key(rule: LimitRule, epoch: int, dataset: str, client: str) -> AccountKey:
    """The accumulator of ``rule`` that a charge on ``dataset`` by ``client`` goes to."""
    scope = ALL if rule.across else dataset
    return AccountKey(rule.id, epoch, scope, client if rule.per else "")


def matches(pattern: str, dataset: str) -> bool:
    """Shell-style glob over dataset ids."""
    return fnmatchcase(dataset, pattern)


def fold(ledger: str, events: Iterable[Event]) -> State:
    """The state after ``events``."""
    state = State(ledger)
    for event in events:
        state.apply(event)
    return state


def asked_of(event: Event) -> Asked:
    """The command that ``event`` answers."""
    return Asked(event.by, command_from_json(event.body["command"]), event.body.get("key"))


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


def limit_rule(adopted: Adopted | None, name: str) -> LimitRule | None:
    """The limit rule of that name in force, if there is one."""
    return next((r for r in adopted.policy.limits if r.id == name), None) if adopted else None


def same_scope(old: LimitRule, new: LimitRule) -> bool:
    """True if both rules count the same charges in the same accounts."""
    return (old.datasets, old.across, old.per) == (new.datasets, new.across, new.per)


def opens_epoch(old: LimitRule, new: LimitRule) -> bool:
    """True if ``new`` is another filter: limit, split, gate or scope differ, or it is a reset."""
    reset = new.carry == "none" and old.carry != "none"
    return reset or not same_scope(old, new) or (old.limit, old.gate) != (new.limit, new.gate)


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


_HANDLERS: Final[dict[str, Callable[[State, Event], None]]] = {
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
