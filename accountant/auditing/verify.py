"""``verify``: everything that one machine, offline, can check of a ledger.

The bytes against the tree, the tree against the signatures, and every event against the ones before
it: its charges derived again from its mechanisms, its totals added again, its decision taken again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

from accountant.auditing.archive import Archive
from accountant.auditing.findings import Finding, Findings
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

Told = Callable[[int, int], None]
"""Is told how many more entries were read, and of how many, as far as bundles were opened."""


@dataclass(slots=True)
class Verdict:
    """What an audit comes to. ``decided``: the bundles begin with the first event, so that every
    decision could be taken again; ``state`` is then what the events amount to.
    """

    ledger: str
    origin: str
    size: int
    root: str
    entries: int
    decided: bool
    cosigned: int
    required: int
    keys: list[str]
    state: State | None
    findings: list[Finding]
    count: int


def verify(
    bundles: Sequence[IO[bytes]],
    *,
    key: str | None = None,
    earlier: Sequence[bytes] = (),
    processes: int | None = None,
    told: Told = lambda _, __: None,
) -> Verdict:
    """Checks bundles of one ledger, each continuing the one before it.

    ``key`` is a verifier key that the auditor was given apart from the bundle; ``earlier`` are
    checkpoints or receipts kept from before; ``processes`` is how many decide (``replay_on``).
    Whatever is wrong is a finding, never an exception.
    """
    findings, custodian = Findings(), Custodian()
    audit = _Audit(findings, custodian, _checkpoints(findings, earlier), key, told, processes)
    state = None
    try:
        state = audit.run(bundles)
    except Exception as error:  # noqa: BLE001 no input may bring an audit down: it is a finding
        findings.add(f"the check itself failed: {type(error).__name__}: {error}")
    last = audit.last
    manifest = last.manifest or {} if last else {}
    return Verdict(
        ledger=manifest.get("ledger", ""),
        origin=manifest.get("origin", ""),
        size=last.tiles.tree.size if last and manifest else 0,
        root=last.tiles.tree.root.hex() if last and manifest else "",
        entries=audit.entries,
        decided=state is not None,
        cosigned=last.cosigned if last else 0,
        required=custodian.required,
        keys=audit.keys,
        state=state,
        findings=findings.kept,
        count=findings.count,
    )


class _Audit:
    """One run over bundles that continue each other."""

    def __init__(
        self,
        findings: Findings,
        custodian: Custodian,
        earlier: Sequence[tuple[str, bytes]],
        pin: str | None,
        told: Told,
        processes: int | None,
    ) -> None:
        self._findings = findings
        self._custodian = custodian
        self._earlier = list(earlier)
        self._pin = pin
        self._told = told
        self._processes = processes
        self._expected = 0
        self._texts = TextCheck(findings)
        self.entries = 0
        self.last: Archive | None = None

    @property
    def keys(self) -> list[str]:
        """The keys that the events adopted."""
        return [key.text for key in self._custodian.keys]

    def run(self, bundles: Sequence[IO[bytes]]) -> State | None:
        """Checks everything; the state that all events lead to, if they begin at the first."""
        first = self._open(bundles[0], [] if bundles[1:] else self._earlier)
        if first.manifest is None:
            return None
        ledger, whole = first.manifest["ledger"], first.first == 0
        bodies = self._chained(first, bundles[1:], ledger)
        if not whole:
            self._light(ledger, first.first, bodies)
            return None
        state, corrections = State(ledger), Corrections()
        watched = _watched(bodies, corrections) if FORMER else bodies
        for progress in replay_on(ledger, watched, first.count, self._processes):
            state = progress.state
            for found in progress.findings:
                self._findings.add(found.reason, sequence=found.sequence)
            progress.findings.clear()
        self._corrected(state, corrections)
        self._head(state)
        return state

    def _corrected(self, state: State, corrections: Corrections) -> None:
        for sequence, reason in corrections.problems:
            self._findings.add(reason, sequence=sequence)
        for booked in corrections.due(state):
            reason = (
                "it was booked by a bound that was corrected since, and the difference was not "
                "booked: `accountant revalue` does that"
            )
            self._findings.add(reason, sequence=booked.event)

    def _head(self, state: State) -> None:
        """What the bundle says of the end of the ledger."""
        manifest = self.last.manifest if self.last else None
        if manifest and state.sequence and self.last and self.last.reaches_end:
            engine = state.custody.engine_at(state.last)
            if manifest["engine"] != engine:
                reason = f"the last event was decided by version {engine} of the bounds"
                self._findings.add(reason, member=MANIFEST)
            if state.sequence == manifest["tree"]["size"] and self.last.totals != totals_of(state):
                self._findings.add("the events add up to other totals", member=TOTALS)

    def _open(self, stream: IO[bytes], earlier: Sequence[tuple[str, bytes]]) -> Archive:
        self.last = Archive(stream, self._findings, self._custodian, self._texts, earlier)
        self._expected += self.last.count
        return self.last

    def _chained(
        self, archive: Archive, others: Sequence[IO[bytes]], ledger: str
    ) -> Iterator[bytes]:
        """The entries of one bundle after the other. Each continues the tree of the one before it,
        and the last one all that was kept from before.
        """
        whole, left = archive.first == 0, list(others)
        while True:
            for body in archive.entries(lambda more: self._told(more, self._expected)):
                self.entries += 1
                yield body
            archive.finish(whole and archive.reaches_end, None if left else self._pin)
            if not left:
                break
            before, stream = archive, left.pop(0)
            earlier = [("the bundle before it", before.checkpoint)]
            archive = self._open(stream, earlier if left else [*earlier, *self._earlier])
            if archive.manifest is None:
                return
            if (archive.manifest["ledger"], archive.first) != (ledger, before.end):
                reason = f"the bundle does not continue the one before it, at {before.end}"
                self._findings.add(reason)
                whole = False
        self._texts.finish(archive.end)

    def _light(self, ledger: str, first: int, bodies: Iterator[bytes]) -> None:
        """What can be checked of events without those before them."""
        before = 0
        for sequence, body in enumerate(bodies, start=first):
            try:
                event = Event.from_bytes(body)
                if (event.ledger, event.sequence) != (ledger, sequence):
                    raise ValueError(f"{event.ledger}/{event.sequence} stands here")
                if event.time < before:
                    raise ValueError("it is stamped before the one it follows")
                before = event.time
                _sums(event)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                self._findings.add(str(error), sequence=sequence)


def _watched(bodies: Iterator[bytes], corrections: Corrections) -> Iterator[bytes]:
    for body in bodies:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # the replay reports it
            corrections.take(Event.from_bytes(body))
        yield body


def _sums(event: Event) -> None:
    """Raises ValueError unless an event's total is the sum of its charges."""
    if "charges" in event.body:
        parts = map(Charge.from_json, event.body["charges"])
        added = total(parts)
        if Charge.from_json(event.body["total"]).on(added.axis) != added:
            raise ValueError("its total is not the sum of its charges")


def _checkpoints(findings: Findings, kept: Sequence[bytes]) -> list[tuple[str, bytes]]:
    """The checkpoints in files that somebody kept: themselves, or those of receipts."""
    found = []
    for number, data in enumerate(kept, 1):
        name = f"earlier checkpoint {number}"
        try:
            receipt = data.startswith(MAGIC.encode())
            found.append((name, Receipt.from_bytes(data).checkpoint if receipt else data))
        except BadNote as error:
            findings.add(str(error), member=name)
    return found
