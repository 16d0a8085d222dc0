"""Use cases. The only place where a transaction begins."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from accountant.budget.commands import Asked, AskGrant, ExpireGrant, Role
from accountant.budget.decide import SYSTEM, Repeated, decide, prepare
from accountant.budget.errors import Conflict, Invalid, NotFound, Problem, Unavailable
from accountant.budget.judge import Decision, Request, how_many, judge
from accountant.budget.state import State
from accountant.keys import CREATED, LEDGER, REVOKED, Key, KeyRing, key_digest, new_secret
from accountant.ledger.chain import EMPTY, link
from accountant.ledger.events import Event, EventTooLarge
from accountant.store.ledgers import Head, Ledgers, Stored, StoreError, Writing

_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
MAX_EXPIRIES: Final = 1_000
"""Expiries written per round; the rest stay charged as reserved until the next."""


def wall_clock() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The events that a command led to, or the one that answered it the first time."""

    events: tuple[Event, ...]
    repeated: bool = False


class Diverged(StoreError):
    """The database does not continue the ledger that this process has seen."""

    def __init__(self, ledger: str, sequence: int) -> None:
        super().__init__(
            f"ledger {ledger} does not continue what this service has seen up to event "
            f"{sequence - 1}: it was restored from a backup or rewritten. Nothing is written until "
            "somebody has looked at it and restarted the service"
        )


@dataclass(slots=True)
class _Book:
    """The state of one ledger and the last link that it was folded from, guarded by a lock."""

    state: State
    link: bytes = EMPTY
    lock: threading.RLock = field(default_factory=threading.RLock)

    def drop(self) -> None:
        """Forgets what is in memory; it is read back when next asked for."""
        self.state, self.link = State(self.state.ledger), EMPTY

    def follow(self, head: Head, read: Callable[[int], Iterable[Stored]]) -> None:
        """Folds in what other processes have appended, up to ``head``, checking every link.

        Raises Diverged if the database went back or another way, StoreError if it is damaged.
        """
        seen = self.state.sequence
        if head.sequence < seen or (head.sequence == seen and head.link != self.link):
            raise Diverged(self.state.ledger, seen)
        while self.state.sequence < head.sequence:
            before = self.state.sequence
            for stored in islice(read(before), head.sequence - before):
                self._fold(stored, seen)
            if self.state.sequence == before:
                raise StoreError(f"ledger {self.state.ledger} ends before its head")

    def _fold(self, stored: Stored, seen: int) -> None:
        ledger, number = self.state.ledger, stored.sequence
        expected = link(self.link, stored.body)
        if stored.link != expected:
            if number == seen and seen > 0:
                raise Diverged(ledger, seen)
            raise StoreError(f"ledger {ledger} is damaged: the chain breaks at event {number}")
        try:
            self.state.apply(Event.from_bytes(stored.body))
        except Exception as error:
            self.drop()
            raise StoreError(f"event {number} of {ledger} cannot be folded: {error}") from error
        self.link = expected


@dataclass(frozen=True, slots=True)
class Preview:
    """What a request would be answered, and how many like it would be admitted (None: no end)."""

    request: Request
    decision: Decision
    fits: int | None
    sequence: int


class Service:
    """Everything that the doors may do. Thread-safe.

    State in memory is only ever changed by folding events. If the outcome of a commit is unknown
    the state is dropped and read back.
    """

    def __init__(self, ledgers: Ledgers, clock: Callable[[], int] = wall_clock) -> None:
        self._ledgers = ledgers
        self._clock = clock
        self._books: dict[str, _Book] = {}
        self._books_lock = threading.Lock()
        self._keys = KeyRing()
        self._keys_lock = threading.Lock()

    # -- writing ----------------------------------------------------------------------------

    def execute(self, ledger: str, asked: Asked) -> Answer:
        """Answers one command durably. Raises Problem; then nothing was recorded."""
        return self.execute_all(ledger, [asked])[0]

    def execute_all(self, ledger: str, commands: list[Asked]) -> list[Answer]:
        """Answers commands in order with one commit, all or nothing.

        Nobody sees the state before the commit: events are folded in under the book's lock, and a
        state that is ahead of a failed commit is dropped.
        """
        book = self._book(ledger)
        with book.lock:
            committed = None
            try:
                with self._ledgers.writing() as writing:
                    book.follow(
                        writing.head(ledger), lambda first: writing.read(ledger, first, 1_000)
                    )
                    committed = book.state.sequence
                    return [self._answer(book, writing, asked) for asked in commands]
            except Diverged as error:  # what is in memory is the witness: keep it
                raise _as_problem(error) from error
            except BaseException as error:
                if not (isinstance(error, Problem) and book.state.sequence == committed):
                    book.drop()  # ahead of the commit, or half folded: read it back
                raise _as_problem(error) from error

    def _answer(self, book: _Book, writing: Writing, asked: Asked) -> Answer:
        outcome = decide(book.state, asked, self._clock())
        if isinstance(outcome, Repeated):
            [stored] = writing.read(book.state.ledger, outcome.sequence, 1)
            return Answer((Event.from_bytes(stored.body),), repeated=True)
        # What is folded and answered is what was written, to the byte.
        events = [Event.from_bytes(event.to_bytes()) for event in outcome]
        if events:
            book.link = writing.append(events).link
        for event in events:
            book.state.apply(event)
        return Answer(tuple(events))

    def expire_due(self) -> int:
        """Charges every open grant whose time has passed; returns how many."""
        expired = 0
        for ledger in self.populations():
            with self.state(ledger) as state:
                due = [g.id for g in state.open.values() if g.due(self.now(state))]
            for grant in due[: MAX_EXPIRIES - expired]:
                try:
                    self.execute(ledger, Asked(SYSTEM, ExpireGrant(grant=grant)))
                    expired += 1
                except Conflict:
                    pass  # settled by its owner, or by another process, in the meantime
        return expired

    # -- reading ----------------------------------------------------------------------------

    @contextmanager
    def state(self, ledger: str) -> Iterator[State]:
        """The committed state, held still. Raises NotFound for an unknown population."""
        book = self._book(ledger)
        with book.lock:
            try:
                head = self._ledgers.head(ledger)
                book.follow(head, lambda first: self._ledgers.read(ledger, first))
            except StoreError as error:
                raise _as_problem(error) from error
            book.state.people()
            yield book.state

    def preview(self, ledger: str, by: str, command: AskGrant) -> Preview:
        """The decision that ``by`` would get for ``command`` now; records nothing."""
        with self.state(ledger) as state:
            request = prepare(state, by, command)
            decision = judge(state, request)
            fits = 0 if decision.outcome == "block" else how_many(state, request)
            return Preview(request, decision, fits, state.last)

    def now(self, state: State) -> int:
        """The stamp that an event of ``state`` would get now."""
        return max(self._clock(), state.time)

    def head(self, ledger: str) -> Head:
        """Where the ledger says that it ends."""
        return self._ledgers.head(ledger)

    def events(self, ledger: str, first: int, limit: int) -> list[Stored]:
        """Stored events from ``first`` on."""
        return self._ledgers.read(ledger, first, limit)

    def stream(self, ledger: str) -> Iterator[Stored]:
        """All stored events."""
        return self._ledgers.stream(ledger)

    def event(self, ledger: str, sequence: int) -> Event:
        """One event. Raises NotFound."""
        found = self._ledgers.read(ledger, sequence, 1)
        if not found or found[0].sequence != sequence:
            raise NotFound("unknown-event", f"ledger {ledger} has no event {sequence}")
        return Event.from_bytes(found[0].body)

    def populations(self) -> list[str]:
        """All populations, in order."""
        return [name for name in self._ledgers.names() if name != LEDGER]

    def ready(self) -> None:
        """Raises Unavailable, with the reason, unless the service can decide."""
        try:
            for ledger in self.populations():
                with self.state(ledger):
                    pass
        except StoreError as error:
            raise Unavailable("not-ready", f"{error}; has `accountant migrate` run?") from error

    # -- keys -------------------------------------------------------------------------------

    def create_key(self, name: str, role: Role, by: str) -> str:
        """Creates a key and returns it, the only time that it is ever shown. Raises Invalid for a
        name that is no name, Conflict for one that is taken.
        """
        if not _KEY_NAME.fullmatch(name):
            raise Invalid(
                "malformed-key-name",
                "a key's name has 1 to 64 letters, digits, dots, dashes, underscores or @, and "
                "begins with a letter or digit",
            )
        secret = new_secret()
        self._key_event(
            CREATED, by, {"name": name, "role": role, "digest": key_digest(secret)}, exists=False
        )
        return secret

    def revoke_key(self, name: str, by: str) -> None:
        """Ends a key's life. Raises NotFound."""
        self._key_event(REVOKED, by, {"name": name}, exists=True)

    def authenticate(self, secret: str) -> Key | None:
        """Whose key this is. Keys made or revoked by another process count at once."""
        with self._keys_lock:
            self._read_keys()
            return self._keys.find(secret)

    def keys(self) -> list[Key]:
        """All valid keys."""
        with self._keys_lock:
            self._read_keys()
            return sorted(self._keys.by_digest.values(), key=lambda key: key.name)

    def _key_event(self, kind: str, by: str, body: dict[str, str], *, exists: bool) -> None:
        with self._keys_lock, self._ledgers.writing() as writing:
            for stored in writing.read(LEDGER, self._keys.sequence, 10**9):
                self._keys.apply(Event.from_bytes(stored.body))
            there = self._keys.named(body["name"])
            if there and not exists:
                raise Conflict("key-exists", f"a key is called {body['name']!r}; revoke it first")
            if exists and not there:
                raise NotFound("unknown-key", f"no valid key is called {body['name']!r}")
            now = max(self._clock(), self._keys.time)
            writing.append([Event(LEDGER, self._keys.sequence, kind, now, by, dict(body))])

    def _read_keys(self) -> None:
        for stored in self._ledgers.stream(LEDGER, self._keys.sequence):
            self._keys.apply(Event.from_bytes(stored.body))

    # -- the state in memory ----------------------------------------------------------------

    def _book(self, ledger: str) -> _Book:
        with self._books_lock:
            return self._books.setdefault(ledger, _Book(State(ledger)))


def _as_problem(error: BaseException) -> BaseException:
    """What the caller is told; anything unforeseen stays as it is."""
    if isinstance(error, Diverged):
        return Unavailable("ledger-diverged", str(error))
    if isinstance(error, StoreError):
        return Unavailable(
            "storage-failed",
            f"the ledger could not be reached ({error}); nothing is lost: try again with the same "
            "Idempotency-Key",
        )
    if isinstance(error, EventTooLarge):
        return Invalid("event-too-large", str(error))
    return error
