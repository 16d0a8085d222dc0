"""What one pass over the events collects beside the fold: who used what up, and what stood out.

Memory grows with open grants and with distinct names (capped), never with the number of events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from accountant.budget.commands import CommitGrant
from accountant.budget.request import price_all
from accountant.budget.state import Grant, State, asked_of
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.mechanisms import Verdict
from accountant.privacy.units import NOTHING, SURE, Charge, Currency
from accountant.reporting.shape import ChangeFacts, NotableFacts
from accountant.reporting.words import groups_in_words

LATEST: Final = 200
"""Events of one sort that are kept; all are counted."""
MOST_NAMES: Final = 1_000
"""Names under one heading of one dataset; what comes later is added up under one row."""

HEADINGS: Final = ("client", "kind", "purpose")
SORTS: Final = (
    "overrun",
    "against_rule",
    "blocked",
    "flagged",
    "unverifiable",
    "understated",
    "expired",
    "given_back",
    "attested_new",
)
SETTLING: Final = frozenset(
    {
        "grant.committed.v1",
        "grant.released.v1",
        "grant.expired.v1",
        "sparse_vector.closed.v1",
    }
)
BOOKING: Final = frozenset({"grant.reserved.v1", "invocation.recorded.v1"})
JUDGED: Final = BOOKING | {"grant.refused.v1"}

UNKNOWN: Final = ""
"""Stands for a purpose that was not stated, and for a kind that an event does not tell."""

Parts = dict[str, Charge]
"""A charge split by mechanism kind."""


@dataclass(slots=True)
class Tally:
    """What stands under one name."""

    requests: int = 0
    refused: int = 0
    net: Charge = NOTHING
    given_back: Charge = NOTHING


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
    """Fed with every event after the state has folded it in."""

    def __init__(self) -> None:
        self.usage: dict[tuple[str, str], dict[str | None, Tally]] = {}
        self.totals: dict[str, Tally] = {}
        self.seen: dict[str, Seen] = {sort: Seen() for sort in SORTS}
        self.policies: deque[ChangeFacts] = deque(maxlen=LATEST)
        self.policies_total = 0
        self._held: dict[str, Parts] = {}

    def add(self, state: State, event: Event) -> None:
        """Collects from one event."""
        if event.type in JUDGED:
            self._judged(event)
        elif event.type in SETTLING:
            self._settled(state, event)
        elif event.type == "policy.adopted.v1":
            self._adopted(event)
        elif event.type == "population.extended.v1" and event.body["command"].get("attested_new"):
            self._attested(event)

    def _judged(self, event: Event) -> None:
        body, command = event.body, event.body["command"]
        refused = event.type == "grant.refused.v1"
        parts: Parts = {}
        for charge in body["charges"]:
            kind = charge["kind"]
            parts[kind] = parts.get(kind, NOTHING) + Charge.from_json(charge["charge"])
        for tally in self._tallies(command["dataset"], event.by, command.get("purpose"), parts):
            tally.refused += refused
            tally.requests += not refused
        if not refused:
            total = Charge.from_json(body["total"])
            self._book(command["dataset"], event.by, command.get("purpose"), total, parts)
        if event.type == "grant.reserved.v1":
            self._held[body["grant"]] = parts
        self._note_judged(event, refused)

    def _settled(self, state: State, event: Event) -> None:
        grant = state.grants[event.body["grant"]]
        held = self._held.pop(grant.id)
        final = Charge.from_json(event.body["charge"])
        parts = _final_parts(state, event, grant, held, final)
        purpose = grant.command.get("purpose")
        back = grant.total - final
        self._book(grant.dataset, grant.by, purpose, NOTHING - back, parts, held)
        if event.type == "grant.expired.v1":
            text = f"grant {grant.id} was open past {rfc3339(grant.expires)} and is charged in full"
            self.seen["expired"].add(_of_grant(event, grant, final, text))
        elif final != grant.total:
            reason = event.body["command"].get("reason")
            text = f"grant {grant.id}: attested never executed on the data"
            text += f" (“{reason}”)" if reason else ""
            self.seen["given_back"].add(_of_grant(event, grant, back, text))

    def _book(
        self,
        dataset: str,
        client: str,
        purpose: str | None,
        change: Charge,
        parts: Parts,
        held: Parts | None = None,
    ) -> None:
        """Books ``change``, which is ``parts`` in place of ``held``."""
        before = held or {}
        for tally in self._tallies(dataset, client, purpose, ()):
            _add(tally, change, settled=held is not None)
        for kind in parts.keys() | before.keys():
            part = parts.get(kind, NOTHING) - before.get(kind, NOTHING)
            _add(self._tally(dataset, "kind", kind), part, settled=held is not None)

    def _tallies(
        self, dataset: str, client: str, purpose: str | None, kinds: Iterable[str]
    ) -> list[Tally]:
        return [
            self.totals.setdefault(dataset, Tally()),
            self._tally(dataset, "client", client),
            self._tally(dataset, "purpose", purpose or UNKNOWN),
            *(self._tally(dataset, "kind", kind) for kind in kinds),
        ]

    def _tally(self, dataset: str, heading: str, name: str) -> Tally:
        rows = self.usage.setdefault((dataset, heading), {})
        full = name not in rows and len(rows) >= MOST_NAMES
        return rows.setdefault(None if full else name, Tally())

    def _note_judged(self, event: Event, refused: bool) -> None:
        decision = event.body["decision"]
        fired = [rule for rule in decision["rules"] if rule["fired"]]
        blocking = [rule for rule in fired if rule["action"] == "block"]
        if refused:
            self._note("blocked", event, blocking)
        elif blocking:  # it ran all the same
            limits = [rule for rule in blocking if rule["code"] == "budget-exceeded"]
            others = [rule for rule in blocking if rule["code"] != "budget-exceeded"]
            if limits:
                self._note("overrun", event, limits)
            if others:
                self._note("against_rule", event, others)
        elif by_policy := [rule for rule in fired if rule["code"] != "unverifiable-claim"]:
            self._note("flagged", event, by_policy)
        verdicts = {charge["verdict"] for charge in event.body["charges"]}
        if Verdict.UNVERIFIABLE in verdicts and not refused:
            self._note("unverifiable", event, [])
        if Verdict.UNDERSTATED in verdicts:
            self._note("understated", event, [], "refused" if refused else "recorded")

    def _note(self, sort: str, event: Event, rules: list[dict[str, Any]], text: str = "") -> None:
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
            tuple(rule["rule"] for rule in rules),
            text or _in_short("; ".join(rule["text"] for rule in rules) or _claims(event)),
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
                tuple(event.body.get("opens_epoch", ())),
                tuple(event.body.get("loosens", ())),
            )
        )


def _final_parts(state: State, event: Event, grant: Grant, held: Parts, final: Charge) -> Parts:
    """What was charged in the end, by kind."""
    if final == grant.total:
        return held
    if not any(final.finite + final.infinite):
        return {}
    command = asked_of(event).command
    if isinstance(command, CommitGrant) and command.mechanisms:
        prices = price_all(command.mechanisms, state.people().relation, grant.total.orders)
        parts: Parts = {}
        for mechanism, priced in zip(command.mechanisms, prices, strict=True):
            parts[mechanism.kind] = parts.get(mechanism.kind, NOTHING) + priced.charge
        return parts
    return dict.fromkeys(held, final) if len(held) == 1 else {UNKNOWN: final}


def _add(tally: Tally, change: Charge, *, settled: bool) -> None:
    change = change.on(SURE)  # the Renyi orders of charges differ over time
    tally.net += change
    if settled:
        tally.given_back += Charge(
            change.axis,
            tuple(max(0, -amount) for amount in change.finite),
            tuple(max(0, -amount) for amount in change.infinite),
        )


def _of_grant(event: Event, grant: Grant, charge: Charge, text: str) -> NotableFacts:
    return NotableFacts(
        event.sequence,
        rfc3339(event.time),
        grant.by,
        grant.dataset,
        groups_in_words(grant.command.get("subjects")),
        *_amounts(charge),
        grant.command.get("purpose") or UNKNOWN,
        (),
        _in_short(text),
    )


def _amounts(charge: Charge) -> tuple[str, str]:
    return charge.amount(Currency.EPSILON), charge.amount(Currency.DELTA)


def _claims(event: Event) -> str:
    kinds = [c["kind"] for c in event.body["charges"] if c["verdict"] == Verdict.UNVERIFIABLE]
    return "on the client's word: " + ", ".join(sorted(set(kinds)))


def _in_short(text: str) -> str:
    return text if len(text) <= 400 else text[:399] + "…"
