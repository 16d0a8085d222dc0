"""The use cases that record: the only place where a transaction begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from accountant.auth.keys import LEDGER as KEYS
from accountant.auth.keys import Credentials, Key
from accountant.auth.rotation import Rotation
from accountant.budget.apply import drop_journal, keep_journal, rollback
from accountant.budget.commands import (
    ApproveGrant,
    ConfirmChange,
    Envelope,
    EraseText,
    ExpireGrant,
    Recover,
    RegisterDataset,
)
from accountant.budget.decide import SYSTEM, decide
from accountant.budget.errors import Conflict, Invalid, NotFound, Problem
from accountant.budget.proposals import Proposal
from accountant.budget.state import State
from accountant.config.logs import logger
from accountant.config.origins import Origin, refused
from accountant.config.settings import MOST_WAITING
from accountant.ledger.events import Entry, Event
from accountant.runtime.clock import ticks, wall_clock
from accountant.runtime.command_queue import CommandQueue, Waiting, settle
from accountant.runtime.dispatcher import Dispatcher, opening
from accountant.runtime.measures import Fired, Latencies, Tally
from accountant.runtime.reader import Preview, Reader, store_failures
from accountant.runtime.unit_of_work import Answer, UnitOfWork
from accountant.store.ledgers import Ledgers, Moved, StoreError, Unknown, Writing
from accountant.store.projection import Projection
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

__all__ = ["Answer", "Preview", "Service"]

_log = logger()
MAX_EXPIRIES: Final = 1_000  # Expiries in one run of the job; the rest stay reserved until the next


class Service(Reader):
    """The use cases of API, command line and jobs. Thread-safe.

    States in memory change only by folding events. After a failed commit a state is rolled back, or
    dropped and read back.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        clock: Callable[[], int] = wall_clock,
        vault: Vault | None = None,
        snapshots: Snapshots | None = None,
        ticks: Callable[[], int] = ticks,
        most_waiting: int = MOST_WAITING,
        callbacks: frozenset[Origin] = frozenset(),
        key_days: int = 0,
    ) -> None:
        super().__init__(ledgers, clock, vault, snapshots, ticks)
        latest = partial(getattr, self._clock, "latest")
        self.credentials = Credentials(ledgers, clock, key_days, latest)
        self.callbacks = callbacks
        self.console = ""
        """The address of the console, if people reach it at one that is known."""
        self.dispatcher = Dispatcher(self.writing, self.credentials)
        self._queue = CommandQueue(self.dispatcher.answer, most_waiting)
        self.tally, self.latencies = Tally(), Latencies()

    def close(self) -> None:
        """Answer the waiting commands, take no more, and close the database."""
        self._queue.close()
        try:
            self._projections.keep(now=True)
        finally:
            with suppress(TimeoutError):  # another process keeps the file: it loses nothing so
                self.ledgers.close()

    def start(self, believed: int | None, ahead: int) -> None:
        """Read all ledgers, check the clock (``Reader.start``), and enter the datasets that are not
        among those of all ledgers: that table follows from the ledgers. Failures are logged.
        """
        super().start(believed, ahead)
        for ledger in self.populations():
            try:
                self.enter_datasets(ledger)
            except Exception as error:  # noqa: BLE001 the other ledgers are entered
                reason = error.detail if isinstance(error, Problem) else repr(error)
                _log.error("datasets are not entered", population=ledger, reason=reason)

    def enter_datasets(self, ledger: str) -> int:
        """Enter the datasets of a ledger that are missing among those of all; return how many."""
        with self._up_to_date(ledger) as state:
            registered = list(state.datasets.values())
        with store_failures():
            known = self.ledgers.digests(ledger)
        missing = [one for one in registered if (one.data.digest, one.id) not in known]
        for last in (False, False, True) if missing else ():
            try:
                with self.writing(ledger) as unit:
                    for one in missing:
                        fields = {"id": one.id, "namespace": one.namespace, "name": one.name}
                        unit.enter(RegisterDataset.model_validate(fields))
                break
            except Moved:  # another service enters the same
                if last:
                    raise
        return len(missing)

    def queued(self) -> dict[str, int]:
        """Return how many commands wait in the queue of each ledger that has one now."""
        return self._queue.lengths()

    def keep_snapshots(self) -> None:
        """Write snapshots of ledgers that have grown, so that the next start folds fewer events."""
        self._projections.keep()

    def execute(self, ledger: str, asked: Envelope) -> Answer:
        """Answer one command durably. Raise Problem; then nothing was recorded."""
        self._check_callback(asked)
        with store_failures():  # raises NotFound before the command waits
            self._projections.of(ledger, opens=opening([asked]))
        self.price_ahead(ledger, asked)
        future = self._queued(ledger, asked)
        try:
            return future.result()
        finally:
            del future  # the traceback of its exception leads to this frame: break the cycle

    def _check_callback(self, asked: Envelope) -> None:
        """Raise Invalid for a callback to a host that no setting names."""
        url = getattr(asked.command, "callback", None)
        if url is not None and (reason := refused(url, self.callbacks)) is not None:
            raise Invalid("callback-not-allowed", f"the callback cannot be sent: {reason}")

    def _queued(self, ledger: str, asked: Envelope) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._queue.submit(ledger, Waiting(asked, settle(future)))
        return future

    def submit(self, ledger: str, asked: Envelope, key: str, tell: Callable[[Any], None]) -> None:
        """``execute`` without waiting: ``tell`` is called with the answer or the exception. ``key``
        is the digest of the command's API key. The command is priced (``price_ahead``) and has no
        callback, and its ledger has ``terms``. Raise Unavailable.
        """
        self._queue.submit(ledger, Waiting(asked, tell, key))

    def confirm(
        self, ledger: str, asked: Envelope, key: Key | None = None, *, recovering: bool = False
    ) -> Answer:
        """Confirm a proposal, or approve or decline a request that waits, like ``execute``. What is
        known of the ``key`` of whoever does, by default of the valid one of that name, is recorded,
        and of whoever proposed or asked. A recovery is confirmed only by what puts the vault right
        with it, and a clock by who says what it shows. Raise Problem.
        """
        known = self._with_what_is_known(ledger, asked, key, recovering=recovering)
        return self.execute(ledger, known)

    def foresee_confirming(self, ledger: str, asked: Envelope, key: Key) -> Problem | None:
        """Return why ``confirm`` would answer with a problem now; None if it would not. Nothing is
        recorded.
        """
        try:
            known = self._with_what_is_known(ledger, asked, key, recovering=False)
            state = self.state(ledger)
            decide(state, known, self.now(state))
        except Problem as problem:
            return problem
        return None

    def _with_what_is_known(
        self, ledger: str, asked: Envelope, key: Key | None, *, recovering: bool
    ) -> Envelope:
        """Return a command with what is known of the keys of both people."""
        with store_failures():
            key = key or self.credentials.named(asked.by)
            known = {"key": key}
            if isinstance(asked.command, ConfirmChange):
                proposal = self._to_confirm(ledger, asked.command.proposal, recovering=recovering)
                known["proposed_with"] = self.credentials.last_named(proposal.by, proposal.time)
            elif isinstance(asked.command, ApproveGrant):
                waits, _ = self.grant(ledger, asked.command.grant)
                known["asked_with"] = self.credentials.last_named(
                    waits.by, getattr(waits, "opened", None)
                )
        facts = {name: one.facts() for name, one in known.items() if one is not None}
        command = asked.command.model_copy(update=facts)
        return asked.asking(command)

    def _to_confirm(self, ledger: str, number: int, *, recovering: bool) -> Proposal:
        proposal, _ = self.proposal(ledger, number)
        if proposal.status == "open" and not recovering and _recovers(proposal):
            raise Conflict(
                "recovery-beside-database",
                f"proposal {number} is a recovery, which is confirmed beside the "
                f"database: accountant recover -p {ledger} --confirm {number}",
            )
        return proposal

    def confirm_key(
        self, number: int, digest: str, by: str, key: Key | None, reason: str | None = None
    ) -> Event:
        """Make the key that another person proposed; return its event. Raise Problem."""
        with store_failures():
            return self.credentials.confirm(number, digest, by, key, reason)

    def new_keys(self, by: str) -> list[Key]:
        """Return the new keys, links and sessions that somebody had a part in making."""
        with store_failures():
            ring, now = self.credentials.ring()
        return ring.new_by(by, now)

    def rotate_key(self, digest: str, hours: int) -> tuple[str, Key, Key]:
        """Make another secret for the holder of a valid key; return it, with the new key and the
        old one. Raise Problem.
        """
        with store_failures():
            return Rotation(self.credentials).rotate(digest, hours)

    def decline_key(self, number: int, by: str, reason: str) -> Event:
        """Decline a key that was proposed; return the event. Raise Problem."""
        with store_failures():
            return self.credentials.decline(number, by, reason)

    def execute_all(self, ledger: str, commands: list[Envelope]) -> list[Answer]:
        """Answer commands in order with one commit, all or nothing."""
        self.price_ahead(ledger, *commands)
        light = True
        while True:
            try:
                with self.writing(ledger, opens=opening(commands), light=light) as unit:
                    unit.upgrade(SYSTEM)
                    unit.work_out(commands)
                    return [unit.answer(asked) for asked in commands]
            except Moved:  # another process writes: decide again, after its events
                if not light:
                    raise
                light = False

    def adopt_engine(self, ledger: str, by: str) -> int:
        """Adopt this program's bounds, if that has not happened; return the ledger's size."""
        with self.writing(ledger) as unit:
            unit.upgrade(by)
            return unit.projection.state.sequence

    @contextmanager
    def writing(
        self, ledger: str, *, opens: bool = False, light: bool = False
    ) -> Iterator[UnitOfWork]:
        """Open a transaction on one ledger, up to date and locked; it commits at the end.

        Waiting for the database does not hold the projection's lock, so readers wait only while
        commands are decided and committed. A ledger that is not in memory is read back before it is
        locked: that may take minutes, in which others write. A ``light`` unit of work does not wait
        for the ledger's head if no other process has written lately: it is decided from memory, and
        appends by compare-and-swap. If another process has written after all, it raises Moved, and
        nothing has happened.
        """
        decided: Sequence[Entry] = ()
        fired: Sequence[Fired] = ()
        with store_failures():
            projection = self._projections.of(ledger, opens=opens)
            if not projection.whole:
                self._follow(projection)
            try:
                light = light and projection.alone
                beginning = self.ledgers.writing(ledger, beside=KEYS, light=light)
                with beginning as writing, projection.lock:
                    unit = self._unit(projection, writing, light=light)
                    state = projection.state
                    keep_journal(state)
                    try:
                        yield unit
                        decided, fired, ahead = unit.entries, unit.fired, unit.flush()
                        writing.commit()
                    except BaseException as error:
                        if unit.broken or not _known(error) or not rollback(state):
                            projection.drop()  # ahead of the commit: read it back
                        raise
                    finally:
                        drop_journal(state)
                    projection.committed(ahead)
                    if light:  # the commit has confirmed the state
                        self._clock.look(projection.state)
            except Unknown as unknown:
                if not self._happened(ledger, decided):
                    raise Moved(str(unknown)) from unknown
            except Moved:
                projection.moved()
                raise
        self.tally.add(ledger, decided, fired)

    def _unit(self, projection: Projection[State], writing: Writing, *, light: bool) -> UnitOfWork:
        """Return a unit of work on the stored state; if ``light`` and safe, on that in memory."""
        if light:
            time = self._clock.look(projection.state, believed=True)
            if not time.doubt and projection.alone:
                writing.believe(projection.tree, self.credentials.seen)
                return UnitOfWork(projection, writing, time)
        projection.follow(writing.head(projection.ledger), partial(writing.read, projection.ledger))
        return UnitOfWork(projection, writing, self._clock.look(projection.state))

    def _happened(self, ledger: str, decided: Sequence[Entry]) -> bool:
        """Return whether a commit of unknown outcome took place."""
        if not decided:
            return False
        with self.ledgers.writing(ledger) as writing:
            writing.head(ledger)  # once its lock is free, that transaction has ended
            stored = writing.read(ledger, decided[0].sequence, len(decided))
        return [event.body for event in stored] == [entry.body for entry in decided]

    def erase(
        self, ledger: str, by: str, event: int, fields: Sequence[str] | None, reason: str
    ) -> Answer:
        """Erase free texts of an event, by default all, and record that. Raise NotFound."""
        with self.writing(ledger) as unit:
            kept = [text.field for text in unit.writing.texts(ledger, event, event)]
            wanted = kept if fields is None else list(dict.fromkeys(fields))
            missing = [field for field in wanted if field not in kept]
            if missing or not wanted:
                named = " and no ".join(missing) or "free text"
                raise NotFound("no-such-text", f"event {event} of {ledger} has no {named} to erase")
            command = EraseText(event=event, fields=wanted, reason=reason)
            answer = unit.answer(Envelope(by, command))
            unit.writing.erase_texts(ledger, event, wanted)
        with suppress(StoreError):  # it is recorded; the job does the rest
            self.ledgers.finish_erasing()
        return answer

    def expire_due(self) -> int:
        """Charge open grants whose time has passed, end waits whose time has, at most
        ``MAX_EXPIRIES`` of each a ledger, and admit what time has let in; return how many ended.
        Raise the first Problem met, after trying every ledger.
        """
        expired, problems = 0, []
        for ledger in self.populations():
            try:
                expired += self._expire_due(ledger)
            except Problem as problem:
                problems.append(problem)
        if problems:
            raise problems[0]
        return expired

    def _expire_due(self, ledger: str) -> int:
        with self._up_to_date(ledger) as state:
            due, waits = state.grants.due(now := self.now(state), MAX_EXPIRIES), state.waiting
            late = waits.due(now, MAX_EXPIRIES)
        commands = [Envelope(SYSTEM, ExpireGrant(grant=name)) for name in due]
        commands += [Envelope(SYSTEM, one.timing_out()) for one in late]
        expired = 0
        for answer in [self._queued(ledger, asked) for asked in commands]:
            with suppress(Conflict):  # its owner, or another process, has settled it
                answer.result()
                expired += 1
        if len(waits):  # time may have let others in
            with self.writing(ledger) as unit:
                unit.admit(unit.time.stamp)
        return expired


def _recovers(proposal: Proposal) -> bool:
    return bool(proposal.command["type"] == Recover.command)


def _known(error: BaseException) -> bool:
    """Return whether an error came between two commands, and nothing was committed."""
    return isinstance(error, Problem | StoreError) and not isinstance(error, Unknown)
