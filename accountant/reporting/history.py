"""What one pass over the events collects beside the fold: who used what up, and what stood out.

Memory grows with open grants and what the tables hold, never with the number of events.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from accountant.budget.commands import CommitGrant
from accountant.budget.explain import Decision, explain
from accountant.budget.facts import expires_of, final_of, grant_in, opened_by, parts_of
from accountant.budget.request import price_all
from accountant.budget.rules.base import Finding
from accountant.budget.state import State, envelope_of
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.units import NOTHING, Charge, Currency
from accountant.reporting.counts import Account, Parts, Tallies
from accountant.reporting.custody import CustodyHistory
from accountant.reporting.shape import ChangeFacts, NotableFacts
from accountant.reporting.words import groups_in_words

LATEST: Final = 200
"""Events of one sort that are kept; all are counted."""

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
SETTLING: Final = {
    "grant.committed.v1": "committed",
    "grant.released.v1": "released",
    "grant.expired.v1": "expired",
    "sparse_vector.closed.v1": "committed",
}
"""What ends one grant, and what it is then."""
BOOKING: Final = frozenset({"grant.reserved.v1", "invocation.recorded.v1"})
JUDGED: Final = BOOKING | {"grant.refused.v1"}
REVALUED: Final = "charge.revalued.v1"
RECOVERED: Final = "ledger.recovered.v1"
"""Ends all grants that are open, charged in full."""
UNVERIFIABLE: Final = "unverifiable-claim"
UNKNOWN: Final = ""
"""Stands for a purpose that was not stated, and for a kind that an event does not tell."""


@dataclass(frozen=True, slots=True)
class Held:
    """An open grant, as much of it as is needed when it is settled."""

    id: str
    sequence: int
    at: Account
    subjects: str
    total: Charge
    parts: Parts
    expires: str


@dataclass(slots=True)
class Seen:
    """The events of one sort: how many, on which datasets, and the latest."""

    total: int = 0
    by_dataset: dict[str, int] = field(default_factory=dict)
    latest: deque[NotableFacts] = field(default_factory=lambda: deque(maxlen=LATEST))

    def add(self, notable: NotableFacts) -> None:
        """Counts one."""
        self.total += 1
        count = self.by_dataset.get(notable.dataset, 0)
        self.by_dataset[notable.dataset] = count + 1
        self.latest.append(notable)


class History:
    """Fed with every event, its texts opened, after the state has folded it in."""

    def __init__(self) -> None:
        self.tallies = Tallies()
        self.seen: dict[str, Seen] = {sort: Seen() for sort in SORTS}
        self.policies: deque[ChangeFacts] = deque(maxlen=LATEST)
        self.policies_total = 0
        self.custody = CustodyHistory()
        self.held: dict[str, Held] = {}

    def add(self, state: State, event: Event) -> None:
        """Collects from one event."""
        if event.type in JUDGED:
            self._judged(state, event)
        elif event.type in SETTLING:
            self._settled(state, event)
        elif event.type == RECOVERED:
            self._recovered(event)
        elif event.type == REVALUED:
            self._revalued(event)
        elif event.type == "policy.adopted.v1":
            self._adopted(event)
        elif event.type == "population.extended.v1" and event.body["command"].get("attested_new"):
            self._attested(event)
        self.custody.add(event)

    def _judged(self, state: State, event: Event) -> None:
        body, command = event.body, event.body["command"]
        refused = event.type == "grant.refused.v1"
        parts: Parts = {}
        for kind, charge in parts_of(body):
            parts[kind] = parts.get(kind, NOTHING) + charge
        at = Account(command["dataset"], event.by, command.get("purpose") or UNKNOWN)
        total = Charge.from_json(body["total"])
        self.tallies.count(at, parts, refused=refused)
        if not refused:
            self.tallies.book(at, total, parts)
        if event.type == "grant.reserved.v1":
            name, group = grant_in(event), groups_in_words(command.get("subjects"))
            expires = rfc3339(expires_of(event))
            self.held[name] = Held(name, event.sequence, at, group, total, parts, expires)
        if "fired" in body:
            self._note_judged(state, event, refused)

    def _settled(self, state: State, event: Event) -> None:
        grant = self.held.pop(grant_in(event))
        final = final_of(event.body, grant.total)
        parts = _final_parts(state, event, grant, final)
        back = grant.total - final
        self.tallies.book(grant.at, NOTHING - back, parts, grant.parts)
        if event.type == "grant.expired.v1":
            text = f"grant {grant.id} was open past {grant.expires} and is charged in full"
            self.seen["expired"].add(_of_grant(event, grant, final, text))
        elif final != grant.total:
            reason = event.body["command"].get("reason")
            text = f"grant {grant.id}: attested never executed on the data"
            text += f" (“{reason}”)" if reason else ""
            self.seen["given_back"].add(_of_grant(event, grant, back, text))

    def _recovered(self, event: Event) -> None:
        for grant in self.held.values():
            text = f"grant {grant.id} was open when the ledger was recovered; it is charged in full"
            self.seen["expired"].add(_of_grant(event, grant, grant.total, text))
        self.held.clear()

    def _revalued(self, event: Event) -> None:
        command, more = event.body["command"], Charge.from_json(event.body["more"])
        kinds = {mechanism["kind"] for mechanism in command["mechanisms"]}
        at = Account(command["dataset"], command["by"], UNKNOWN)
        self.tallies.book(at, more, {kinds.pop() if len(kinds) == 1 else UNKNOWN: more})
        group = groups_in_words(None if command.get("everyone") else command.get("subjects"))
        held = Held("", command["event"], at, group, more, {}, "")
        text = f"event {command['event']} had cost more than was booked for it"
        text += f" (“{command['reason']}”)"
        self.seen["revalued"].add(_of_grant(event, held, more, text))

    def _note_judged(self, state: State, event: Event, refused: bool) -> None:
        fired = [found for found in self._explained(state, event).findings if found.fired]
        blocking = [rule for rule in fired if rule.action == "block"]
        if refused:
            self._note("blocked", event, blocking)
        elif blocking:  # it ran all the same
            limits = [rule for rule in blocking if rule.code == "budget-exceeded"]
            others = [rule for rule in blocking if rule.code != "budget-exceeded"]
            if limits:
                self._note("overrun", event, limits)
            if others:
                self._note("against_rule", event, others)
        elif by_policy := [rule for rule in fired if rule.code != UNVERIFIABLE]:
            self._note("flagged", event, by_policy)
        codes = {rule.code for rule in fired}
        if UNVERIFIABLE in codes and not refused:
            words = [rule.text for rule in fired if rule.code == UNVERIFIABLE]
            self._note("unverifiable", event, [], "; ".join(dict.fromkeys(words)))
        if "claim-understated" in codes:
            self._note("understated", event, [], "refused" if refused else "recorded")

    def _explained(self, state: State, event: Event) -> Decision:
        engine = state.custody.engine_at(event.sequence)
        return explain(event, state.adopted, state.people(), engine).decision

    def _note(self, sort: str, event: Event, rules: list[Finding], text: str = "") -> None:
        command = event.body["command"]
        everyone = event.body.get("charged_to") == "everyone"
        notable = NotableFacts(
            event.sequence,
            rfc3339(event.time),
            event.by,
            command["dataset"],
            groups_in_words(None if everyone else command.get("subjects")),
            *_amounts(Charge.from_json(event.body["total"])),
            command.get("purpose") or UNKNOWN,
            tuple(rule.rule for rule in rules),
            _in_short(text or "; ".join(rule.text for rule in rules)),
        )
        self.seen[sort].add(notable)

    def _attested(self, event: Event) -> None:
        groups = groups_in_words(event.body["added"])
        at = rfc3339(event.time)
        text = "the members of the new groups were attested to be in no data before"
        self.seen["attested_new"].add(
            NotableFacts(event.sequence, at, event.by, "", groups, "0", "0", UNKNOWN, (), text)
        )

    def _adopted(self, event: Event) -> None:
        command = event.body["command"]
        self.policies_total += 1
        self.policies.append(
            ChangeFacts(
                event.sequence,
                rfc3339(event.time),
                event.by,
                command.get("approved_by"),
                command["policy"]["policy"],
                command["source_digest"],
                tuple(opened_by(event.body)),
                tuple(event.body.get("loosens", ())),
            )
        )


def _final_parts(state: State, event: Event, grant: Held, final: Charge) -> Parts:
    """What was charged in the end, by kind."""
    if final == grant.total:
        return grant.parts
    if not any(final.finite + final.infinite):
        return {}
    command = envelope_of(event).command
    if isinstance(command, CommitGrant) and command.mechanisms:
        engine = state.custody.engine_at(grant.sequence)
        relation, orders = state.people().relation, grant.total.orders
        prices = price_all(command.mechanisms, relation, orders, engine)
        parts: Parts = {}
        for mechanism, priced in zip(command.mechanisms, prices, strict=True):
            parts[mechanism.kind] = parts.get(mechanism.kind, NOTHING) + priced.charge
        return parts
    return dict.fromkeys(grant.parts, final) if len(grant.parts) == 1 else {UNKNOWN: final}


def _of_grant(event: Event, grant: Held, charge: Charge, text: str) -> NotableFacts:
    return NotableFacts(
        event.sequence,
        rfc3339(event.time),
        grant.at.client,
        grant.at.dataset,
        grant.subjects,
        *_amounts(charge),
        grant.at.purpose,
        (),
        _in_short(text),
    )


def _amounts(charge: Charge) -> tuple[str, str]:
    return charge.amount(Currency.EPSILON), charge.amount(Currency.DELTA)


def _in_short(text: str) -> str:
    return text if len(text) <= 400 else text[:399] + "…"
