"""Usage by client, kind and purpose, and notable events. Only open grants make memory grow."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import orjson
from pydantic import TypeAdapter

from accountant.budget.commands import STORED, Mechanisms
from accountant.budget.explain import explain
from accountant.budget.facts import final_of, grant_in, mechanisms_of, opened_by
from accountant.budget.reach import Reach, reach_in
from accountant.budget.request import Terms, price_all
from accountant.budget.rules.base import Compared, Finding
from accountant.budget.state import Grant, State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.curves import Orders
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.units import NOTHING, SURE, Charge, Currency, amount, show
from accountant.reporting.counting import NO_POLICY, Basis, Counting, share
from accountant.reporting.schema import ChangeFacts, NotableFacts, SeenFacts, Usage
from accountant.reporting.words import groups_in_words, shortened

LATEST: Final = 200
"""Events of one sort that are listed; all are counted."""
HEADINGS: Final = ("client", "kind", "purpose")
_ALL: Final = ""
"""The heading of the one row that adds up a dataset."""
MOST_NAMES: Final = 1_000
"""Names under one heading of one dataset; later names share one row."""

SETTLING: Final = {
    "grant.committed.v1": "committed",
    "grant.released.v1": "released",
    "grant.expired.v1": "expired",
    "sparse_vector.closed.v1": "committed",
}
"""The events that settle one grant, and the state in which they leave it."""
BOOKING: Final = frozenset({"grant.reserved.v1", "invocation.recorded.v1"})
JUDGED: Final = BOOKING | {"grant.refused.v1"}
REVALUED: Final = "charge.revalued.v1"
ADOPTED: Final = "policy.adopted.v1"
RECOVERED: Final = "ledger.recovered.v1"
"""Settles all open grants, charged in full."""
UNVERIFIABLE: Final = "unverifiable-claim"
UNKNOWN: Final = ""
"""Stands for a purpose that was not stated, and for a kind that an event does not name."""

_MECHANISMS: Final[TypeAdapter[list[Mechanism]]] = TypeAdapter(Mechanisms)

_LISTED: Final[dict[str, Callable[[Compared | Finding], bool]]] = {
    "overrun": lambda one: one.action == "block" and one.code == "budget-exceeded",
    "against_rule": lambda one: one.action == "block" and one.code != "budget-exceeded",
    "blocked": lambda one: one.action == "block",
    "flagged": lambda one: one.action == "flag" and one.code != UNVERIFIABLE,
    "unverifiable": lambda one: one.code == UNVERIFIABLE,
    "understated": lambda one: one.code == "claim-understated",
}
"""The rules that put a judged event among those of a sort, if they fire."""
SORTS: Final = (*_LISTED, "expired", "given_back", "revalued", "attested_new")

NOWHERE: Final = Reach(("",), ("",))
"""Of an event that is about no dataset."""
Parts = dict[str, Charge]
"""A charge by mechanism kind."""
Text = tuple[str, tuple[str, ...]]
"""The text of a notable event, and the rules behind it."""
Said = str | Callable[[], Text]
"""A text behind which is no rule, or a function, called only if the event is listed."""


class Names(NamedTuple):
    """The names that a charge is booked under, and its subject group as events hold it."""

    on: Reach
    client: str
    purpose: str = UNKNOWN
    subjects: Any = None
    policy: int = NO_POLICY
    """The event that adopted the policy it was booked under."""


@dataclass(slots=True)
class Tally:
    """The requests under one name, and the charges less those given back, in units: the sums that
    hold along every path, and those in all currencies by the policy that they were booked under.
    """

    requests: int = 0
    refused: int = 0
    epsilon: int = 0
    delta: int = 0
    unbounded: int = 0
    given_back: int = 0
    given_back_unbounded: int = 0
    booked: dict[int, Charge] = field(default_factory=dict)
    back: dict[int, Charge] = field(default_factory=dict)
    """What of it was given back."""

    def add(self, change: Charge, policy: int, *, settled: bool = False) -> None:
        """Add a charge under ``policy``, or the change that settling a grant makes."""
        before = self.booked.get(policy)  # the Renyi orders of charges differ over time
        self.booked[policy] = change if before is None else before + change
        if settled:
            self.back[policy] = self.back.get(policy, NOTHING) - change
        change = change.on(SURE)
        (epsilon, delta), (unbounded, _) = change.finite, change.infinite
        self.epsilon += epsilon
        self.delta += delta
        self.unbounded += unbounded
        if settled:
            self.given_back += max(0, -epsilon)
            self.given_back_unbounded += max(0, -unbounded)

    def facts(self, name: str | None, basis: Basis, whole: int | None) -> Usage:
        """Return the row of the report, as ``basis`` counts; ``name`` is None for all names that
        have no row, ``whole`` the sum of all rows, None if it has no bound.
        """
        back = None if self.given_back_unbounded else self.given_back
        units, infinite = basis.sum(self.booked)
        return Usage(
            name=name or "",
            other=name is None,
            requests=self.requests,
            refused=self.refused,
            epsilon=show(self.epsilon, Currency.EPSILON),
            delta=show(self.delta, Currency.DELTA),
            unbounded=self.unbounded,
            given_back=amount(back, Currency.EPSILON),
            counted=amount(None if infinite else units, basis.measure.currency),
            share=None if whole is None or infinite else share(units, whole),
            adds=basis.adds(self.booked),
            took_back=basis.adds(self.back),
        )


class Tallies:
    """The tallies of each dataset, by heading and name; later names share the name None."""

    def __init__(self) -> None:
        self._rows: defaultdict[tuple[str, str], dict[str | None, Tally]] = defaultdict(dict)

    def usages(self, dataset: str, heading: str, basis: Basis) -> tuple[Usage, ...]:
        """Return the rows under one heading, most used first, the row of all other names last."""

        def place(row: tuple[str | None, Tally]) -> tuple[bool, int, int, int, str]:
            name, tally = row
            units, infinite = basis.sum(tally.booked)
            return name is None, -infinite, -units, -tally.epsilon, name or ""

        units, infinite = basis.sum(self._whole(dataset).booked)
        whole = None if infinite else units
        rows = sorted(self._rows[dataset, heading].items(), key=place)
        return tuple(tally.facts(name, basis, whole) for name, tally in rows)

    def total(self, dataset: str, basis: Basis) -> Usage:
        """Return the sum of the whole dataset."""
        units, infinite = basis.sum(self._whole(dataset).booked)
        return self._whole(dataset).facts("", basis, None if infinite else units)

    def _whole(self, dataset: str) -> Tally:
        return self._rows[dataset, _ALL].get("", Tally())

    def of(self, at: Names, charge: Charge, parts: Parts) -> Iterator[tuple[Tally, Charge]]:
        """Yield the tallies that ``charge`` counts in, whose ``parts`` are those of the kinds."""
        for dataset in at.on.charged:
            yield self._tally(dataset, _ALL, ""), charge
            yield self._tally(dataset, "client", at.client), charge
            yield self._tally(dataset, "purpose", at.purpose), charge
            for kind, part in parts.items():
                yield self._tally(dataset, "kind", kind), part

    def _tally(self, dataset: str, heading: str, name: str) -> Tally:
        rows = self._rows[dataset, heading]
        if (found := rows.get(name)) is None:
            found = rows.setdefault(name if len(rows) < MOST_NAMES else None, Tally())
        return found


class OpenGrant(NamedTuple):
    """An open grant, the names that it is booked under, and its charge by kind."""

    grant: Grant
    at: Names
    parts: Parts


class History:
    """Collects from every event, its texts opened, after the state has folded it in."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self.counts: dict[str, Counter[str]] = {sort: Counter() for sort in SORTS}
        """The notable events of each sort, by dataset that they are charged to."""
        self._totals = Counter[str]()
        self._latest = {sort: deque[Callable[[], NotableFacts]](maxlen=LATEST) for sort in SORTS}
        self.policies = deque[ChangeFacts](maxlen=LATEST)
        self.policies_total = 0
        self.counting = Counting()
        self.held: dict[str, OpenGrant] = {}

    def seen(self) -> tuple[SeenFacts, ...]:
        """Return the notable events of each sort."""
        return tuple(
            SeenFacts(
                sort=sort,
                total=self._totals[sort],
                by_dataset=dict(counts),
                latest=tuple(facts() for facts in reversed(self._latest[sort])),
            )
            for sort, counts in self.counts.items()
        )

    def add(self, state: State, event: Event) -> None:
        """Collect from one event."""
        if event.type in JUDGED:
            self._judged(state, event)
        elif event.type in SETTLING:
            self._settled(state, event)
        elif event.type == RECOVERED:
            for name, held in self.held.items():
                text = f"grant {name} was open when the ledger was recovered; charged in full"
                self._note("expired", event, held.at, held.grant.total, text)
            self.held.clear()
        elif event.type == REVALUED:
            self._revalued(state, event)
        elif event.type == ADOPTED:
            self._adopted(event)
        elif event.type == "population.extended.v1" and event.body["command"].get("attested_new"):
            at = Names(NOWHERE, event.by, subjects=event.body["added"])
            text = "the members of the new groups were attested to be in no data before"
            self._note("attested_new", event, at, NOTHING, text)

    def _judged(self, state: State, event: Event) -> None:
        body, command = event.body, event.body["command"]
        refused = event.type == "grant.refused.v1"
        total, kinds = Charge.from_json(body["total"]), [m["kind"] for m in mechanisms_of(command)]
        each = [total] if len(kinds) == 1 else map(Charge.from_json, body["charges"])
        parts = _by_kind(zip(kinds, each, strict=True))
        if len(parts) == 1:
            parts = dict.fromkeys(parts, total)
        elif not refused and body.get("charged_to") != "everyone":
            parts = _priced(state, command["mechanisms"], total.orders, event.sequence)
        purpose = command.get("purpose") or UNKNOWN
        subjects, policy = command.get("subjects"), body.get("policy", NO_POLICY)
        at = Names(reach_in(body), event.by, purpose, subjects, policy)
        for tally, charge in self.tallies.of(at, total, parts):
            if refused:
                tally.refused += 1
            else:
                tally.requests += 1
                tally.add(charge, at.policy)
        if event.type == "grant.reserved.v1":
            name = grant_in(event)
            self.held[name] = OpenGrant(state.open[name], at, parts)
        if fired := body.get("fired"):
            if body.get("charged_to") == "everyone":
                at = at._replace(subjects=None)
            for sort in _sorts(state, fired, refused=refused):
                self._note(sort, event, at, total, _explained(sort, state, event))

    def _settled(self, state: State, event: Event) -> None:
        held = self.held.pop(grant_in(event))
        grant, final = held.grant, final_of(event.body, held.grant.total)
        if event.type == "grant.expired.v1":
            text = f"grant {grant.id} expired at {rfc3339(grant.expires)}; charged in full"
            self._note("expired", event, held.at, final, text)
        if final == grant.total:
            return
        back, parts = grant.total - final, _parts(state, event, held, final)
        changes = {
            kind: parts.get(kind, NOTHING) - held.parts.get(kind, NOTHING)
            for kind in parts.keys() | held.parts.keys()
        }
        for tally, change in self.tallies.of(held.at, NOTHING - back, changes):
            tally.add(change, held.at.policy, settled=True)
        if event.type != "grant.expired.v1":
            reason = event.body["command"].get("reason")
            text = f"grant {grant.id}: attested never executed on the data"
            text += f" (“{reason}”)" if reason else ""
            self._note("given_back", event, held.at, back, text)

    def _revalued(self, state: State, event: Event) -> None:
        command, more = event.body["command"], Charge.from_json(event.body["more"])
        kinds = {mechanism["kind"] for mechanism in command["mechanisms"]}
        subjects = None if command.get("everyone") else command.get("subjects")
        policy = state.adopted.sequence if state.adopted else NO_POLICY
        at = Names(reach_in(event.body), command["by"], subjects=subjects, policy=policy)
        kind = kinds.pop() if len(kinds) == 1 else UNKNOWN
        for tally, part in self.tallies.of(at, more, {kind: more}):
            tally.add(part, policy)
        text = f"event {command['event']} cost more than was booked for it (“{command['reason']}”)"
        self._note("revalued", event, at, more, text)

    def _note(self, sort: str, event: Event, at: Names, charge: Charge, said: Said) -> None:
        self.counts[sort].update(at.on.charged)
        self._totals[sort] += 1
        self._latest[sort].append(partial(_notable, event, at, charge, said))

    def _adopted(self, event: Event) -> None:
        command = event.body["command"]
        self.counting.adopted(event.sequence, event.body)
        self.policies_total += 1
        change = ChangeFacts(
            sequence=event.sequence,
            time=rfc3339(event.time),
            by=event.by,
            approved_by=command.get("approved_by"),
            policy=command["policy"]["policy"],
            digest=command["source_digest"],
            opened_epochs=tuple(opened_by(event.body)),
            loosened=tuple(event.body.get("loosens", ())),
        )
        self.policies.appendleft(change)


def _notable(event: Event, at: Names, charge: Charge, said: Said) -> NotableFacts:
    """Return a notable event as the report lists it."""
    text, rules = (said, ()) if isinstance(said, str) else said()
    return NotableFacts(
        sequence=event.sequence,
        time=rfc3339(event.time),
        client=at.client,
        dataset=", ".join(at.on.named),
        subjects=groups_in_words(at.subjects),
        epsilon=charge.amount(Currency.EPSILON),
        delta=charge.amount(Currency.DELTA),
        purpose=at.purpose,
        rules=rules,
        text=shortened(text, 400),
    )


def _sorts(state: State, fired: Iterable[tuple[str, str]], *, refused: bool) -> list[str]:
    """Return the sorts of a judged event on which rules ``fired``, given as (rule, code)."""
    policy = state.adopted.policy.rules if state.adopted else ()
    actions = {rule.id: rule.action for rule in policy}
    rules = [
        Compared(rule, actions.get(rule, "flag" if code == UNVERIFIABLE else "block"), True, code)
        for rule, code in fired
    ]
    sorts = [sort for sort, lists in _LISTED.items() if any(map(lists, rules))]
    if refused:
        return [sort for sort in sorts if sort in ("blocked", "understated")]
    # What has already run is not blocked but an overrun.
    hidden = ("blocked", "flagged") if "blocked" in sorts else ()
    return [sort for sort in sorts if sort not in hidden]


def _explained(sort: str, state: State, event: Event) -> Callable[[], Text]:
    """Return a function that renders the decision of ``event``, with the policy of this moment."""
    adopted, people = state.adopted, state.people()
    engine = state.custody.engine_at(event.sequence)

    def text() -> Text:
        if sort == "understated":
            return "refused" if event.type == "grant.refused.v1" else "recorded", ()
        findings = explain(event, adopted, people, engine).decision.findings
        found = [one for one in findings if one.fired and _LISTED[sort](one)]
        if sort == "unverifiable":
            return "; ".join(dict.fromkeys(one.text for one in found)), ()
        return "; ".join(one.text for one in found), tuple(one.rule for one in found)

    return text


def _parts(state: State, event: Event, held: OpenGrant, final: Charge) -> Parts:
    """Return the final charge by kind of a grant that was not charged in full."""
    if not any(final.finite + final.infinite):
        return {}
    command = event.body["command"]
    if event.type == "grant.committed.v1" and command.get("mechanisms"):
        grant = held.grant
        return _priced(state, command["mechanisms"], grant.total.orders, grant.sequence)
    return dict.fromkeys(held.parts, final) if len(held.parts) == 1 else {UNKNOWN: final}


def _priced(state: State, mechanisms: list[Any], orders: Orders, sequence: int) -> Parts:
    """Return the charge by kind of mechanisms as event ``sequence`` priced them: the events of
    several mechanisms hold Renyi divergences of their total only.
    """
    terms = Terms(state.people().relation, orders, state.custody.engine_at(sequence))
    return _price_of(orjson.dumps(mechanisms), terms)


@lru_cache(maxsize=4_096)
def _price_of(mechanisms: bytes, terms: Terms) -> Parts:
    read: list[Mechanism] = _MECHANISMS.validate_python(orjson.loads(mechanisms), context=STORED)
    prices = price_all(read, *terms)
    return _by_kind((one.kind, p.charge) for one, p in zip(read, prices, strict=True))


def _by_kind(charges: Iterable[tuple[str, Charge]]) -> Parts:
    """Add up charges by kind."""
    parts: Parts = {}
    for kind, charge in charges:
        parts[kind] = parts[kind] + charge if kind in parts else charge
    return parts
