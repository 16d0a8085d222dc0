"""What became of the ledger itself: alarms, recoveries, erasures, its clock, what was published."""

from __future__ import annotations

from collections import deque
from typing import Final

from accountant.budget.custody.publication import NO_WITNESSES
from accountant.budget.state import State
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import Tree
from accountant.reporting.ledger_facts import (
    AcceptedFacts,
    AlarmFacts,
    CheckpointFacts,
    LostFacts,
    RecoveryFacts,
    ResumedFacts,
)
from accountant.store.ledgers import Signed

LATEST: Final = 20
"""Of each sort that are kept; all are counted."""


class CustodyHistory:
    """Fed with every event, its texts opened."""

    def __init__(self) -> None:
        self.alarm: AlarmFacts | None = None
        self.alarms = 0
        self.resumed: deque[ResumedFacts] = deque(maxlen=LATEST)
        self.recovered = 0
        self.recoveries: deque[RecoveryFacts] = deque(maxlen=LATEST)
        self.erasures = 0
        self.accepted: deque[AcceptedFacts] = deque(maxlen=LATEST)
        self._last = 0  # the stamp of the event before
        self._carried = 0  # accounts, by the events just before this one
        self._first = 0  # of these events

    def add(self, event: Event) -> None:
        """Collects from one event."""
        if event.type == "ledger.carried_over.v1":
            self._first = self._first if self._carried else event.sequence
            self._carried += len(event.body["command"]["accounts"])
            self._last = event.time
            return
        match event.type:
            case "publication.stopped.v1":
                self._stopped(event)
            case "publication.resumed.v1":
                self._resumed(event)
            case "ledger.recovered.v1":
                self._recovered(event)
            case "text.erased.v1":
                self.erasures += 1
            case "clock.accepted.v1":
                self._accepted(event)
        self._carried, self._last = 0, event.time

    def _stopped(self, event: Event) -> None:
        said = event.body["command"]
        at = rfc3339(event.time)
        self.alarms += 1
        self.alarm = AlarmFacts(
            event.sequence, at, said["witness"], said["status"], said["detail"], said["size"]
        )

    def _resumed(self, event: Event) -> None:
        body, at = event.body, rfc3339(event.time)
        reason = body["command"]["reason"]
        self.alarm = None
        self.resumed.append(ResumedFacts(event.sequence, at, event.by, body["alarm"], reason))

    def _recovered(self, event: Event) -> None:
        body = event.body
        self.recovered += 1
        self.recoveries.append(
            RecoveryFacts(
                sequence=event.sequence,
                time=rfc3339(event.time),
                by=event.by,
                reason=body["command"]["reason"],
                left=self._first if self._carried else event.sequence,
                lost=tuple(LostFacts(**head) for head in body["lost"]),
                charged=len(body["charged"]),
                carried=self._carried,
            )
        )

    def _accepted(self, event: Event) -> None:
        said, at = event.body["command"], rfc3339(event.time)
        before = rfc3339(self._last)
        self.accepted.append(
            AcceptedFacts(event.sequence, at, event.by, said["clock"], before, said["reason"])
        )


class Published:
    """The last published head, held against the tree of the events as it grows."""

    def __init__(self, signed: Signed | None) -> None:
        self._signed = signed
        self._continued = False
        if signed is not None:
            note = notes.parse(signed.note)
            self._head = Checkpoint.from_text(note.text)
            mine = [one.id.hex() for one in note.signatures if one.name == self._head.origin]
            self._key = mine[0] if mine else ""

    def see(self, tree: Tree) -> None:
        """Takes the tree after one more event."""
        if self._signed is not None and tree.size == self._head.size:
            self._continued = tree.root == self._head.root

    def facts(self, state: State) -> CheckpointFacts | None:
        """What a report says of it, once all events have been seen."""
        if self._signed is None:
            return None
        policy = state.adopted.policy if state.adopted else None
        publication = policy.publication if policy else NO_WITNESSES
        names = {witness.verifier.name for witness in publication.witnesses}
        return CheckpointFacts(
            origin=self._head.origin,
            size=self._head.size,
            key=self._key,
            witnesses=len(names),
            cosigned=sum(name in names for name, _ in self._signed.cosignatures),
            required=publication.required,
            continued=self._continued,
        )
