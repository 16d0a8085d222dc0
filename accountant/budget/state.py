"""The state of a ledger: what its events, folded in order, amount to.

This module is what decisions read; ``folding`` is the only one that changes a state.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from accountant.budget.accounts import Account
from accountant.budget.answers import Answers
from accountant.budget.batches import REFUSED, OpenBatch
from accountant.budget.commands import Asked, command_from_json
from accountant.budget.custody import Custody
from accountant.budget.epochs import Adopted, Epoch
from accountant.budget.errors import Invalid, NotFound
from accountant.budget.grants import AccountKey, Grant, Grants, Settled
from accountant.budget.policy import LimitRule
from accountant.budget.population import Dataset, Population
from accountant.ledger.events import Event
from accountant.privacy.units import SURE, Axis

__all__ = [
    "ALL",
    "AccountKey",
    "Counted",
    "Grant",
    "Settled",
    "State",
    "account_key",
    "asked_of",
    "lifetime",
    "matches",
]

ALL: Final = "*"
"""The scope of a person's total over all datasets. (No dataset id contains a star.)"""


def lifetime(dataset: str) -> AccountKey:
    """The accumulator of everything ever booked on a dataset, or on all of them."""
    return AccountKey("", 0, dataset)


class Counted(NamedTuple):
    """A limit rule in force, its epoch, and one account that it counts in."""

    rule: LimitRule
    epoch: Epoch
    key: AccountKey


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
    grants: Grants = field(default_factory=Grants)
    answers: Answers = field(default_factory=Answers)
    last_epoch: dict[str, int] = field(default_factory=dict)
    custody: Custody = field(default_factory=Custody)
    revalued: dict[int, int] = field(default_factory=dict)
    """Events whose charges were corrected, and the version of the bounds that did it last."""
    memories: dict[str, Any] = field(default_factory=dict)
    """What rules remember, by rule: JSON values, which are replaced and never changed."""
    batch: OpenBatch | None = None
    """The batch whose items are being folded in; between two commits there is none."""
    below: Mapping[AccountKey, Account] = field(default_factory=dict)
    """The accounts that a layer lies over (layer.py): read, never changed."""

    @property
    def open(self) -> MutableMapping[str, Grant]:
        """The grants that are not settled yet."""
        return self.grants.open

    @property
    def last(self) -> int:
        """The sequence of the last event; -1 before the first."""
        return self.sequence - 1

    def frozen(self) -> State:
        """The state as it is now, for who reads it while this one goes on. Cells are only copied
        if they are changed meanwhile; answers and settled grants not at all: who looks for one of
        those holds this state still.
        """
        return replace(
            self,
            accounts={key: account.frozen() for key, account in self.accounts.items()},
            datasets=dict(self.datasets),
            grants=self.grants.frozen(),
            last_epoch=dict(self.last_epoch),
            revalued=dict(self.revalued),
            memories=dict(self.memories),
        )

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

    def grant(self, name: str) -> Grant | Settled:
        """A grant, whatever became of it. Raises NotFound."""
        if (grant := self.grants.get(name)) is None:
            raise NotFound("unknown-grant", f"no grant is called {name!r} in {self.ledger}")
        return grant

    def account(self, key: AccountKey) -> Account:
        """The account of ``key``, or an empty one; it is not kept."""
        if (account := self.accounts.get(key) or self.below.get(key)) is not None:
            return account
        epoch = self.adopted.epochs.get(key.rule) if self.adopted else None
        current = epoch is not None and epoch.number == key.epoch
        return Account.empty(self.people().shape, epoch.axis if epoch and current else SURE)

    def to_change(self, key: AccountKey) -> Account:
        """The account of ``key``, which is kept: a copy of the one below, a new one if need be."""
        account = self.accounts.get(key)
        if account is None:
            below = self.below.get(key)
            account = self.account(key) if below is None else below.over()
            self.accounts[key] = account
        return account

    def axis(self, counted: Counted) -> Axis:
        """The currencies that the account of ``counted`` keeps."""
        account = self.accounts.get(counted.key) or self.below.get(counted.key)
        return counted.epoch.axis if account is None else account.axis

    @property
    def orders(self) -> tuple[int, ...]:
        """The Renyi orders that the rules in force count at."""
        return self.adopted.orders if self.adopted else ()

    def limits_on(self, dataset: str, client: str) -> list[Counted]:
        """The limit rules that a charge by ``client`` on ``dataset`` counts in."""
        if self.adopted is None:
            return []
        return [
            Counted(rule, epoch, account_key(rule, epoch.number, dataset, client))
            for rule in self.adopted.policy.limits
            if matches(rule.datasets, dataset)
            for epoch in [self.adopted.epochs[rule.id]]
        ]

    def next_event(self, asked: Asked, kind: str, now: int, body: dict[str, Any]) -> Event:
        """The event of ``kind`` that would answer ``asked`` at stamp ``now``."""
        body = {"command": asked.document} | body
        if self.batch is not None:
            body["batch"] = self.batch.header
        if asked.key is not None:
            body["key"] = asked.key
        return Event(self.ledger, self.sequence, kind, now, asked.by, body)


def account_key(rule: LimitRule, epoch: int, dataset: str, client: str) -> AccountKey:
    """The accumulator of ``rule`` that a charge on ``dataset`` by ``client`` goes to."""
    scope = ALL if rule.across else dataset
    return AccountKey(rule.id, epoch, scope, client if rule.per else "")


def matches(pattern: str, dataset: str) -> bool:
    """Shell-style glob over dataset ids."""
    return fnmatchcase(dataset, pattern)


def asked_of(event: Event) -> Asked:
    """The command that ``event`` answers."""
    body = event.body
    items = map(command_from_json, body["items"] if event.type == REFUSED else ())
    return Asked(event.by, command_from_json(body["command"]), body.get("key"), tuple(items))
