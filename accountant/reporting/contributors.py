"""The charges that used a budget up: the largest ones behind a decision on which a limit fired.

Each counts in the currency whose sum decides what is spent: Gaussian noise that has no epsilon of
its own is a share of a sum of rho, mu^2 or Renyi divergences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappush, heappushpop
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from accountant.budget.accounts.epochs import Adopted, adopted_by
from accountant.budget.facts import final_of, grant_of, request_in
from accountant.budget.outcome import ADMITTED, RESERVED
from accountant.budget.population.population import Dataset, Membership
from accountant.budget.population.positions import read
from accountant.budget.reach import Reach, reach_in
from accountant.budget.rules.scope import Scope
from accountant.budget.state import ALL
from accountant.ledger.events import Event
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import Charge, Currency, amount
from accountant.reporting.counting import NO_POLICY, Counting, Measure, share
from accountant.reporting.history import ADOPTED, RECOVERED, REVALUED, SETTLING
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored

MOST: Final = 20
_STATES: Final = {
    RESERVED: "reserved",
    ADMITTED: "reserved",
    "invocation.recorded.v1": "recorded",
    REVALUED: "revalued",
}
Dimensions = dict[str, dict[str, int]]
"""The position of each value on each dimension."""
Size = tuple[bool, int, int]
Appended = dict[str, list[str]]
"""Values of dimensions whose people were in no data before."""


@dataclass(slots=True)
class People:
    """The population as it was registered and extended so far."""

    dimensions: Dimensions = field(default_factory=dict)
    owe: bool = False
    """New cells owe what everyone was charged, whoever is in them."""

    def take(self, body: Mapping[str, Any]) -> Appended:
        """Take the values that a registration or an extension names. Return those whose people owe
        nothing of what was spent.
        """
        command = body["command"]
        if body["type"] == "population.registered.v1":
            way = command["neighbouring"], command["membership"]
            self.owe = way == (Relation.REPLACE_ONE, Membership.PRIVATE)
        added: Appended = body.get("added") or command.get("dimensions", {})
        for dimension, values in added.items():
            order = self.dimensions.setdefault(dimension, {})
            order |= {value: len(order) + i for i, value in enumerate(values)}
        return added if command.get("attested_new") and not self.owe else {}


class Contribution(NamedTuple):
    """A charge, its state, and the command that booked it; ``subjects`` None: everyone."""

    sequence: int
    client: str
    on: Reach
    command: dict[str, Any]
    subjects: Any
    charge: Charge
    state: str
    policy: int
    """The event that adopted the policy it was booked under."""

    @classmethod
    def of(cls, body: Mapping[str, Any], policy: int) -> Contribution:
        """Return the charge that an event has booked under ``policy``."""
        command, revalued = dict(request_in(body)), body["type"] == REVALUED
        everyone = body.get("charged_to") == "everyone" or command.get("everyone", False)
        return cls(
            sequence=body["sequence"],
            client=command["by"] if revalued else body["command"].get("client", body["by"]),
            on=reach_in(body),
            command=command,
            subjects=None if everyone else command.get("subjects"),
            charge=Charge.from_json(body["more" if revalued else "total"]),
            state=_STATES[body["type"]],
            policy=policy,
        )

    @property
    def lasts(self) -> bool:
        """It is on everyone, also on people who are attested new, for it may still run."""
        terms = self.subjects if isinstance(self.subjects, list) else [self.subjects or {}]
        return self.state == "expired" and {} in terms

    @property
    def _purpose(self) -> Any:
        """What it was for, as far as that stands in clear."""
        return self.command.get("for_purpose", self.command.get("purpose"))

    @property
    def _allotment(self) -> str | None:
        """The allotment that it was drawn from."""
        found: str | None = self.command.get("for_allotment", self.command.get("allotment"))
        return found

    def counts_in(
        self, rule: Mapping[str, Any], adopted: Adopted, data: _Past, dimensions: Dimensions
    ) -> bool:
        """Return True if it is charged to the account and the cell that a finding on a limit of the
        policy in force quotes on ``data``.
        """
        limit = adopted.rule(rule["of"])
        assert limit is not None  # noqa: S101 for the type checker
        scope, charged = limit.scope, data.charged(self)
        if rule["dataset"] == ALL:
            on_it = any(data.ever_in(scope, name, self.sequence) for name in charged)
        else:
            on_it = rule["dataset"] in charged
        return (
            on_it
            and rule["client"] in (self.client, "")
            and rule.get("purpose") in (None, adopted.named(self._purpose))
            and limit.counts(self.client, self._purpose, self._allotment)
            and _covers(dimensions, self.subjects, rule["group"])
        )

    def to_json(self, texts: Texts, size: Size, used: Sum) -> dict[str, Any]:
        """Return it, of this size among all that is ``used``, as the API serves it."""
        infinite, units, _ = size
        return {
            "sequence": self.sequence,
            "client": self.client,
            "dataset": self.on.spelled,
            "purpose": texts.open(self.sequence, self.command).get("purpose"),
            "state": self.state,
            "epsilon": self.charge.amount(Currency.EPSILON),
            "delta": self.charge.amount(Currency.DELTA),
            "counted": amount(None if infinite else units, used.measure.currency),
            "share": None if used.infinite else share(units, used.units),
        }


class _Past(NamedTuple):
    """What datasets were until event ``before``."""

    datasets: Mapping[str, Dataset]
    before: int
    took: tuple[tuple[int, str, frozenset[str]], ...] = ()
    """Each time that a dataset was charged with what others had used, in order."""

    @classmethod
    def of(cls, datasets: Mapping[str, Dataset], before: int) -> _Past:
        """Return what all datasets were until an event."""
        took = (
            (each.sequence, one.id, frozenset(each.others))
            for one in datasets.values()
            for each in one.took_over
            if each.sequence < before
        )
        return cls(datasets, before, tuple(sorted(took, key=lambda each: each[:2])))

    def charged(self, one: Contribution) -> set[str]:
        """Return all that a charge was charged to, when it was booked or since."""
        found = set(one.on.charged)
        since = one.command["event"] if one.state == "revalued" else one.sequence
        for at, name, others in self.took:
            if at > since and not others.isdisjoint(found):
                found.add(name)
        return found

    def ever_in(self, scope: Scope, name: str, since: int) -> bool:
        """Return whether a dataset was in scope when it was charged at ``since``, or came in later:
        a total counts both.
        """
        one = self.datasets[name]
        changes = (former.until for former in one.former if since < former.until)
        stamps = (since, *(min(at + 1, self.before) for at in changes))
        return any(scope.holds(one.as_of(at)) for at in stamps)


@dataclass(slots=True)
class Sum:
    """All charges in the account and cell that a limit quotes, the largest of them, and how the
    limit measures them.
    """

    measure: Measure
    units: int = 0
    infinite: int = 0
    count: int = 0
    largest: list[tuple[Size, Contribution]] = field(default_factory=list)
    lasting: Sum | None = None
    """Those of them on everyone that may still run."""

    def begin(self) -> None:
        """Drop all charges but the lasting ones: the cell is appended only now."""
        kept = self.lasting or Sum(self.measure)
        self.units, self.infinite, self.count = kept.units, kept.infinite, kept.count
        self.largest = list(kept.largest)

    def add(self, one: Contribution) -> None:
        """Add a charge; of equal ones the earlier counts as larger."""
        units, infinite = self.measure.of(one.charge, one.policy)
        if not (units or infinite):
            return
        if one.lasts:
            self.lasting = self.lasting or Sum(self.measure)
            self.lasting._take(one, units, infinite)
        self._take(one, units, infinite)

    def _take(self, one: Contribution, units: int, infinite: int) -> None:
        self.units += units
        self.infinite += infinite
        self.count += 1
        put = heappush if self.count <= MOST else heappushpop
        put(self.largest, ((infinite > 0, units, -one.sequence), one))

    def to_json(self, rule: str, texts: Texts) -> dict[str, Any]:
        """Return the largest ones as the API serves them."""
        currency, each = self.measure.currency, sorted(self.largest, reverse=True)
        return {
            "rule": rule,
            "currency": str(currency),
            "sum": amount(None if self.infinite else self.units, currency),
            "events": [one.to_json(texts, size, self) for size, one in each],
            "left_out": self.count - len(each),
        }


def limit_fired(rule: Mapping[str, Any]) -> bool:
    """Return whether a limit fired, by a rule of a decision."""
    return bool(rule["fired"]) and "comparisons" in rule


def used_up_by(
    rows: Iterable[Stored],
    rules: Iterable[Mapping[str, Any]],
    before: int,
    texts: Texts,
    policies: Iterable[Event] = (),
    datasets: Mapping[str, Dataset] = MappingProxyType({}),
) -> list[dict[str, Any]]:
    """Return, for each limit that fired among ``rules``, the charges before event ``before`` in the
    account and cell that it quotes, the largest first, as they stand now. Reads ``rows`` once;
    ``policies`` are the events that adopted policies until then, ``datasets`` all that there are.
    """
    fired = list(filter(limit_fired, rules))
    counting, adopted = Counting(), None
    for adopted in policies:
        counting.adopted(adopted.sequence, adopted.body)
    if not fired or adopted is None:
        return []
    in_force, people, data = adopted_by(adopted), People(), _Past.of(datasets, before)
    epochs = in_force.epochs
    sums = [
        Sum(counting.measure(rule["of"], epochs[rule["of"]], Currency(rule["decided_by"])))
        for rule in fired
    ]
    for booked in _bookings(rows, before, people):
        for rule, used in zip(fired, sums, strict=True):
            if not isinstance(booked, Contribution):
                if any(rule["group"].get(name) in values for name, values in booked.items()):
                    used.begin()
            elif booked.counts_in(rule, in_force, data, people.dimensions):
                used.add(booked)
    return [used.to_json(rule["rule"], texts) for rule, used in zip(fired, sums, strict=True)]


def _bookings(
    rows: Iterable[Stored], before: int, people: People
) -> Iterator[Contribution | Appended]:
    """Yield everything booked before event ``before`` that is still charged, and values that were
    appended and owe nothing of that; and keep ``people`` as they are then. A grant is held back
    until it is settled, as it covers new values while it is open; only open grants are kept in
    memory.
    """
    held: dict[str, Contribution] = {}
    policy = NO_POLICY
    for stored in rows:
        late = stored.sequence >= before
        if late and not held:
            return
        body = orjson.loads(stored.body)
        kind, grant = body["type"], str(grant_of(body, stored.sequence, body["type"]))
        if kind in ("population.registered.v1", "population.extended.v1"):
            yield people.take(body)
        elif kind in (RESERVED, ADMITTED) and not late:
            held[grant] = Contribution.of(body, policy)
        elif kind in _STATES and not late:
            yield Contribution.of(body, policy)
        elif kind == ADOPTED:
            policy = stored.sequence
        elif kind in SETTLING and grant in held:
            one = held.pop(grant)
            final = final_of(body, one.charge)
            if any(final.finite + final.infinite):
                yield one._replace(charge=final, state=SETTLING[kind])
        elif kind == RECOVERED:
            yield from (one._replace(state="expired") for one in held.values())
            held.clear()
    yield from held.values()


def _covers(dimensions: Dimensions, subjects: Any, group: Mapping[str, str]) -> bool:
    """Return True if ``subjects`` cover the cell that ``group`` describes, any if that is empty."""
    terms = subjects if isinstance(subjects, list) else [subjects or {}]
    if not group or {} in terms:
        return True
    return all(value in dimensions[name] for name, value in group.items()) and any(
        all(_among(dimensions[name], values, group.get(name)) for name, values in term.items())
        for term in terms
    )


def _among(order: dict[str, int], values: Any, value: str | None) -> bool:
    """Return True if ``value`` (any if None) is among the values of a term as events hold them."""
    if value is None or isinstance(values, list):
        return value is None or value in values
    if "from" in values:
        return order[values["from"]] <= order[value] <= order[values["to"]]
    return order[value] in read(values)
