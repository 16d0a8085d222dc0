"""Usage by client, kind and purpose, and notable events, collected in one pass over the events.

Memory grows with open grants and with the capped tables, not with the number of events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from accountant.budget.commands import CommitGrant
from accountant.budget.explain import explain
from accountant.budget.facts import final_of, grant_in, opened_by, parts_of
from accountant.budget.request import price_all
from accountant.budget.rules.base import Finding
from accountant.budget.state import Grant, State, envelope_of
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import NOTHING, SURE, Charge, Currency
from accountant.reporting.custody import keep
from accountant.reporting.schema import ChangeFacts, NotableFacts, SeenFacts
from accountant.reporting.words import groups_in_words, shortened

LATEST: Final = 200
"""Events of one sort that are listed; all are counted."""
SORTS: Final = (
    "overrun",
    "against_rule",
    "blocked",
    "flagged",
    "unverifiable",
    "understated",
    "expired",
    "given_back",
    "revalued",
    "attested_new",
)
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

Parts = dict[str, Charge]
"""A charge by mechanism kind."""


class Names(NamedTuple):
    """The names that a charge is booked under, and its subject group as events hold it."""

    dataset: str
    client: str
    purpose: str = UNKNOWN
    subjects: Any = None


@dataclass(slots=True)
class Tally:
    """The requests and charges under one name."""

    requests: int = 0
    refused: int = 0
    net: Charge = NOTHING
    given_back: Charge = NOTHING

    def add(self, change: Charge, *, settled: bool) -> None:
        """Add a charge, or the change that settling a grant makes."""
        change = change.on(SURE)  # the Renyi orders of charges differ over time
        self.net += change
        if settled:
            self.given_back += Charge(
                change.axis,
                tuple(max(0, -amount) for amount in change.finite),
                tuple(max(0, -amount) for amount in change.infinite),
            )


class Tallies:
    """The tallies of each dataset, by heading and name; later names share the name None."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], dict[str | None, Tally]] = {}

    def rows(self, dataset: str, heading: str) -> dict[str | None, Tally]:
        """Return the tallies under one heading."""
        return self._rows.get((dataset, heading), {})

    def total(self, dataset: str) -> Tally:
        """Return the tally of the whole dataset."""
        return self.rows(dataset, _ALL).get("", Tally())

    def count(self, at: Names, kinds: Iterable[str], *, refused: bool) -> None:
        """Count a request."""
        for tally in [*self._common(at), *(self._tally(at.dataset, "kind", k) for k in kinds)]:
            tally.refused += refused
            tally.requests += not refused

    def book(self, at: Names, change: Charge, parts: Parts, held: Parts | None = None) -> None:
        """Book ``change``: ``parts`` in place of the parts that a grant has ``held``."""
        before, settled = held or {}, held is not None
        for tally in self._common(at):
            tally.add(change, settled=settled)
        for kind in parts.keys() | before.keys():
            part = parts.get(kind, NOTHING) - before.get(kind, NOTHING)
            self._tally(at.dataset, "kind", kind).add(part, settled=settled)

    def _common(self, at: Names) -> Iterator[Tally]:
        for heading, name in ((_ALL, ""), ("client", at.client), ("purpose", at.purpose)):
            yield self._tally(at.dataset, heading, name)

    def _tally(self, dataset: str, heading: str, name: str) -> Tally:
        rows = self._rows.setdefault((dataset, heading), {})
        full = name not in rows and len(rows) >= MOST_NAMES
        return rows.setdefault(None if full else name, Tally())


class OpenGrant(NamedTuple):
    """An open grant, the names that it is booked under, and its charge by kind."""

    grant: Grant
    at: Names
    parts: Parts


class History:
    """Collects from every event, its texts opened, after the state has folded it in."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self.seen = {sort: SeenFacts(sort) for sort in SORTS}
        self.policies: list[ChangeFacts] = []
        self.policies_total = 0
        self.held: dict[str, OpenGrant] = {}

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
            self._revalued(event)
        elif event.type == ADOPTED:
            self._adopted(event)
        elif event.type == "population.extended.v1" and event.body["command"].get("attested_new"):
            at = Names("", event.by, subjects=event.body["added"])
            text = "the members of the new groups were attested to be in no data before"
            self._note("attested_new", event, at, NOTHING, text)

    def _judged(self, state: State, event: Event) -> None:
        body, command = event.body, event.body["command"]
        refused = event.type == "grant.refused.v1"
        parts, total = _by_kind(parts_of(body)), Charge.from_json(body["total"])
        purpose = command.get("purpose") or UNKNOWN
        at = Names(command["dataset"], event.by, purpose, command.get("subjects"))
        self.tallies.count(at, parts, refused=refused)
        if not refused:
            self.tallies.book(at, total, parts)
        if event.type == "grant.reserved.v1":
            name = grant_in(event)
            self.held[name] = OpenGrant(state.open[name], at, parts)
        if "fired" not in body:
            return
        if body.get("charged_to") == "everyone":
            at = at._replace(subjects=None)
        engine = state.custody.engine_at(event.sequence)
        findings = explain(event, state.adopted, state.people(), engine).decision.findings
        fired = [found for found in findings if found.fired]
        for sort, text, rules in _sorted(fired, refused=refused):
            self._note(sort, event, at, total, text, rules)

    def _settled(self, state: State, event: Event) -> None:
        held = self.held.pop(grant_in(event))
        grant, final = held.grant, final_of(event.body, held.grant.total)
        back = grant.total - final
        self.tallies.book(held.at, NOTHING - back, _parts(state, event, held, final), held.parts)
        if event.type == "grant.expired.v1":
            text = f"grant {grant.id} expired at {rfc3339(grant.expires)}; charged in full"
            self._note("expired", event, held.at, final, text)
        elif final != grant.total:
            reason = event.body["command"].get("reason")
            text = f"grant {grant.id}: attested never executed on the data"
            text += f" (“{reason}”)" if reason else ""
            self._note("given_back", event, held.at, back, text)

    def _revalued(self, event: Event) -> None:
        command, more = event.body["command"], Charge.from_json(event.body["more"])
        kinds = {mechanism["kind"] for mechanism in command["mechanisms"]}
        subjects = None if command.get("everyone") else command.get("subjects")
        at = Names(command["dataset"], command["by"], subjects=subjects)
        self.tallies.book(at, more, {kinds.pop() if len(kinds) == 1 else UNKNOWN: more})
        text = f"event {command['event']} cost more than was booked for it (“{command['reason']}”)"
        self._note("revalued", event, at, more, text)

    def _note(
        self,
        sort: str,
        event: Event,
        at: Names,
        charge: Charge,
        text: str,
        rules: Iterable[str] = (),
    ) -> None:
        seen = self.seen[sort]
        seen.total += 1
        seen.by_dataset[at.dataset] = seen.by_dataset.get(at.dataset, 0) + 1
        notable = NotableFacts(
            sequence=event.sequence,
            time=rfc3339(event.time),
            client=at.client,
            dataset=at.dataset,
            subjects=groups_in_words(at.subjects),
            epsilon=charge.amount(Currency.EPSILON),
            delta=charge.amount(Currency.DELTA),
            purpose=at.purpose,
            rules=tuple(rules),
            text=shortened(text, 400),
        )
        keep(seen.latest, notable, LATEST)

    def _adopted(self, event: Event) -> None:
        command = event.body["command"]
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
        keep(self.policies, change, LATEST)


def _sorted(fired: list[Finding], *, refused: bool) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each sort of notable event that a request belongs to, given the rules that fired: the
    sort, its text and its rules.
    """
    blocking = [rule for rule in fired if rule.action == "block"]
    claims = [rule for rule in fired if rule.code == UNVERIFIABLE]
    sorts: dict[str, list[Finding]] = {}
    if refused:
        sorts["blocked"] = blocking
    elif blocking:  # it had already run
        sorts["overrun"] = [rule for rule in blocking if rule.code == "budget-exceeded"]
        sorts["against_rule"] = [rule for rule in blocking if rule.code != "budget-exceeded"]
    else:
        sorts["flagged"] = [rule for rule in fired if rule.code != UNVERIFIABLE]
    for sort, rules in sorts.items():
        if rules or refused:
            yield sort, "; ".join(rule.text for rule in rules), [rule.rule for rule in rules]
    if claims and not refused:
        yield "unverifiable", "; ".join(dict.fromkeys(rule.text for rule in claims)), []
    if any(rule.code == "claim-understated" for rule in fired):
        yield "understated", "refused" if refused else "recorded", []


def _parts(state: State, event: Event, held: OpenGrant, final: Charge) -> Parts:
    """Return the final charge of a settled grant by kind."""
    total = held.grant.total
    if final == total:
        return held.parts
    if not any(final.finite + final.infinite):
        return {}
    command = envelope_of(event).command
    if isinstance(command, CommitGrant) and command.mechanisms:
        engine = state.custody.engine_at(held.grant.sequence)
        prices = price_all(command.mechanisms, state.people().relation, total.orders, engine)
        kinds = [mechanism.kind for mechanism in command.mechanisms]
        return _by_kind(zip(kinds, [priced.charge for priced in prices], strict=True))
    return dict.fromkeys(held.parts, final) if len(held.parts) == 1 else {UNKNOWN: final}


def _by_kind(charges: Iterable[tuple[str, Charge]]) -> Parts:
    """Add up charges by kind."""
    parts: Parts = {}
    for kind, charge in charges:
        parts[kind] = parts.get(kind, NOTHING) + charge
    return parts
