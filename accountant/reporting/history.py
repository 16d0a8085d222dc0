"""Usage by client, kind and purpose, with notable events. Only open grants make memory grow."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import orjson
from msgspec import Struct
from pydantic import ConfigDict, TypeAdapter

from accountant.budget.ancestors import related_in
from accountant.budget.batches import REFUSED as BATCH_REFUSED
from accountant.budget.batches import as_single
from accountant.budget.commands import STORED, Mechanisms
from accountant.budget.facts import final_of, grant_in, mechanisms_of, opened_by, stated_by
from accountant.budget.outcome import CHARGING
from accountant.budget.reach import Reach, reach_in
from accountant.budget.request import Terms, price_all
from accountant.budget.state import State
from accountant.ledger.events import Event, rfc3339
from accountant.privacy.curves import Orders
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.units import NOTHING, Charge
from accountant.reporting.counting import NO_POLICY, Counting
from accountant.reporting.notable import SORTS, Noted, NotedKept, Said, explained, notable, sorts_of
from accountant.reporting.open_grants import OpenGrant, OpenGrants
from accountant.reporting.packing import Pack, Unpack
from accountant.reporting.schema import (
    ChangeFacts,
    NotableFacts,
    SeenFacts,
    TrustedFacts,
)
from accountant.reporting.tallies import (
    UNKNOWN,
    Names,
    NamesKept,
    Parts,
    Tallies,
    TallyKept,
)
from accountant.reporting.trust import Trust, Word
from accountant.reporting.waits import Relaxing

LATEST: Final = 200
"""Events of one sort that are listed; all are counted."""

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
_MECHANISMS: Final[TypeAdapter[list[Mechanism]]] = TypeAdapter(
    Mechanisms, config=ConfigDict(defer_build=True)
)

NOWHERE: Final = Reach(("",), ("",))
"""Of an event that is about no dataset."""


class HeldKept(Struct, frozen=True, array_like=True):
    """An open grant, to write it down."""

    grant: str
    at: NamesKept
    parts: dict[str, int]


class HistoryKept(Struct, frozen=True):
    """What was collected, to write it down."""

    tallies: list[TallyKept]
    counts: dict[str, dict[str, int]]
    totals: dict[str, int]
    latest: dict[str, list[NotedKept]]
    policies: list[ChangeFacts]
    policies_total: int
    counting: dict[str, tuple[int, bool]]
    trusted: dict[str, Trust]
    cells: int
    held: list[HeldKept]
    endings: dict[str, dict[str, int]]
    relaxed: list[tuple[str, str, Word]]


class History:
    """Collects from every event, its texts opened, after the state has folded it in; ``tallied``:
    also the usage by client, kind and purpose.
    """

    def __init__(self, *, tallied: bool = True) -> None:
        self.tallies, self._tallied = Tallies(), tallied
        self.counts: dict[str, Counter[str]] = {sort: Counter() for sort in SORTS}
        """The notable events of each sort, by dataset that they are charged to."""
        self._totals = Counter[str]()
        self._latest = {sort: deque[Noted](maxlen=LATEST) for sort in SORTS}
        self.policies = deque[ChangeFacts](maxlen=LATEST)
        self.policies_total = 0
        self.counting = Counting()
        self._trusted: dict[str, Trust] = {}
        self._cells = 0
        self.held = OpenGrants()
        self.endings: defaultdict[str, Counter[str]] = defaultdict(Counter)
        """By client, how many of its grants were ``committed``, ``released`` and ``expired``."""
        self.relaxed = Relaxing()

    def anew(self) -> History:
        """Return a history that begins now: it knows the open grants, and how limits count."""
        found = History(tallied=self._tallied)
        found.held, found.counting, found._cells = self.held.copy(), self.counting, self._cells
        return found

    def kept(self, pack: Pack) -> HistoryKept:
        """Return what was collected, to write it down. What is said of events is put into words, so
        that it is done once.
        """
        for latest in self._latest.values():
            for place, one in enumerate(latest):
                latest[place] = one._replace(said=one.told)
        return HistoryKept(
            tallies=self.tallies.kept(pack),
            counts={sort: dict(counts) for sort, counts in self.counts.items()},
            totals=dict(self._totals),
            latest={
                sort: [NotedKept.of(one, pack) for one in latest]
                for sort, latest in self._latest.items()
            },
            policies=list(self.policies),
            policies_total=self.policies_total,
            counting=self.counting.kept(),
            trusted=self._trusted,
            cells=self._cells,
            held=[
                HeldKept(
                    one.grant.id,
                    NamesKept.of(one.at, pack),
                    {kind: pack.charge(part) for kind, part in one.parts.items()},
                )
                for one in self.held
            ],
            endings={client: dict(counts) for client, counts in self.endings.items()},
            relaxed=self.relaxed.kept(),
        )

    @classmethod
    def begun(cls, kept: HistoryKept, unpack: Unpack, state: State) -> History:
        """Return what goes on from there, in the state of that moment."""
        made = cls()
        made.tallies = Tallies.begun(kept.tallies, unpack)
        for sort in SORTS:
            made.counts[sort].update(kept.counts[sort])
            made._latest[sort].extend(one.noted(unpack) for one in kept.latest[sort])
        made._totals.update(kept.totals)
        made.policies.extend(kept.policies)
        made.policies_total = kept.policies_total
        made.counting = Counting(kept.counting)
        made._trusted, made._cells = kept.trusted, kept.cells
        for one in kept.held:
            parts = {kind: unpack.charge(part) for kind, part in one.parts.items()}
            grant = state.open[one.grant]
            made.held.add(OpenGrant(grant, one.at.names(unpack), parts))
        for client, counts in kept.endings.items():
            made.endings[client].update(counts)
        made.relaxed = Relaxing.begun(kept.relaxed)
        return made

    def seen(self) -> tuple[SeenFacts, ...]:
        """Return the notable events of each sort."""
        return tuple(
            SeenFacts(
                sort=sort,
                total=self._totals[sort],
                by_dataset=dict(counts),
                latest=tuple(map(notable, reversed(self._latest[sort]))),
            )
            for sort, counts in self.counts.items()
        )

    def total(self, sort: str, dataset: str = "*") -> int:
        """Return how many notable events of a sort there were on a dataset, or on any ("*")."""
        return self._totals[sort] if dataset == "*" else self.counts[sort][dataset]

    def latest(self, sort: str, since: int, most: int) -> list[NotableFacts]:
        """Return at most ``most`` notable events of a sort from stamp ``since`` on, last first."""
        noted = (one for one in reversed(self._latest[sort]) if one.time >= since)
        return [notable(one) for one in islice(noted, most)]

    def stamps(self, sort: str, dataset: str) -> list[tuple[int, int]]:
        """Return the sequence and the stamp of the notable events of a sort that are listed, on a
        dataset that they are charged to, or on any ("*"), in their order.
        """
        return [
            (one.sequence, one.time)
            for one in self._latest[sort]
            if dataset in ("*", *one.at.on.charged)
        ]

    def trusted(self) -> tuple[TrustedFacts, ...]:
        """Return what was given back or began at zero on the word of each client, most first."""

        def place(row: tuple[str, Trust]) -> tuple[int, int, int, str]:
            name, trust = row
            return -trust.all.unbounded, -trust.all.epsilon, -trust.cells, name

        rows = sorted(self._trusted.items(), key=place)
        return tuple(trust.facts(name) for name, trust in rows)

    def _trust(self, client: str) -> Trust:
        return self._trusted.setdefault(client, Trust())

    def add(self, state: State, event: Event) -> None:
        """Collect from one event."""
        event = as_single(event) if event.type != BATCH_REFUSED else event
        self._collect(state, event)
        if event.type in ("population.registered.v1", "population.extended.v1"):
            before, self._cells = self._cells, state.people().cells
            if before and event.body["command"].get("attested_new"):
                self._trust(stated_by(event)).cells += self._cells - before

    def _collect(self, state: State, event: Event) -> None:
        if event.type in JUDGED:
            self._judged(state, event)
        elif event.type in SETTLING:
            self._settled(state, event)
        elif event.type == RECOVERED:
            for held in self.held:
                text = (
                    f"grant {held.grant.id} was open when the ledger was recovered; charged in full"
                )
                self._note("expired", event, held.at, held.grant.total, ((text,), ()))
            self.held.clear()
        elif event.type == REVALUED:
            self._revalued(state, event)
        elif event.type == ADOPTED:
            self._adopted(event)
        else:
            self._registered(event)

    def _registered(self, event: Event) -> None:
        if event.type == CHARGING:
            for name, others in sorted(related_in(event).charged_with.items()):
                for other in others:
                    self.tallies.take_over(name, other)
                    self.held.charge(name, other)
        elif event.type == "population.extended.v1" and event.body["command"].get("attested_new"):
            at = Names(NOWHERE, stated_by(event), subjects=event.body["added"])
            text = "the members of the new groups were attested to be in no data before"
            self._note("attested_new", event, at, NOTHING, ((text,), ()))

    def _judged(self, state: State, event: Event) -> None:
        body, command = event.body, event.body["command"]
        refused = event.type == "grant.refused.v1"
        fired = body.get("fired")
        total = Charge.from_json(body["total"]) if self._tallied or fired else NOTHING
        parts = self._parts_of(state, event, total) if self._tallied else {}
        purpose = command.get("purpose") or UNKNOWN
        subjects, policy = command.get("subjects"), body.get("policy", NO_POLICY)
        at = Names(reach_in(body), event.by, purpose, subjects, policy)
        for tally, charge in self.tallies.of(at, total, parts) if self._tallied else ():
            if refused:
                tally.refused += 1
            else:
                tally.requests += 1
                tally.add(charge, at.policy)
        if event.type == "grant.reserved.v1":
            self.held.add(OpenGrant(state.open[grant_in(event)], at, parts))
        if fired:
            self.relaxed.take(() if refused else fired, at.client, total)
            if body.get("charged_to") == "everyone":
                at = at._replace(subjects=None)
            for sort in sorts_of(state, fired, refused=refused):
                self._note(sort, event, at, total, explained(sort, state, event))

    def _parts_of(self, state: State, event: Event, total: Charge) -> Parts:
        """Return the charge of a judged event by kind of mechanism."""
        body, command = event.body, event.body["command"]
        kinds = [m["kind"] for m in mechanisms_of(command)]
        each = [total] if len(kinds) == 1 else map(Charge.from_json, body["charges"])
        parts = _by_kind(zip(kinds, each, strict=True))
        if len(parts) == 1:
            return dict.fromkeys(parts, total)
        if event.type != "grant.refused.v1" and body.get("charged_to") != "everyone":
            return _priced(state, command["mechanisms"], total.orders, event.sequence)
        return parts

    def _settled(self, state: State, event: Event) -> None:
        held = self.held.pop(grant_in(event))
        self.endings[held.at.client][SETTLING[event.type]] += 1
        grant, final = held.grant, final_of(event.body, held.grant.total)
        if event.type == "grant.expired.v1":
            text = f"grant {grant.id} expired at {rfc3339(grant.expires)}; charged in full"
            self._note("expired", event, held.at, final, ((text,), ()))
        if final == grant.total:
            return
        back = grant.total - final
        if self._tallied:
            self._give_back(state, event, held, final)
        if event.type != "grant.expired.v1":
            self._trust(held.at.client).gave_back(event.type, back)
            reason = event.body["command"].get("reason")
            text = f"grant {grant.id}: attested never executed on the data"
            said = (text, " (“", reason, "”)") if reason else (text,)
            self._note("given_back", event, held.at, back, (said, ()))
            if fired := event.body.get("fired"):
                rules = tuple(rule for rule, _ in fired)
                text = f"grant {grant.id}: given back beyond what is taken on one client's word"
                self._note("flagged", event, held.at, back, ((text,), rules))

    def _give_back(self, state: State, event: Event, held: OpenGrant, final: Charge) -> None:
        """Tally what a grant did not use."""
        parts = _parts(state, event, held, final)
        changes = {
            kind: parts.get(kind, NOTHING) - held.parts.get(kind, NOTHING)
            for kind in parts.keys() | held.parts.keys()
        }
        back = held.grant.total - final
        for tally, change in self.tallies.of(held.at, NOTHING - back, changes):
            tally.add(change, held.at.policy, settled=True)

    def _revalued(self, state: State, event: Event) -> None:
        command, more = event.body["command"], Charge.from_json(event.body["more"])
        kinds = {mechanism["kind"] for mechanism in command["mechanisms"]}
        subjects = None if command.get("everyone") else command.get("subjects")
        policy = state.adopted.sequence if state.adopted else NO_POLICY
        at = Names(reach_in(event.body), command["by"], subjects=subjects, policy=policy)
        kind = kinds.pop() if len(kinds) == 1 else UNKNOWN
        for tally, part in self.tallies.of(at, more, {kind: more}):
            tally.add(part, policy)
        text = f"event {command['event']} cost more than was booked for it (“"
        self._note("revalued", event, at, more, ((text, command["reason"], "”)"), ()))

    def _note(self, sort: str, event: Event, at: Names, charge: Charge, said: Said) -> None:
        self.counts[sort].update(at.on.charged)
        self._totals[sort] += 1
        self._latest[sort].append(Noted(event.sequence, event.time, at, charge, said))

    def _adopted(self, event: Event) -> None:
        command = event.body["command"]
        confirms = command.get("confirms")
        self.counting.adopted(event.sequence, event.body)
        self.policies_total += 1
        change = ChangeFacts(
            sequence=event.sequence,
            time=rfc3339(event.time),
            by=stated_by(event),
            confirmed_by=event.by if confirms else None,
            policy=command["policy"]["policy"],
            digest=command["source_digest"],
            opened_epochs=tuple(opened_by(event.body)),
            loosened=tuple(event.body.get("loosens", ())),
        )
        self.policies.appendleft(change)


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
