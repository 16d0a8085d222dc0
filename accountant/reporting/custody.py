"""The ledger itself, as a report shows it: checkpoint, alarms, recoveries, erasures, its clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from accountant.budget.outcome import DECLINED, PROPOSED
from accountant.budget.policy import NO_WITNESSES
from accountant.budget.state import State
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.reporting.packing import Pack, Unpack, Written
from accountant.store.ledgers import Signed, Stored

LATEST: Final = 20
"""Events of each sort that are listed; all are counted."""
Facts = TypeVar("Facts")
_REASONED: Final = ("resumed", "recoveries", "accepted", "verified")
"""The lists of events for which somebody stated a reason."""


class CheckpointFacts(Struct, frozen=True):
    """The last published checkpoint. ``key`` is the id of its signing key. Of the policy's
    ``witnesses``, ``cosigned`` have cosigned it and ``required`` had to. ``continued``: the
    events of the report begin with the events that were signed.
    """

    origin: str
    size: int
    key: str
    witnesses: int
    cosigned: int
    required: int
    continued: bool


class EventFacts(Struct, frozen=True):
    """An event that the report shows, by its sequence and its time."""

    sequence: int
    time: str


class AlarmFacts(EventFacts, frozen=True):
    """A witness's answer that stopped publication. ``size``: of the ledger it was shown."""

    witness: str
    status: int
    detail: str
    size: int


class ResumedFacts(EventFacts, frozen=True):
    """An operator's statement that ends an alarm. ``alarm`` is the sequence of the alarm."""

    by: str
    alarm: int
    reason: str


class LostFacts(Struct, frozen=True):
    """A signed head that the ledger no longer continues."""

    origin: str
    size: int
    root: str


class RecoveryFacts(EventFacts, frozen=True):
    """A recovery, proposed ``by`` one person and ``confirmed_by`` another. ``left``: events that
    remained; ``charged``: open grants that were charged in full; ``carried``: accounts whose signed
    totals were carried over.
    """

    by: str
    confirmed_by: str
    reason: str
    left: int
    lost: tuple[LostFacts, ...]
    charged: int
    carried: int


class AcceptedFacts(EventFacts, frozen=True):
    """The statement of two people, ``by`` and ``confirmed_by``, that a suspect clock is right.
    ``clock`` is the time that it showed to the second; ``before`` is the stamp of the event before,
    at which ledger time had stood still.
    """

    by: str
    confirmed_by: str
    clock: str
    before: str
    reason: str


class VerifiedFacts(EventFacts, frozen=True):
    """The result of a verification of the first ``size`` events, as ``by`` stated it. ``decided``:
    every decision was taken again.
    """

    by: str
    size: int
    findings: int
    decided: bool
    reason: str = ""


class LedgerFacts(Struct):
    """The ledger itself. ``root`` is in hex; ``broken_at`` is the first event whose stored hash is
    not that of its bytes; ``alarm`` stops publication now; lists have the latest, last first.
    ``verified`` has the last statement of each person.
    """

    events: int = 0
    last_sequence: int | None = None
    last_time: str | None = None
    root: str = ""
    broken_at: int | None = None
    checkpoint: CheckpointFacts | None = None
    alarm: AlarmFacts | None = None
    alarms: int = 0
    resumed: list[ResumedFacts] = []
    recovered: int = 0
    recoveries: list[RecoveryFacts] = []
    erasures: int = 0
    accepted: list[AcceptedFacts] = []
    verified: list[VerifiedFacts] = []


class CustodyKept(Struct, frozen=True):
    """What was collected, to write it down: without the reasons, which stand apart."""

    facts: LedgerFacts
    reasons: dict[str, list[Written]]
    before: int
    carried: list[tuple[int, int]]


class CustodyHistory:
    """Collects from every event, its texts opened, and grows the Merkle tree over its bytes."""

    def __init__(self) -> None:
        self._signed: Signed | None = None
        self._head: Checkpoint | None = None
        self._continued = False
        self._tree = Tree()
        self._facts = LedgerFacts()
        self._before = 0  # the stamp of the event before
        self._carried: list[tuple[int, int]] = []  # (event, accounts) carried over just before

    @property
    def tree(self) -> Tree:
        """The tree over the events so far."""
        return self._tree

    @property
    def broken(self) -> bool:
        """Some event's bytes are not those that were hashed."""
        return self._facts.broken_at is not None

    def kept(self, pack: Pack) -> CustodyKept:
        """Return what was collected, to write it down; what was published is not."""
        bare, reasons = {}, {}
        for name in _REASONED:
            listed = getattr(self._facts, name)
            bare[name] = [replace(one, reason="") for one in listed]
            reasons[name] = [pack.text(one.reason) for one in listed]
        facts = replace(self._facts, **bare)
        return CustodyKept(facts, reasons, self._before, self._carried)

    @classmethod
    def begun(cls, kept: CustodyKept, unpack: Unpack, tree: Tree) -> CustodyHistory:
        """Return what goes on from there."""
        made = cls()
        made._tree, made._facts = tree, kept.facts
        for name in _REASONED:
            listed = getattr(kept.facts, name)
            texts = unpack.texts(kept.reasons[name])
            pairs = zip(listed, texts, strict=True)
            listed[:] = [replace(one, reason=text) for one, text in pairs]
        made._before, made._carried = kept.before, kept.carried
        return made

    def expect(self, signed: Signed | None, rooted: Callable[[int], bytes | None]) -> None:
        """Take what was published last, before the events that it may cover are added. ``rooted``
        returns the root of the first so many events, where there are more by now.
        """
        if signed == self._signed:
            return
        self._signed, self._head, self._continued = signed, None, False
        if signed is None:
            return
        self._head = Checkpoint.from_text(notes.parse(signed.note).text)
        size = self._head.size
        if size <= self._tree.size:
            root = self._tree.root if size == self._tree.size else rooted(size)
            self._continued = root == self._head.root

    def add(self, event: Event, stored: Stored) -> None:
        """Collect from one event."""
        facts, leaf = self._facts, leaf_hash(stored.body)
        self._tree, _ = self._tree.grown([leaf])
        if leaf != stored.leaf and facts.broken_at is None:
            facts.broken_at = stored.sequence
        if self._head is not None and self._tree.size == self._head.size:
            self._continued = self._tree.root == self._head.root
        body, said = event.body, event.body.get("command", {})
        at = event.sequence, rfc3339(event.time)
        match event.type:
            case "publication.stopped.v1":
                answer = said["witness"], said["status"], said["detail"], said["size"]
                facts.alarm = AlarmFacts(*at, *answer)
                facts.alarms += 1
            case "publication.resumed.v1":
                facts.alarm = None
                resumed = ResumedFacts(*at, event.by, body["alarm"], said["reason"])
                _keep(facts.resumed, resumed)
            case "ledger.recovered.v1":
                _keep(facts.recoveries, self._recovered(event))
                facts.recovered += 1
            case "text.erased.v1":
                facts.erasures += 1
            case "clock.accepted.v1":
                _keep(facts.accepted, self._accepted(event))
            case "ledger.verified.v1":
                facts.verified[:] = [one for one in facts.verified if one.by != event.by]
                _keep(facts.verified, _verified(event))
        self._prepared(event, said)
        self._before = event.time

    def _prepared(self, event: Event, said: dict[str, Any]) -> None:
        """Keep what was carried over before a recovery that may follow."""
        if event.type == "ledger.carried_over.v1":
            self._carried.append((event.sequence, len(said["accounts"])))
        elif event.type not in (PROPOSED, DECLINED):  # which may stand before it
            self._carried.clear()

    def _accepted(self, event: Event) -> AcceptedFacts:
        """Return an accepted clock."""
        said, before = event.body["command"], rfc3339(self._before)
        confirms = said["confirms"]
        return AcceptedFacts(
            event.sequence,
            rfc3339(event.time),
            confirms["proposer"],
            event.by,
            confirms["shown"],
            before,
            said["reason"],
        )

    def _recovered(self, event: Event) -> RecoveryFacts:
        """Return a recovery."""
        body, said = event.body, event.body["command"]
        confirms = said["confirms"]
        return RecoveryFacts(
            event.sequence,
            rfc3339(event.time),
            confirms["proposer"],
            event.by,
            said["reason"],
            self._carried[0][0] if self._carried else confirms["proposal"],
            tuple(LostFacts(**head) for head in body["lost"]),
            len(body["charged"]),
            sum(accounts for _, accounts in self._carried),
        )

    def facts(self, state: State) -> LedgerFacts:
        """Return the collected facts, once ``state`` has folded in all events so far."""
        own = self._facts
        lists = {
            name: [replace(one, reason=str(one.reason)) for one in getattr(own, name)]
            for name in _REASONED
        }
        facts = replace(own, **lists)
        facts.events, facts.root = state.sequence, self._tree.root.hex()
        if facts.events:
            facts.last_sequence, facts.last_time = state.last, rfc3339(state.time)
        if self._signed is not None and self._head is not None:
            origin, signatures = self._head.origin, notes.parse(self._signed.note).signatures
            publication = state.adopted.policy.publication if state.adopted else NO_WITNESSES
            names = {witness.verifier.name for witness in publication.witnesses}
            facts.checkpoint = CheckpointFacts(
                origin=origin,
                size=self._head.size,
                key=next((one.id.hex() for one in signatures if one.name == origin), ""),
                witnesses=len(names),
                cosigned=sum(name in names for name, _ in self._signed.cosignatures),
                required=publication.required,
                continued=self._continued,
            )
        return facts


def _verified(event: Event) -> VerifiedFacts:
    said = event.body["command"]
    stated = said["size"], said["findings"], said["decided"], said.get("reason") or ""
    return VerifiedFacts(event.sequence, rfc3339(event.time), event.by, *stated)


def _keep(latest: list[Facts], one: Facts) -> None:
    latest.insert(0, one)
    del latest[LATEST:]
