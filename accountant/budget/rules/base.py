"""The base of all rule kinds: a model, what it reads, its comparison and its text, in one file.

``compare`` is the only place where a rule decides: ``evaluate`` calls it live, in previews, in
batches, in replay and in verification. It reads nothing but the ``View``, and of that only what the
kind declares in ``reads`` (tests/rules holds every kind to it).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from accountant.budget.accounts.kept import Beside, Kept
from accountant.budget.accounts.peak import Reading
from accountant.budget.bill import Bill, Per
from accountant.budget.rules.scope import (
    EVERYTHING,
    Ids,
    Labels,
    Patterns,
    Purposes,
    Scope,
    either,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from accountant.budget.accounts.account import Account
    from accountant.budget.accounts.epochs import Adopted, Epoch
    from accountant.budget.accounts.peak import Peak
    from accountant.budget.accounts.unlocking import Lock
    from accountant.budget.commands import Sealed
    from accountant.budget.grants import AccountKey
    from accountant.budget.population.population import Dataset, Population
    from accountant.budget.population.selection import Selection
    from accountant.budget.request import Request
    from accountant.budget.rules.limit import LimitRule
    from accountant.budget.state import State
    from accountant.budget.waiting.asked import About
    from accountant.ledger.events import Event
    from accountant.privacy.filters import Capacity
    from accountant.privacy.units import Charge

RuleId = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Action = Literal["block", "approve", "flag"]
Ruling = Literal["allow", "flag", "approve", "block"]
STRICTNESS: Final[dict[str, int]] = {"allow": 0, "flag": 1, "approve": 2, "block": 3}
HOLDING: Final = frozenset({"approve", "block"})
"""The actions that keep a request from being granted at once: until a person approves, or at all.
"""


class Strict(BaseModel):
    """A part of a policy: immutable, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Compared(Struct, frozen=True):
    """The comparison of one rule with one request. ``seen`` is what the event keeps of it: a JSON
    value, nothing that the command or the policy already says; None if there is nothing.
    """

    rule: str
    action: Action
    fired: bool
    code: str
    seen: Any = None


class Finding(NamedTuple):
    """A comparison as text. ``numbers`` are fields that only some kinds have."""

    rule: str
    action: Action
    fired: bool
    code: str
    text: str
    numbers: Mapping[str, Any] = {}

    def to_json(self) -> dict[str, Any]:
        """As a decision shows it."""
        fields = self._asdict()
        numbers = fields.pop("numbers")
        return {**fields, **numbers}


class Used(Struct, frozen=True, gc=False):
    """What a limit rule has used of the selected cells in one of its accounts."""

    dataset: str
    """The dataset of the account, or "*" for a total over datasets."""
    epoch: Epoch
    reading: Reading
    charge: Charge
    """What the request costs one of the units that the account counts for, in its currencies."""
    beside: Beside | None = None
    """The same with what is kept for allotments that the request does not draw from, if any are."""
    lock: Lock | None = None
    """What of the limit is locked, if the reading has that as if it were used."""

    def behind(self, lock: Lock) -> Used:
        """Return the same with what ``lock`` locks as if it were used."""
        account = lock.on(self.reading.account, self.epoch.capacity)
        return replace(self, reading=Reading(account, self.reading.selection), lock=lock)

    def peak(self, capacity: Capacity, *, beside: bool) -> tuple[bool, Peak]:
        """Return whether the charge fits in ``capacity`` on every cell, and the peak; ``beside``
        what is kept for allotments, or as if nothing was.
        """
        reading, epoch = self.reading, self.epoch
        if beside and self.beside is not None:
            reading = self.beside
        return reading.peak(epoch.gate, epoch.limit, self.charge, capacity)

    @property
    def whole(self) -> Reading:
        """What a charge has to fit beside."""
        return self.beside or self.reading


class View:
    """The parts of a request, and of the ledger before it, that a rule may read."""

    datasets: tuple[str, ...]
    """All that the request is charged to: what it names, and what that was made from."""
    client: str
    """The name of the key that asks."""
    now: int
    """The stamp that the answer will have, in microseconds."""
    kinds: frozenset[str]
    """The mechanisms' kinds, and those of all that they are made of."""
    purpose: str | Sealed | None
    justification: str | Sealed | None
    allotment: str | None
    """The allotment that the request names, to draw from it."""
    total: Charge
    """What all mechanisms cost together."""
    back: Charge | None = None
    """What is given back, on the client's word; then there are only ``client``, ``now`` and
    ``memory`` beside it. None for a request."""

    def __init__(self, state: State, request: Request) -> None:
        self._state, self._selection = state, request.selection
        self._route = state.route(request.datasets, request.by, request.purpose, request.allotment)
        self._readings: dict[tuple[int, int], Reading] = {}
        """By account and cells: limits that have used the same hold one."""
        self._used: dict[str, list[Used]] = {}
        self._bill = request.costs.bill
        self.datasets, self.client, self.now = request.datasets, request.by, request.now
        self.kinds, self.total = request.costs.kinds, request.total
        self.purpose, self.justification = request.purpose, request.justification
        self._asks, self._arrives = request.asks, request.arrives
        self.allotment = request.allotment

    @classmethod
    def of_return(cls, state: State, client: str, back: Charge, now: int) -> View:
        """Return the view of a client's giving ``back``, which is no request."""
        view = cls.__new__(cls)
        view._state, view.client, view.back, view.now = state, client, back, now
        return view

    @classmethod
    def of_line(cls, state: State, datasets: tuple[str, ...], about: About) -> View:
        """Return the view of what requests that are ``about`` the same have in common; there is no
        more in it, but for a ``total`` that is set.
        """
        view = cls.__new__(cls)
        view._state, view.datasets = state, datasets
        view.client, view.purpose, view.allotment = about.by, about.purpose, about.allotment
        view._route = state.route(datasets, about.by, about.purpose, about.allotment)
        return view

    def used(self, rule: str) -> list[Used]:
        """Return a limit rule's use of the selected cells that it is about, in each account that
        the request counts in; none if the rule is about other datasets, or about other cells.
        """
        if (found := self._used.get(rule)) is None:
            found = self._used[rule] = self._find_used(rule)
        return found

    def _find_used(self, rule: str) -> list[Used]:
        counted = self._route.by_rule.get(rule)
        if not counted:
            return []
        about: Selection | None = self._selection
        if counted[0].rule.subjects is not None:  # most limits are about all cells
            about = counted[0].rule.cells(self._state.people(), self._selection)
        if about is None:
            return []
        found, keeps = [], self._route.keeps
        for _, epoch, key in counted:
            reading = self._reading(key, about)
            charge = (self._bill.to(key.unit) if key.unit else self.total).on(reading.account.axis)
            beside = self._beside(key) if keeps else None
            found.append(Used(key.dataset, epoch, reading, charge, beside))
        return found

    def locked(self, rule: LimitRule) -> list[Lock]:
        """Return what of a limit rule is locked in each account that ``used`` returns; none if it
        does not unlock gradually. A request unlocks its part before it is judged. What has run
        already is judged by the whole limit.
        """
        if rule.unlock is None or not self._asks:
            return []
        arriving = self._selection, self._arrives
        counted = self._route.by_rule.get(rule.id, ())
        return [self._state.lock(one, self.now, arriving) for one in counted]

    @property
    def guarded(self) -> bool:
        """Whether a limit that blocks and counts all charges covers each of the datasets."""
        return self._route.guarded

    def covers(self, rule: Scoped) -> bool:
        """Return whether the request is in the scope of a rule of the policy in force."""
        return rule.id in self._route.rules

    def _beside(self, key: AccountKey) -> Beside | None:
        """Return an account over the selected cells beside what allotments keep of it."""
        if not (keeps := self._route.keeps.get(key)):
            return None
        kept = [
            Kept(one.epoch.capacity, self._account(one.key))
            for one in keeps
            if one.rule.stands(self.now)
        ]
        return Beside(self._account(key), self._selection, kept) if kept else None

    def _account(self, key: AccountKey) -> Account:
        return (self._state.accounts.get(key) or self._state.account(key)).at(self.now)

    def _reading(self, key: AccountKey, selection: Selection) -> Reading:
        account = self._account(key)
        cells = self._state.cells(key.unit, selection) if key.unit else selection
        place = id(account), id(cells)
        if (reading := self._readings.get(place)) is None:
            reading = self._readings[place] = Reading(account, cells)
        return reading

    def memory(self, rule: str) -> Any:
        """Return the memory of rule ``rule``; None at first."""
        return self._state.memories.get(rule)


@dataclass(frozen=True, slots=True)
class Told:
    """The facts behind the texts of a decision: the event, and the terms it was decided on."""

    event: Event
    command: dict[str, Any]
    """The request, of a refused batch the item's that was refused."""
    adopted: Adopted
    people: Population
    datasets: tuple[Dataset, ...]
    """All that the request was charged to, as it was registered then."""
    total: Charge
    per: Per
    """The costs to further units, where they differ from ``total``."""
    places: tuple[tuple[str, ...], ...]
    """The kinds of the mechanisms and of their parts, in order, each once for each place: it is
    followed by the kinds that it is inside of.
    """
    unbounded: Mapping[str, frozenset[str]]
    """The currencies, by kind, in which one invocation has no finite cost."""

    def cost(self, unit: str | None) -> Charge:
        """Return the cost of the request to one of a unit."""
        return Bill(self.total, self.per).to(unit or "")


class Rule(Strict):
    """Base of all rule kinds. ``field`` is what only rules of this kind have in a policy; ``code``
    says what a rule would refuse a request for; ``reads`` names the parts of the view it looks at.

    What a rule does with a request on which it fires is its ``action``: it is refused, it waits
    until a person approves it, or it is let through and flagged.
    """

    field: ClassVar[str]
    code: ClassVar[str]
    reads: ClassVar[frozenset[str]]
    remembers: ClassVar[bool] = False
    """It keeps a memory: ``remember`` is called after every event."""

    id: RuleId
    action: Action = "block"

    @property
    def in_clear(self) -> frozenset[str]:
        """The purposes that it compares: they stand in clear in events and in the view."""
        return frozenset(getattr(self, "purposes", None) or ())

    def concerns(self, client: str) -> bool:
        """Return whether it may say something of a request of ``client``."""
        return True

    def seen_by(self, client: str) -> Rule:
        """Return the rule as ``client`` may see it, which it concerns: without names of others."""
        return self

    def check(self, rules: Mapping[str, Rule]) -> None:
        """Raise ValueError if the rule cannot stand beside the other ``rules`` of its policy."""

    def compare(self, view: View) -> Compared | None:
        """Compare the rule with a request. Return None if it does not apply to it."""
        raise NotImplementedError(type(self).__name__)

    def applies(self, told: Told) -> bool:
        """Return True if it has a finding on the request that is told, even where the event kept
        nothing.
        """
        return True

    def words(self, compared: Compared, told: Told) -> Finding:
        """Render a comparison as text."""
        raise NotImplementedError(type(self).__name__)

    def sentence(self, unit: str) -> str:
        """Return the subject of a sentence that a report ends with "is blocked", "is held until
        a person approves it" or "is let through and flagged"; ``unit`` is the privacy unit.
        """
        terms = self.model_dump(mode="json", exclude_none=True, exclude={"id", "action"})
        return "What breaks " + ", ".join(f"{name} = {value}" for name, value in terms.items())

    def remember(self, memory: Any, event: Event) -> Any:
        """Return the memory after ``event``: a JSON value, which is never changed in place."""
        return memory

    def remember_back(self, memory: Any, event: Event, back: Charge) -> Any:
        """Return the memory after ``event`` has given something ``back``, which its client attests:
        called after ``remember``.
        """
        return memory

    def asks(self, view: View) -> str:
        """Return both sides, in words, of a comparison with what is given back."""
        return f"rule {self.id}"

    def begins(self, memory: Any, before: Rule) -> Any:
        """Return the first memory of the rule when a policy adopts it in place of ``before``, which
        has the same id and the memory ``memory``. The memory is kept if only the action has
        changed; otherwise the rule starts with none.
        """
        return memory if before.model_copy(update={"action": self.action}) == self else None

    def next_memory(self, memory: Any, event: Event, back: Charge | None = None) -> Any:
        """Return what is remembered after ``event``, which may have given something ``back``. Raise
        TypeError unless that is JSON, as a snapshot keeps it.
        """
        after = self.remember(memory, event)
        if back is not None:
            after = self.remember_back(after, event, back)
        if after is not memory:
            self.check_json(after, "remembers")
        return after

    def check_json(self, value: Any, verb: str) -> None:
        """Raise TypeError unless ``value`` is the same after it was written as JSON."""
        try:
            same = orjson.loads(orjson.dumps(value)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise TypeError(
                f"rule {self.id!r} {verb} a value that JSON does not hold as it is: it may consist "
                "of lists, objects with text as keys, texts, numbers, true, false and null"
            )

    def compared(self, fired: bool, seen: Any = None) -> Compared:
        """Build a ``Compared`` of this rule."""
        return Compared(self.id, self.action, fired, self.code, seen)

    def finding(self, compared: Compared, text: str, **numbers: Any) -> Finding:
        """Build a ``Finding`` of this rule."""
        return Finding(compared.rule, compared.action, compared.fired, compared.code, text, numbers)


class Scoped(Rule):
    """Base of the kinds of rules that are about some datasets."""

    datasets: Ids = Field(
        EVERYTHING, description="glob over dataset ids, or several of which one matches"
    )
    owners: Patterns | None = Field(
        None, description="globs over owners of datasets: those without an owner are left out"
    )
    labels: Labels | None = Field(
        None, description="by key, the values of which a dataset has one; all keys have to match"
    )

    @cached_property
    def scope(self) -> Scope:
        """Which requests it is about."""
        return scope_of(self.datasets, self.owners, self.labels)

    def applies(self, told: Told) -> bool:
        """Return True if the request was in scope."""
        return self.scope.meets(told.datasets, told.event.by, told.command.get("purpose"))

    @property
    def data(self) -> str:
        """What the rule applies to, as text."""
        scope = self.scope
        asked = f", for the purpose {either(scope.purposes)}" if scope.purposes else ""
        by = f", by client {either(scope.clients)}" if scope.clients else ""
        return scope.data() + asked + by


class ScopedByPurpose(Scoped):
    """Base of those that may also be about some purposes only."""

    purposes: Purposes | None = Field(
        None, description="the purposes that it is about; it is about no other, nor about none"
    )

    @cached_property
    def scope(self) -> Scope:
        """Which requests it is about."""
        return scope_of(self.datasets, self.owners, self.labels, purposes=self.purposes)
