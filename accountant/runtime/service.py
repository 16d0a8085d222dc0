"""Use cases. The only place where a transaction begins."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import structlog

from accountant.auth.keys import LEDGER as KEYS
from accountant.auth.keys import Credentials
from accountant.budget.accounts.epochs import Adopted, adopted_by
from accountant.budget.advice import Advice, would_fit
from accountant.budget.apply import drop_journal, keep_journal, rollback
from accountant.budget.commands import (
    AskGrant,
    Envelope,
    EraseText,
    ExpireGrant,
    OpenSparseVector,
    command_from_json,
)
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Conflict, NotFound, Problem, Unavailable
from accountant.budget.evaluate import evaluate, how_many
from accountant.budget.explain import JUDGED, Decision, Explained, explain, in_words
from accountant.budget.handlers import HANDLERS
from accountant.budget.outcome import REFUSED
from accountant.budget.request import Request, Terms, prepare, terms_of
from accountant.budget.state import Grant, Settled, State
from accountant.config.settings import MOST_WAITING
from accountant.ledger.events import Entry, Event
from accountant.runtime.clock import Doubt, TrustedClock, ticks, wall_clock
from accountant.runtime.command_queue import CommandQueue, Waiting, settle
from accountant.runtime.dispatcher import Dispatcher, opening
from accountant.runtime.prices import Pricing, takes_long
from accountant.runtime.projections import Projections
from accountant.runtime.unit_of_work import Answer, UnitOfWork
from accountant.store import Damaged
from accountant.store.ledgers import Ledgers, Moved, StoreError, Unknown, Writing
from accountant.store.projection import Diverged, Projection
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault, VaultError

__all__ = ["Answer", "Preview", "Service"]

PAGE: Final = 1_000
_POLICIES: Final = 64
"""Policies that are remembered for explaining decisions."""
_log = structlog.get_logger()
MAX_EXPIRIES: Final = 1_000
"""Expiries in one run of the job; the rest stay reserved until the next."""


class Preview(NamedTuple):
    """The decision that a request would get, and how many requests like it would be admitted."""

    request: Request
    decision: Decision
    fits: int
    sequence: int


class Service:
    """The use cases of API, command line and jobs. Thread-safe.

    States in memory change only by folding events. After a failed commit a state is rolled back, or
    dropped and read back. ``head``, ``events``, ``stream`` and ``texts`` read the database.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        clock: Callable[[], int] = wall_clock,
        vault: Vault | None = None,
        snapshots: Snapshots | None = None,
        ticks: Callable[[], int] = ticks,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self.ledgers, self.vault = ledgers, vault
        self.head, self.events = ledgers.head, ledgers.read
        self.stream, self.texts = ledgers.stream, ledgers.texts
        self.credentials = Credentials(ledgers, clock)
        self._clock = TrustedClock(clock, ticks)
        self._pricing = Pricing()
        self._adopted = lru_cache(_POLICIES)(lambda *place: adopted_by(self.event(*place)))
        self._projections = Projections(ledgers, vault, snapshots)
        self.dispatcher = Dispatcher(self.writing, self.credentials)
        self._queue = CommandQueue(self.dispatcher.answer, most_waiting)

    def close(self) -> None:
        """Answer the waiting commands, take no more, and close the database, unless another process
        keeps it: its file then stays as it is, which loses nothing.
        """
        self._queue.close()
        self._projections.keep(now=True)
        with suppress(TimeoutError):
            self.ledgers.close()

    def keep_snapshots(self) -> None:
        """Write snapshots of ledgers that have grown, so that the next start folds fewer events."""
        self._projections.keep()

    # Writing

    def execute(self, ledger: str, asked: Envelope) -> Answer:
        """Answer one command durably. Raise Problem; then nothing was recorded."""
        with _store_failures():  # raises NotFound before the command waits
            self._projections.of(ledger, opens=opening([asked]))
        self.price_ahead(ledger, asked)
        future = self._queued(ledger, asked)
        try:
            return future.result()
        finally:
            del future  # the traceback of its exception leads to this frame: break the cycle

    def _queued(self, ledger: str, asked: Envelope) -> Future[Answer]:
        future: Future[Answer] = Future()
        self._queue.submit(ledger, Waiting(asked, settle(future)))
        return future

    def submit(self, ledger: str, asked: Envelope, key: str, tell: Callable[[Any], None]) -> None:
        """``execute`` without waiting: ``tell`` is called with the answer or the exception. ``key``
        is the digest of the command's API key. The command is priced (``price_ahead``), and its
        ledger has ``terms``. Raise Unavailable.
        """
        self._queue.submit(ledger, Waiting(asked, tell, key))

    def execute_all(self, ledger: str, commands: list[Envelope]) -> list[Answer]:
        """Answer commands in order with one commit, all or nothing."""
        self.price_ahead(ledger, *commands)
        light = True
        while True:
            try:
                with self.writing(ledger, opens=opening(commands), light=light) as unit:
                    unit.upgrade(SYSTEM)
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
        commands are decided and committed. A ``light`` unit of work does not wait for the ledger's
        head if no other process has written lately: it is decided from memory, and appends by
        compare-and-swap. If another process has written after all, it raises Moved, and nothing has
        happened.
        """
        decided: Sequence[Entry] = ()
        with _store_failures():
            projection = self._projections.of(ledger, opens=opens)
            try:
                light = light and projection.alone
                beginning = self.ledgers.writing(ledger, beside=KEYS, light=light)
                with beginning as writing, projection.lock:
                    unit = self._unit(projection, writing, light=light)
                    state = projection.state
                    keep_journal(state)
                    try:
                        yield unit
                        decided, ahead = unit.entries, unit.flush()
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

    def _unit(self, projection: Projection[State], writing: Writing, *, light: bool) -> UnitOfWork:
        """Return a unit of work on the stored state; if ``light`` and safe, on that in memory."""
        if light:
            time = self._clock.look(projection.state, believed=True)
            if not time.doubt and projection.alone:
                writing.believe(projection.tree, self.credentials.seen)
                return UnitOfWork(projection, writing, time)
        projection.follow(
            writing.head(projection.ledger), partial(writing.read, projection.ledger, limit=PAGE)
        )
        return UnitOfWork(projection, writing, self._clock.look(projection.state))

    def _happened(self, ledger: str, decided: Sequence[Entry]) -> bool:
        """Return whether a commit of unknown outcome took place. Its transaction has ended once the
        head's lock is free.
        """
        if not decided:
            return False
        with self.ledgers.writing(ledger) as writing:
            writing.head(ledger)
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
        """Charge open grants whose time has passed, at most ``MAX_EXPIRIES`` a ledger; return how
        many. Raise the first Problem met, after trying every ledger.
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
            due = state.grants.due(self.now(state), MAX_EXPIRIES)
        commands = [Envelope(SYSTEM, ExpireGrant(grant=name)) for name in due]
        expired = 0
        for answer in [self._queued(ledger, asked) for asked in commands]:
            with suppress(Conflict):  # its owner, or another process, has settled it
                answer.result()
                expired += 1
        return expired

    # Reading

    @contextmanager
    def state(self, ledger: str) -> Iterator[State]:
        """Give the committed state, which later commands do not change. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            frozen = state.frozen(self.now(state))
        yield frozen

    @contextmanager
    def _up_to_date(self, ledger: str) -> Iterator[State]:
        """Give the committed state, locked. Raise NotFound for an unknown population."""
        with _store_failures():
            projection = self._projections.of(ledger)
            head = self.ledgers.head(ledger)
        with projection.lock:
            with _store_failures():
                if head != projection.seen or projection.tree != projection.seen or not head.size:
                    head = self.ledgers.head(ledger)  # again: another thread may have gone on
                    projection.follow(head, partial(self.ledgers.read, ledger))
            projection.state.people()
            yield projection.state

    def known(self, ledger: str) -> None:
        """Raise NotFound for an unknown population."""
        with self._up_to_date(ledger):
            pass

    def grant(self, ledger: str, name: str) -> tuple[Grant | Settled, int]:
        """Return a grant and the present stamp. Raise NotFound."""
        with self._up_to_date(ledger) as state:
            return state.grant(name), self.now(state)

    def open_grants(
        self, ledger: str, client: str | None, dataset: str | None, after: int, most: int
    ) -> tuple[list[Grant], int]:
        """Return at most ``most`` open grants that were reserved after event ``after``, and the
        present stamp. Raise NotFound.
        """
        with self._up_to_date(ledger) as state:
            if dataset is not None:
                state.dataset(dataset)
            return state.grants.page(client, dataset, after, most), self.now(state)

    def preview(self, ledger: str, by: str, command: AskGrant) -> Preview:
        """Return the decision that ``by`` would get for ``command`` now; record nothing."""
        asked = Envelope(by, command)
        self.price_ahead(ledger, asked)
        with self._up_to_date(ledger) as state:
            request = prepare(state, by, command, self.now(state))
            judgement = evaluate(state, request)
            fits = 0 if judgement.outcome == "block" else how_many(state, request)
            decision = in_words(state, request, judgement, asked.document)
            return Preview(request, decision, fits, state.last)

    def explain(self, ledger: str, event: Event) -> Explained:
        """Return the decision of a judged event in words. Raise NotFound for any other event."""
        with self._up_to_date(ledger) as state:
            people, custody = state.people(), state.custody
        return explain(event, self._judging(event), people, custody.engine_at(event.sequence))

    def explain_alone(self, ledger: str, sequence: int) -> tuple[Event, Explained]:
        """Like ``explain``, but read only the events that the decision depends on."""
        event = self.event(ledger, sequence)
        adopted = self._judging(event)
        terms = State(ledger)
        for row in self.ledgers.terms(ledger, sequence):
            one = Event.from_bytes(row.body)
            HANDLERS[one.type](terms, one)
        return event, explain(event, adopted, terms.people(), terms.custody.engine_at(sequence))

    def _judging(self, event: Event) -> Adopted | None:
        """Return the policy that an event was judged by. Raise NotFound if none has judged it."""
        if event.type not in JUDGED:
            raise NotFound(
                "unknown-decision", f"event {event.sequence} ({event.type}) holds no decision"
            )
        sequence = event.body.get("policy")
        return None if sequence is None else self._adopted(event.ledger, sequence)

    def would_fit(self, event: Event) -> Advice:
        """Return the request that would be granted now in place of a refused one."""
        projection = self._projections.in_memory(event.ledger)
        if projection is None or event.type != REFUSED:
            return {}
        command = command_from_json(event.body["command"])
        if not isinstance(command, AskGrant | OpenSparseVector):
            return {}
        with projection.lock:
            state, now = projection.state, self.now(projection.state)
            state = state.about(command.dataset, event.by, now)
        return would_fit(state, event.by, command, now)

    def price_ahead(self, ledger: str, *commands: Envelope) -> None:
        """Price commands before any lock is taken. Raise NotFound, Unavailable."""
        if not any(map(takes_long, commands)):
            return
        with _store_failures():
            state = self._projections.of(ledger).state
        if state.population is not None:
            terms = terms_of(state)
            for asked in self._pricing.left(terms, commands):
                self._pricing.price(terms, asked)

    def terms(self, ledger: str) -> Terms | None:
        """Return the terms of prices now; None for a ledger that is new, or not in memory."""
        projection = self._projections.in_memory(ledger)
        if projection is None or projection.state.population is None:
            return None
        return terms_of(projection.state)

    def priced(self, ledger: str, asked: Envelope) -> bool:
        """Return whether a command's price is remembered, or quick to find."""
        if not takes_long(asked):
            return True
        terms = self.terms(ledger)
        return terms is not None and not self._pricing.left(terms, [asked])

    def now(self, state: State) -> int:
        """Return the stamp that an event of ``state`` would get now."""
        return max(self._clock.look(state).stamp, state.time)

    def event(self, ledger: str, sequence: int) -> Event:
        """Return one event. Raise NotFound."""
        found = self.ledgers.read(ledger, sequence, 1)
        if not found or found[0].sequence != sequence:
            raise NotFound("unknown-event", f"ledger {ledger} has no event {sequence}")
        return Event.from_bytes(found[0].body)

    def populations(self) -> list[str]:
        """Return the names of all populations, in order."""
        return [name for name in self.ledgers.names() if name != KEYS]

    def start(self, believed: int | None, ahead: int) -> None:
        """Read all ledgers, and check the clock: more than ``ahead`` after their last stamp, and
        after it was last ``believed``, it is in doubt. Microseconds. A ledger that cannot be read
        is logged.
        """
        since = believed or 0
        for ledger in self.populations():
            try:
                with self._up_to_date(ledger) as state:
                    since = max(since, state.time)
            except Exception as error:  # noqa: BLE001 the other ledgers are read
                reason = error.detail if isinstance(error, Problem) else repr(error)
                _log.error("a ledger cannot be read", ledger=ledger, reason=reason)
        if since:
            self._clock.start(since, ahead)

    def clock_doubt(self) -> Doubt | None:
        """Return the first doubt about the clock by the ledgers in memory."""
        for projection in self._projections.all():
            with projection.lock:
                doubt = self._clock.look(projection.state, believed=True).doubt
                if projection.tree.size and doubt:
                    return doubt
        return None

    def ready(self) -> None:
        """Raise Unavailable unless grants can be given: database and clock are in order."""
        if (doubt := self.clock_doubt()) is not None:
            raise Unavailable("not-ready", doubt.problem().detail)
        try:
            self.ledgers.check()
        except StoreError as error:
            missing = any(word in str(error) for word in ("no such table", "does not exist"))
            hint = "; has `accountant migrate` run?" if missing else ""
            raise Unavailable("not-ready", f"{error}{hint}") from error


def _known(error: BaseException) -> bool:
    """Return whether an error came between two commands, and nothing was committed."""
    return isinstance(error, Problem | StoreError) and not isinstance(error, Unknown)


@contextmanager
def _store_failures() -> Iterator[None]:
    """Translate failures of the database into problems."""
    try:
        yield
    except Moved:
        raise
    except (Diverged, VaultError) as error:
        code = "ledger-diverged" if isinstance(error, Diverged) else "vault-failed"
        raise Unavailable(code, str(error)) from error
    except Damaged as error:
        raise Unavailable(
            "storage-failed",
            f"this service cannot read the ledger, and a retry does not help: {error}. Start the "
            "version of the program that wrote the event, or put the right database back",
        ) from error
    except StoreError as error:
        raise Unavailable(
            "storage-failed",
            f"the ledger could not be reached ({error}); nothing is lost: try again with the same "
            "Idempotency-Key",
        ) from error
