"""Checkpoints: which keys had to sign each, and whether its root is that of the events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from accountant.auditing.findings import Findings
from accountant.budget.custody.custody import Custody, SigningKey
from accountant.ledger import notes
from accountant.ledger.checkpoints import Checkpoint
from accountant.ledger.notes import BadNote, Verifier

KEY_ADOPTED = b'"type":"signing_key.adopted.v1"}'
POLICY_ADOPTED = b'"type":"policy.adopted.v1"}'


class Custodian:
    """Collects keys and witnesses from the events themselves."""

    def __init__(self) -> None:
        self.keys: list[SigningKey] = []
        self.witnesses: list[str] = []
        self.policies: list[Any] = []
        self.required = 0

    def take(self, sequence: int, body: bytes) -> None:
        """Take an event. What is malformed in it is reported by the replay."""
        if not body.endswith((KEY_ADOPTED, POLICY_ADOPTED)):
            return
        try:
            command = orjson.loads(body)["command"]
            if body.endswith(KEY_ADOPTED):
                self.keys.append(SigningKey(sequence, str(Verifier.from_text(command["key"]))))
                return
            self.policies.append(command["policy"])
            publication = command["policy"].get("publication", {})
            self.required = int(publication.get("required", 0))
            for witness in publication.get("witnesses", []):
                self.witnesses.append(str(Verifier.from_text(witness["key"])))
        except (AttributeError, KeyError, TypeError, ValueError):
            return


class Signatures:
    """Checks the checkpoints of a bundle once its events and tiles were read."""

    def __init__(
        self, findings: Findings, custodian: Custodian, bundled: Sequence[str], whole: bool
    ) -> None:
        self._findings = findings
        self._custody = Custody(keys=tuple(custodian.keys))
        self._witnesses = [Verifier.from_text(w) for w in dict.fromkeys(custodian.witnesses)]
        self._bundled = list(bundled)
        self._whole = whole

    def check(
        self,
        checkpoints: Iterable[tuple[str, bytes]],
        roots: Mapping[int, bytes],
        *,
        in_a_row: bool = True,
    ) -> int:
        """Check checkpoints, with their names in findings, against the ``roots`` by size. Return
        how many witnesses cosign the last. ``in_a_row``: they are all, so keys vouch for the next.
        """
        before, cosigned = 0, 0
        for member, data in checkpoints:
            try:
                note = notes.parse(data)
                head = Checkpoint.from_text(note.text)
                cosigned = len(note.verified(self._witnesses))
                self._signed(note, head, before if in_a_row else head.size)
            except BadNote as error:
                self._findings.add(str(error), member=member)
                continue
            if head.to_text().encode() != note.text:
                self._findings.add("it has more than a checkpoint's three lines", member=member)
            if in_a_row and head.size < before:
                self._findings.add("it is smaller than the one before it", member=member)
            if roots.get(head.size) != head.root:
                reason = f"its root at size {head.size} is not that of the events"
                self._findings.add(reason, member=member)
            before = max(before, head.size)
        return cosigned

    def _signed(self, note: notes.Note, head: Checkpoint, before: int) -> None:
        """Raise BadNote unless every key has signed that had to."""
        if self._whole:
            needed = [Verifier.from_text(k.text) for k in self._custody.signing(head.size, before)]
            origin = self._custody.log_of(head.size)
        else:  # which key was in force is in earlier events: accept any key of this log
            keys = [Verifier.from_text(text) for text in self._bundled]
            needed = note.verified([key for key in keys if key.name == head.origin])[:1]
            origin = head.origin
        if not needed:
            raise BadNote(f"no key of the ledger signs for its size {head.size}")
        if head.origin != origin:
            raise BadNote(f"it is of the log {head.origin}, the ledger signs as {origin}")
        signed = note.verified(needed)
        for key in needed:
            if key not in signed:
                raise BadNote(f"it lacks the signature of {key}")

    def anchor(self, checkpoint: bytes, pin: str) -> None:
        """Report a checkpoint that ``pin`` has not signed, nor vouches for by a chain of keys."""
        try:
            note = notes.parse(checkpoint)
            head, key = Checkpoint.from_text(note.text), Verifier.from_text(pin)
            if note.verified([key]) and key.name == head.origin:
                return
        except ValueError as error:
            self._findings.add(str(error), member="checkpoint")
            return
        chain = {k.text for k in self._custody.keys if k.name == head.origin}
        if not self._whole:
            reason = f"the key {pin} has not signed it: to see whether it vouches for those that "
            self._findings.add(f"{reason}have, all events are needed", member="checkpoint")
        elif pin not in chain:
            reason = f"the log {head.origin}, named by the checkpoint, never adopted the key {pin}"
            self._findings.add(reason, member="checkpoint")
