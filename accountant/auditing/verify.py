"""``verify``: everything that one machine, offline, can check of a ledger.

The bytes against the tree, the tree against the signatures, and every event against the ones before
it: its charges derived again from its mechanisms, its totals added again, its decision taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from accountant.auditing.archive import Archive
from accountant.auditing.findings import AuditFinding, Findings
from accountant.auditing.signatures import Custodian
from accountant.auditing.texts import TextCheck
from accountant.auditing.totals import totals_of
from accountant.budget.custody.revaluation import Corrections
from accountant.budget.state import State
from accountant.ledger.bundle import MANIFEST, TOTALS
from accountant.ledger.checkpoints import MAGIC, Receipt
from accountant.ledger.events import Event
from accountant.ledger.notes import BadNote
from accountant.privacy.engine import FORMER
from accountant.privacy.units import Charge, total
from accountant.workers.replaying import replay_on

Progress = Callable[[int, int], None]  # (entries just read, entries of the bundles opened)


@dataclass(slots=True)
class AuditResult:
    """The result of an audit."""

    ledger: str
    origin: str
    size: int
    root: str
    events: int
    decided: bool  # Every decision was taken again, from the first event on
    cosigned: int
    required: int
    keys: list[str]
    state: State | None  # What the events lead to, if every decision was taken again
    findings: list[AuditFinding]
    count: int


def verify(
    bundles: Sequence[IO[bytes]],
    *,
    key: str | None = None,
    earlier: Sequence[bytes] = (),
    processes: int | None = None,
    progress: Progress = lambda _, __: None,
) -> AuditResult:
    """Check bundles of one ledger, each continuing the one before it. All problems become findings.

    ``key`` is a verifier key that the auditor was given apart from the bundle; ``earlier`` are
    checkpoints or receipts kept from before; ``processes`` is how many decide (``replay_on``).
    """
    findings = Findings()
    texts, kept = TextCheck(findings), _checkpoints(findings, earlier)
    audit = _Audit(findings, texts, kept, key, progress, processes)
    state = None
    try:
        state = audit.run(bundles)
    except Exception as error:  # noqa: BLE001 no input may bring an audit down: it is a finding
        findings.add(f"the check itself failed: {type(error).__name__}: {error}")
    last = audit.last
    return AuditResult(
        ledger=last.manifest.ledger if last else "",
        origin=last.manifest.origin if last else "",
        size=last.tiles.tree.size if last else 0,
        root=last.tiles.tree.root.hex() if last else "",
        events=audit.entries,
        decided=state is not None,
        cosigned=last.cosigned if last else 0,
        required=audit.custodian.required,
        keys=[key.text for key in audit.custodian.keys],
        state=state,
        findings=findings.kept,
        count=findings.count,
    )


@dataclass(slots=True)
class _Audit:
    """One run over bundles that continue each other."""

    findings: Findings
    texts: TextCheck
    earlier: list[tuple[str, bytes]]
    pin: str | None
    progress: Progress
    processes: int | None
    custodian: Custodian = field(default_factory=Custodian)
    entries: int = 0
    expected: int = 0
    last: Archive | None = None  # The last bundle; None if its manifest is of no use

    def run(self, bundles: Sequence[IO[bytes]]) -> State | None:
        """Check everything. Return the state at the end, if the events begin at the first."""
        first = self._open(bundles[0], [] if bundles[1:] else self.earlier)
        if first is None:
            return None
        ledger = first.manifest.ledger
        bodies = self._chained(first, bundles[1:], ledger)
        if first.first > 0:
            self._light(ledger, first.first, bodies)
            return None
        state, corrections = State(ledger), Corrections()
        watched = _watched(bodies, corrections) if FORMER else bodies
        for progress in replay_on(ledger, watched, first.count, self.processes):
            state = progress.state
            for found in progress.findings:
                self.findings.add(found.reason, sequence=found.sequence)
            progress.findings.clear()
        for sequence, reason in corrections.problems:
            self.findings.add(reason, sequence=sequence)
        for booked in corrections.due(state):
            reason = (
                "it was booked by a bound that was corrected since, and the difference was not "
                "booked: `accountant revalue` does that"
            )
            self.findings.add(reason, sequence=booked.event)
        self._end(state)
        return state

    def _end(self, state: State) -> None:
        """Compare what the bundle says of the end of the ledger."""
        last = self.last
        if last is not None and state.sequence and last.reaches_end:
            engine = state.custody.engine_at(state.last)
            if last.manifest.engine != engine:
                reason = f"the last event was decided by version {engine} of the bounds"
                self.findings.add(reason, member=MANIFEST)
            if state.sequence == last.manifest.tree.size and last.totals != totals_of(state):
                self.findings.add("the events add up to other totals", member=TOTALS)

    def _open(self, stream: IO[bytes], earlier: Sequence[tuple[str, bytes]]) -> Archive | None:
        try:
            self.last = Archive(stream, self.findings, self.custodian, self.texts, earlier)
        except ValueError as error:
            self.findings.add(str(error), member=MANIFEST)
            self.last = None
            return None
        self.expected += self.last.count
        return self.last

    def _chained(
        self, archive: Archive, others: Sequence[IO[bytes]], ledger: str
    ) -> Iterator[bytes]:
        """Yield the entries of all bundles, each of which continues the tree of the one before."""
        whole, left = archive.first == 0, list(others)
        while True:
            for body in archive.entries(lambda more: self.progress(more, self.expected)):
                self.entries += 1
                yield body
            archive.finish(whole and archive.reaches_end, None if left else self.pin)
            if not left:
                break
            before, stream = archive, left.pop(0)
            earlier = [("the bundle before it", before.checkpoint)]
            opened = self._open(stream, earlier if left else [*earlier, *self.earlier])
            if opened is None:
                return
            archive = opened
            if (archive.manifest.ledger, archive.first) != (ledger, before.end):
                reason = f"the bundle does not continue the one before it, at {before.end}"
                self.findings.add(reason)
                whole = False
        self.texts.finish(archive.end)

    def _light(self, ledger: str, first: int, bodies: Iterator[bytes]) -> None:
        """Check what can be checked of events without those before them."""
        before = 0
        for sequence, body in enumerate(bodies, start=first):
            try:
                event = Event.from_bytes(body)
                if (event.ledger, event.sequence) != (ledger, sequence):
                    raise ValueError(f"{event.ledger}/{event.sequence} stands here")
                if event.time < before:
                    raise ValueError("it is stamped before the one it follows")
                before = event.time
                if "charges" in event.body:
                    added = total(map(Charge.from_json, event.body["charges"]))
                    if Charge.from_json(event.body["total"]).on(added.axis) != added:
                        raise ValueError("its total is not the sum of its charges")
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                self.findings.add(str(error), sequence=sequence)


def _watched(bodies: Iterator[bytes], corrections: Corrections) -> Iterator[bytes]:
    for body in bodies:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # the replay reports it
            corrections.take(Event.from_bytes(body))
        yield body


def _checkpoints(findings: Findings, kept: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """Return the checkpoints that an auditor kept, or has receipts of, with their names."""
    found = []
    for number, data in enumerate(kept, 1):
        name = f"earlier checkpoint {number}"
        try:
            receipt = data.startswith(MAGIC.encode())
            found.append((name, Receipt.from_bytes(data).checkpoint if receipt else data))
        except BadNote as error:
            findings.add(str(error), member=name)
    return found
