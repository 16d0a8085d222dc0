"""The state of a ledger after some of its events. Decisions read it; only ``apply`` changes it."""

from __future__ import annotations

from collections.abc import (
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.accounts import Accounts
from accountant.budget.accounts.classes import MOST as MOST_CLASSES
from accountant.budget.accounts.classes import Classes, Space
from accountant.budget.accounts.epochs import Adopted, Epoch
from accountant.budget.accounts.sums import Sums
from accountant.budget.accounts.unlocking import (
    UNLOCKED,
    Arrivals,
    Lock,
    over_time,
    per_request,
)
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.batches import PART, REFUSED, Gathered, OpenBatch
from accountant.budget.commands import Envelope, command_from_json
from accountant.budget.commands.plain import read_plain
from accountant.budget.custody.custody import Custody
from accountant.budget.errors import Invalid, NotFound
from accountant.budget.facts import lets_emptied
from accountant.budget.grants import AccountKey, Grant, Grants, Settled
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.outcome import CHARGING
from accountant.budget.population.population import Dataset, Population
from accountant.budget.population.selection import (
    EVERYONE,
    Selection,
)
from accountant.budget.proposals import (
    Proposal,
)
from accountant.budget.reach import Names, Reach, named_in, reach_of
from accountant.budget.rules.limit import LimitRule
from accountant.budget.rules.scope import ALL
from accountant.budget.waiting.asked import Waiting
from accountant.budget.waiting.queue import Queue
from accountant.ledger.events import Event, to_keep, written
from accountant.privacy.curves import Orders

# Defined elsewhere; what is defined below is public too.
__all__ = ["ALL", "AccountKey", "Grant", "Settled"]

_MOST_ROUTES: Final = 4_096
_MOST_STAMPS: Final = 4_096
"""Stamps at which something passes from an account that is looked at."""


def lifetime(dataset: str, unit: str = "") -> AccountKey:
    """Return the accumulator of everything ever booked on a dataset, or on all of them, as it was
    charged to a unit.
    """
    return AccountKey("", 0, dataset, unit=unit)


class Counted(NamedTuple):
    """A limit rule in force, its epoch, and one account that it counts in."""

    rule: LimitRule
    epoch: Epoch
    key: AccountKey


@dataclass(slots=True, weakref_slot=True)
class State:
    """Everything that decisions read. ``sequence`` is the next event's, ``time`` the last stamp."""

    ledger: str
    sequence: int = 0
    time: int = 0
    population: Population | None = None
    datasets: dict[str, Dataset] = field(default_factory=dict)
    adopted: Adopted | None = None
    accounts: Accounts = field(default_factory=Accounts)
    grants: Grants = field(default_factory=Grants)
    idempotency: IdempotencyIndex = field(default_factory=IdempotencyIndex)
    waiting: Queue = field(default_factory=Queue)
    last_epoch: dict[str, int] = field(default_factory=dict)
    custody: Custody = field(default_factory=Custody)
    revalued: dict[int, int] = field(default_factory=dict)
    """Events whose charges were corrected, and the version of the bounds that did it last."""
    memories: dict[str, Any] = field(default_factory=dict)
    """What rules remember, by rule: JSON values, which are replaced and never changed."""
    proposals: Mapping[int, Proposal] = field(default_factory=dict)
    """By the sequence of the event that proposed it; replaced and never changed."""
    arrivals: dict[AccountKey, Arrivals] = field(default_factory=dict)
    """How many requests have asked for each cell, by account of a limit that they unlock."""
    classes: Classes | None = field(default=None, compare=False)
    """Of a population of many cells: what all sums are kept by."""
    now: int = field(default=0, compare=False)
    """The stamp of the read, if that is later than the last event's."""
    batch: OpenBatch | Gathered | None = None
    """The batch whose items, or parts, are being folded in; between two commits there is none."""
    held: tuple[int, dict[AccountKey, Sums]] | None = field(default=None, compare=False)
    """``reserved``, worked out for the next event's sequence."""
    journal: list[Any] | None = None
    """How to take back what was folded in since the transaction began (apply.py)."""

    @property
    def open(self) -> MutableMapping[str, Grant]:
        """The grants that are not settled yet."""
        return self.grants.open

    @property
    def last(self) -> int:
        """The sequence of the last event; -1 before the first."""
        return self.sequence - 1

    def frozen(self, now: int = 0, *, whole: bool = False, requests: bool = True) -> State:
        """Return a copy at stamp ``now``, or the last event's if that is later, for readers while
        this one goes on. Cells are only copied if they are changed meanwhile;
        answers and settled grants are shared: to look one up, hold the lock of the projection.
        Without ``requests`` it has no grants and nothing waits: copying many takes long.
        """
        at, classes = max(self.time, now), self.classes and self.classes.view()
        return replace(
            self,
            now=now,
            accounts=Accounts(
                (key, _by(one.at(at).frozen(whole=whole), classes))
                for key, one in self.accounts.items()
            ),
            datasets=dict(self.datasets),
            grants=self.grants.frozen() if requests else Grants(),
            waiting=self.waiting.frozen() if requests else Queue(),
            last_epoch=dict(self.last_epoch),
            revalued=dict(self.revalued),
            memories=dict(self.memories),
            arrivals=_frozen(self.arrivals, classes),
            classes=classes,
            journal=None,
        )

    def about(
        self,
        asked: Names,
        client: str,
        now: int,
        purpose: object = None,
        allotment: str | None = None,
    ) -> State:
        """Return a copy of what bears on a request of ``client`` on datasets at stamp ``now``."""
        route = self.route(self.reach(asked).charged, client, purpose, allotment)
        beside = (one.key for keeps in route.keeps.values() for one in keeps)
        kept = {key: self.accounts.get(key) for key in (*route.keys, *beside)}
        classes = self.classes and self.classes.view()
        return replace(
            self,
            accounts=Accounts(
                (key, _by(_looked_at(one.at(now)), classes)) for key, one in kept.items() if one
            ),
            grants=Grants(),
            waiting=Queue(),
            memories=dict(self.memories),
            arrivals=_frozen({k: v for k, v in self.arrivals.items() if k in kept}, classes),
            classes=classes,
            journal=None,
        )

    def people(self) -> Population:
        """Return the population. Raises NotFound while none is registered."""
        if self.population is None:
            raise NotFound(
                "unknown-population",
                f"no population is called {self.ledger!r}; register it with "
                f"PUT /v1/populations/{self.ledger}",
            )
        return self.population

    def dataset(self, name: str) -> Dataset:
        """Return a registered dataset. Raises Invalid otherwise."""
        if name not in self.datasets:
            raise Invalid(
                "unknown-dataset",
                f"no dataset is called {name!r} in population {self.ledger}; register it with "
                f"PUT /v1/populations/{self.ledger}/datasets/{name}",
            )
        return self.datasets[name]

    def known_allotment(self, name: str) -> None:
        """Raise Invalid unless the policy in force has an allotment of that name."""
        parts = self.adopted.policy.allotments.values() if self.adopted else ()
        if not any(one.id == name for each in parts for one in each):
            raise Invalid(
                "unknown-allotment",
                f"the policy of population {self.ledger} has no allotment called {name!r}; ask "
                "without one for the common part",
            )

    def reach(self, asked: Names) -> Reach:
        """Return the datasets that a request is charged to. Raises Invalid for an unknown one."""
        named = named_in(asked)
        for name in named:
            self.dataset(name)
        return reach_of(self.datasets, named)

    def grant(self, name: str) -> Grant | Settled | Waiting:
        """Return a grant, open or settled, or a request that waits to be one. Raises NotFound."""
        grant = self.grants.get(name) or self.waiting.requests.get(name)
        if grant is None:
            raise NotFound("unknown-grant", f"no grant is called {name!r} in {self.ledger}")
        return grant

    def cells(self, unit: str, selection: Selection) -> Selection:
        """Return the cells of a charge to ``selection`` in the accounts of a unit."""
        return selection.to_unit(spans=unit in self.people().spans) if unit else selection

    def account(self, key: AccountKey) -> Account:
        """Return the account of ``key``, or an empty one that is not kept."""
        if (account := self.accounts.get(key)) is not None:
            return account
        epoch = self.adopted.epochs.get(key.rule) if self.adopted else None
        if epoch is not None and epoch.number == key.epoch:
            return epoch.opens(self.space)
        return Account.empty(self.space)

    @property
    def space(self) -> Space:
        """What cells sums are of."""
        return self.classes or self.people().shape

    def seen(self, key: AccountKey) -> Account:
        """Return the account of ``key`` as it counts now, for readers."""
        return self.account(key).at(max(self.time, self.now))

    def beyond(self, selection: Selection) -> int | None:
        """Return how many classes of cells there would be if ``selection`` were charged, where that
        is more than there may be; None otherwise.
        """
        if self.classes is None or selection.everyone:
            return None
        count = self.classes.parted(selection)
        return count if count > MOST_CLASSES else None

    def lock(
        self, counted: Counted, now: int, arriving: tuple[Selection, int] = (EVERYONE, 0)
    ) -> Lock:
        """Return what is locked at stamp ``now`` of a limit that unlocks gradually, in an account;
        once a number of requests for some cells, which are ``arriving``, is there.
        """
        (rule, epoch, key), people = counted, self.people()
        unlock, window = rule.unlock, epoch.window
        if unlock is None:
            return UNLOCKED
        if unlock.over is not None:
            period = None if window is None else window.period(now)
            return over_time(people, unlock.length, epoch.begun, period, now, self.space)
        arrived = self.arrivals.get(key)
        counting = None if arrived is None else arrived.at(now)
        return per_request(unlock.share, counting, *arriving, self.space)

    def to_change(self, key: AccountKey) -> Account:
        """Return the account of ``key`` to change it alone; opens one if there is none."""
        self.accounts.open((key,), self.account)
        return self.accounts.alone(key)

    def reserved(self) -> dict[AccountKey, Sums]:
        """Return what open grants hold and may give back, by account. Do not change it."""
        if self.held is not None and self.held[0] == self.sequence:
            return self.held[1]
        found = self._reserved(None)
        self.held = self.sequence, found
        return found

    def reserved_in(self, account: AccountKey) -> Sums | None:
        """Return what open grants hold in one account and may give back; None if it is nothing. Do
        not change it.
        """
        return self.reserved_of((account,)).get(account)

    def reserved_of(self, accounts: Iterable[AccountKey]) -> dict[AccountKey, Sums]:
        """Return ``reserved`` of some accounts. Open grants are looked at once, and only where an
        account does not say it by itself.
        """
        if self.held is not None and self.held[0] == self.sequence:
            every = self.held[1]
            return {key: every[key] for key in accounts if key in every}
        found: dict[AccountKey, Sums] = {}
        unknown = set[AccountKey]()
        for key in accounts:
            if (account := self.accounts.get(key)) is None:
                continue
            if not account.says_held:
                unknown.add(key)
            elif (sums := account.reserved()) is not None:
                found[key] = sums
        return found | self._reserved(unknown) if unknown else found

    def _reserved(self, only: Container[AccountKey] | None) -> dict[AccountKey, Sums]:
        """Add up what open grants hold in all accounts, or in ``only`` some."""
        alike: dict[tuple[AccountKey, int, int], list[Any]] = {}
        for grant in self.open.values():  # of those that hold the same of the same, one is added
            for key, booked in grant.bookings:
                if only is not None and key not in only:
                    continue
                cells = self.cells(key.unit, grant.selection)
                place = key, id(cells), id(booked)
                alike.setdefault(place, [cells, booked, 0])[2] += 1
        found: dict[AccountKey, Sums] = {}
        for (key, _, _), (selection, booked, count) in alike.items():
            if key not in found:
                found[key] = Sums(len(booked.axis), self.accounts[key].used.space)
            finite = [count * units for units in booked.finite]
            found[key].add(selection, finite, [count * n for n in booked.infinite])
        return found

    @property
    def orders(self) -> Orders:
        """The Renyi orders that the rules in force count at."""
        return self.adopted.orders if self.adopted else ()

    def limits_on(self, datasets: tuple[str, ...], client: str) -> tuple[Counted, ...]:
        """Return the accounts of limit rules that a charge by ``client`` on all ``datasets``, for
        no purpose that a rule names, counts in.
        """
        return self.route(datasets, client).limits

    def route(
        self,
        datasets: tuple[str, ...],
        client: str,
        purpose: object = None,
        allotment: str | None = None,
    ) -> Route:
        """Return where a charge by ``client`` on all ``datasets`` for ``purpose``, drawn from
        ``allotment``, goes; found once for each policy, until a dataset changes.
        """
        if self.adopted is None:
            return self._find(datasets, client, None, None)
        routes, scoping = self.adopted.routes, self.adopted.scoping
        # Any other purpose is free text, which is in no scope.
        listed = purpose if scoping and type(purpose) is str and purpose in scoping else None
        place = datasets, client, listed, allotment
        if (found := routes.get(place)) is None:
            if len(routes) >= _MOST_ROUTES:
                routes.clear()
            found = routes[place] = self._find(*place)
        return found

    def correction(
        self, datasets: tuple[str, ...], client: str, purpose: object, allotment: str | None = None
    ) -> Route:
        """Return where a correction of an earlier charge goes: of limits across datasets that these
        may be in the scope of, to the total, for the charge may be in that.
        """
        return self._find(datasets, client, purpose, allotment, everywhere=True)

    def _find(
        self,
        names: tuple[str, ...],
        client: str,
        purpose: object,
        allotment: str | None,
        *,
        everywhere: bool = False,
    ) -> Route:
        units = tuple(unit.name for unit in self.people().units)
        if (adopted := self.adopted) is None:
            return Route.of((), (), names, units)
        data, named_for = [self.datasets[name] for name in names], adopted.named(purpose)
        counted: dict[AccountKey, Counted] = {}
        outside: dict[AccountKey, None] = {}
        for rule in adopted.policy.limits:
            scope, epoch = rule.scope, adopted.epochs[rule.id]
            if not rule.counts(client, purpose, allotment):
                continue
            named = [one for one in data if scope.names_it(one.id)]
            inside = [one.id for one in named if everywhere or scope.holds(one)]
            for name in inside:
                key = account_key(rule, epoch.number, name, client, named_for)
                counted[key] = Counted(rule, epoch, key)
            if not (rule.across and inside):  # what counts in the total counts there once
                beside = (one.id for one in named if one.id not in inside)
                outside |= dict.fromkeys(
                    outside_key(rule, epoch.number, name, client, named_for) for name in beside
                )
        scopes = adopted.policy.scopes
        covering = frozenset(r.id for r, scope in scopes if scope.meets(data, client, purpose))
        guarded = all(map(adopted.guards, data))
        limits = tuple(counted.values())
        found = Route.of(limits, tuple(outside), names, units, covering, guarded=guarded)
        if not adopted.policy.allotments:
            return found
        return found._replace(keeps={key: tuple(self.keeping(key, counted)) for key in counted})

    def keeping(
        self, key: AccountKey, counted: Container[AccountKey] = frozenset()
    ) -> Iterator[Counted]:
        """Yield the allotments that may keep a part of the account of ``key``, but for those that a
        request draws from: their accounts are ``counted`` too.
        """
        if (adopted := self.adopted) is None:
            return
        for rule in adopted.policy.allotments.get(key.rule, ()):
            epoch = adopted.epochs[rule.id]
            mine = key._replace(rule=rule.id, epoch=epoch.number)
            about = key.dataset == ALL or rule.scope.holds(self.datasets[key.dataset])
            if about and mine not in counted:
                yield Counted(rule, epoch, mine)

    def next_event(self, asked: Envelope, kind: str, now: int, body: dict[str, Any]) -> Event:
        """Return the event of ``kind`` that would answer ``asked`` at stamp ``now``."""
        body = {"command": asked.document} | body
        if asked.key is not None:
            body["key"] = asked.key
        return Event(self.ledger, self.sequence, kind, now, asked.by, body)


class Route(NamedTuple):
    """The limits that a charge counts in, and all accounts that it is booked in: theirs, those
    outside of scopes, and the lifetimes.
    """

    limits: tuple[Counted, ...]
    by_rule: dict[str, list[Counted]]
    """By rule: an account for each dataset that it counts, or one for all of them."""
    keys: tuple[AccountKey, ...]
    by_unit: tuple[tuple[str, tuple[AccountKey, ...]], ...]
    """The same by the unit that they count for."""
    rules: frozenset[str]
    """All rules that are about such a request."""
    guarded: bool
    """A limit that blocks and counts all charges covers each dataset."""
    keeps: Mapping[AccountKey, tuple[Counted, ...]] = {}
    """By account: the allotments that keep a part of it from this request."""

    @classmethod
    def of(
        cls,
        limits: tuple[Counted, ...],
        outside: tuple[AccountKey, ...],
        datasets: tuple[str, ...],
        units: tuple[str, ...] = (),
        rules: frozenset[str] = frozenset(),
        *,
        guarded: bool = False,
    ) -> Route:
        """Return the route of a charge on ``datasets`` that counts in ``limits``, in a population
        with the further ``units``.
        """
        by_rule: dict[str, list[Counted]] = {}
        for counted in limits:
            by_rule.setdefault(counted.rule.id, []).append(counted)
        keys = [*(counted.key for counted in limits), *outside]
        every = (*keys, *map(lifetime, (*datasets, ALL)))
        if not units:
            return cls(limits, by_rule, every, (("", every),), rules, guarded)
        every += tuple(lifetime(name, unit) for unit in units for name in (*datasets, ALL))
        by_unit = ((unit, tuple(key for key in every if key.unit == unit)) for unit in ("", *units))
        return cls(limits, by_rule, every, tuple(by_unit), rules, guarded)


def _looked_at(account: Account) -> Account:
    """Return a copy of an account that counts what it does now; at later stamps too, unless what is
    to pass is a long list, which would take long to copy: then nobody knows when it has passed.
    """
    whole = isinstance(account, WindowAccount) and account.stamps <= _MOST_STAMPS
    return account.frozen(whole=whole)


def _by(account: Account, classes: Classes | None) -> Account:
    """Return a reader's account, whose sums are by classes of the reader's own, if they are."""
    account.used = account.used.by(classes)
    return account


def _frozen(
    arrivals: dict[AccountKey, Arrivals], classes: Classes | None
) -> dict[AccountKey, Arrivals]:
    counts = ((key, one, one.counts.frozen().by(classes)) for key, one in arrivals.items())
    return {key: one._replace(counts=found) for key, one, found in counts}


def account_key(
    rule: LimitRule, epoch: int, dataset: str, client: str, purpose: str = ""
) -> AccountKey:
    """Return the account of ``rule`` that a charge by ``client`` on ``dataset``, which is in scope,
    counts in; ``purpose`` is one that the policy lists, or "".
    """
    place, by, why = rule.place(dataset, client, purpose)
    return AccountKey(rule.id, epoch, place, by, rule.unit or "", why)


def outside_key(
    rule: LimitRule, epoch: int, dataset: str, client: str, purpose: str = ""
) -> AccountKey:
    """Return the account that keeps it while ``dataset`` is out of scope (rules/limit.py)."""
    return account_key(rule, epoch, dataset, client, purpose)._replace(dataset=dataset)


def envelope_of(event: Event) -> Envelope:
    """Return the command that ``event`` answers."""
    body = event.body
    document, listed = body["command"], event.type in (REFUSED, PART)
    if not listed and (command := read_plain(document)) is not None:
        everyone = body.get("charged_to") == "everyone"
        return Envelope(
            event.by,
            command,
            body.get("key"),
            again=True,
            everyone=everyone,
            emptied=lets_emptied(body, document),
            shown=document,
            spelled=to_keep(written(document)),
        )
    everyone, command = body.get("charged_to") == "everyone", command_from_json(document)
    about = event.by, command, body.get("key")
    if listed:
        parts = tuple(_items_of(event))
        items = tuple(part.command for part in parts)
        return Envelope(*about, items, again=True, listed=parts)
    charges, forgets = event.type == CHARGING, "unnamed" in body.get("effect", ())
    return Envelope(
        *about,
        again=True,
        everyone=everyone,
        charges=charges,
        forgets=forgets,
        emptied=lets_emptied(body, document),
    )


def _items_of(event: Event) -> Iterator[Envelope]:
    """Yield the items that a refusal of a batch, or a part, holds. All but the one that was refused
    were let in, or not judged at all.
    """
    body = event.body
    for place, item in enumerate(body["items"]):
        emptied = place != body.get("item") or lets_emptied(body, item)
        yield Envelope(event.by, command_from_json(item), again=True, emptied=emptied)
