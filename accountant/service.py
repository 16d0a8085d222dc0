"""Use cases. The only place where a transaction begins."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from accountant.book import Book, Diverged, F
from accountant.budget.batches import OPENED
from accountant.budget.commands import (
    AdoptEngine,
    Asked,
    AskGrant,
    Command,
    EraseText,
    ExpireGrant,
    RegisterPopulation,
    Role,
)
from accountant.budget.decide import SYSTEM, Repeated, decide
from accountant.budget.decision import Decision
from accountant.budget.errors import Conflict, Invalid, NotFound, Problem, Unavailable
from accountant.budget.folding import apply
from accountant.budget.judge import judge
from accountant.budget.limits import how_many
from accountant.budget.request import Request, prepare, price_all
from accountant.budget.sealing import SALT_BYTES, Opened, places_of, seal, seal_again
from accountant.budget.state import State
from accountant.keys import CREATED, REVOKED, Key, KeyRing, key_digest, new_secret
from accountant.keys import LEDGER as KEYS
from accountant.ledger.checkpoints import Checkpoint, Known
from accountant.ledger.events import Event, EventTooLarge
from accountant.ledger.merkle import Tree
from accountant.ledger.notes import BadNote, parse
from accountant.privacy import engine as bounds
from accountant.store.ledgers import Ledgers, Stored, StoreError, Text, Writing
from accountant.store.vault import Vault, VaultError

_KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
PAGE: Final = 1_000
MAX_EXPIRIES: Final = 1_000
"""Expiries written per round; the rest stay reserved until the next."""


def wall_clock() -> int:
    """Microseconds since 1970 UTC."""
    return time.time_ns() // 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The events that a command led to, or the one that answered it the first time."""

    events: tuple[Event, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Preview:
    """What a request would be answered, and how many like it would be admitted."""

    request: Request
    decision: Decision
    fits: int
    sequence: int


class Service:
    """Everything that the doors may do. Thread-safe.

    State in memory is only ever changed by folding events. If the outcome of a commit is unknown
    the state is dropped and read back.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        clock: Callable[[], int] = wall_clock,
        vault: Vault | None = None,
    ) -> None:
        self.ledgers = ledgers
        self.vault = vault
        self._clock = clock
        self._books: dict[str, Book[State]] = {}
        self._books_lock = threading.Lock()
        self._keys = Book(KEYS, KeyRing, KeyRing.apply)

    # -- writing ----------------------------------------------------------------------------

    def execute(self, ledger: str, asked: Asked) -> Answer:
        """Answers one command durably. Raises Problem; then nothing was recorded."""
        return self.execute_all(ledger, [asked])[0]

    def execute_all(self, ledger: str, commands: list[Asked]) -> list[Answer]:
        """Answers commands in order with one commit, all or nothing.

        Nobody sees the state before the commit: events are folded in under the book's lock, and a
        state that is ahead of a failed commit is dropped. Who waits for the database does not hold
        that lock, so that readers wait only for deciding and committing.
        """
        opens = any(isinstance(asked.command, RegisterPopulation) for asked in commands)
        for asked in commands:
            for command in asked.items or [asked.command]:
                _price_ahead(self._book(ledger, opens=opens), command)
        with self.writing(ledger, opens=opens) as (writing, book):
            self._go_over(book, writing, SYSTEM)
            return [self._answer(book, writing, asked) for asked in commands]

    def adopt_engine(self, ledger: str, by: str) -> int:
        """Goes over to this program's bounds, if that has not happened; the ledger's size."""
        with self.writing(ledger) as (writing, book):
            self._go_over(book, writing, by)
            return book.tree.size

    def _go_over(self, book: Book[State], writing: Writing, by: str) -> None:
        """What is decided from here on is decided by this program's bounds, and says so."""
        if book.fold.custody.engine < bounds.CURRENT and book.fold.population is not None:
            self._answer(book, writing, Asked(by, AdoptEngine(version=bounds.CURRENT)))

    @contextmanager
    def writing(self, ledger: str, *, opens: bool = False) -> Iterator[tuple[Writing, Book[State]]]:
        """A transaction on one ledger, caught up with and held still; it commits at the end."""
        book = self._book(ledger, opens=opens)
        with _told(), self.ledgers.writing() as writing, book.lock:
            _write_up(book, writing)
            try:
                yield writing, book
                writing.commit()
            except BaseException:
                if book.tree != book.seen:
                    book.drop()  # ahead of the commit: read it back
                raise
            book.committed()

    def _answer(self, book: Book[State], writing: Writing, asked: Asked) -> Answer:
        asked, texts = _sealed(book.fold, writing, asked)
        outcome = decide(book.fold, asked, self._clock())
        if isinstance(outcome, Repeated):
            return Answer(_answered(writing, book.ledger, outcome.sequence), repeated=True)
        # What is folded and answered is what was written, to the byte.
        try:
            events = [Event.from_bytes(event.to_bytes()) for event in outcome]
        except EventTooLarge as error:
            raise Invalid("event-too-large", str(error)) from error
        if events:
            end = writing.append(events)
            try:
                book.add(events, end)
            except BaseException:
                book.drop()  # half folded
                raise
            if texts:
                kept = [Text(at, field, *text) for at, field, text in places_of(events, texts)]
                writing.keep_texts(book.ledger, kept)
        return Answer(tuple(events))

    def erase(
        self, ledger: str, by: str, event: int, fields: Sequence[str] | None, reason: str
    ) -> Answer:
        """Erases free texts of an event, all by default, and says so with an event. Raises NotFound
        if they are not there.
        """
        with self.writing(ledger) as (writing, book):
            kept = [text.field for text in writing.texts(ledger, event, event)]
            wanted = kept if fields is None else list(dict.fromkeys(fields))
            missing = [field for field in wanted if field not in kept]
            if missing or not wanted:
                named = " and no ".join(missing) or "free text"
                raise NotFound("no-such-text", f"event {event} of {ledger} has no {named} to erase")
            command = EraseText(event=event, fields=wanted, reason=reason)
            answer = self._answer(book, writing, Asked(by, command))
            writing.erase_texts(ledger, event, wanted)
        self.ledgers.finish_erasing()
        return answer

    def expire_due(self) -> int:
        """Charges open grants whose time has passed, at most ``MAX_EXPIRIES`` a ledger.

        Returns how many. Raises the first Problem met, after trying every ledger.
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
        with self.state(ledger) as state:
            due = [grant.id for grant in state.open.values() if grant.due(self.now(state))]
        expired = 0
        for grant in due[:MAX_EXPIRIES]:
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
            with _told():
                self._read_up(book)
            book.fold.people()
            yield book.fold

    def known(self, ledger: str) -> None:
        """Raises NotFound for an unknown population."""
        with self.state(ledger):
            pass

    def preview(self, ledger: str, by: str, command: AskGrant) -> Preview:
        """The decision that ``by`` would get for ``command`` now; records nothing."""
        _price_ahead(self._book(ledger), command)
        with self.state(ledger) as state:
            request = prepare(state, by, command)
            decision = judge(state, request)
            fits = 0 if decision.outcome == "block" else how_many(state, request)
            return Preview(request, decision, fits, state.last)

    def now(self, state: State) -> int:
        """The stamp that an event of ``state`` would get now."""
        return max(self._clock(), state.time)

    def head(self, ledger: str) -> Tree:
        """Where the ledger says that it ends."""
        return self.ledgers.head(ledger)

    def events(self, ledger: str, first: int, limit: int) -> list[Stored]:
        """Stored events from ``first`` on."""
        return self.ledgers.read(ledger, first, limit)

    def stream(self, ledger: str) -> Iterator[Stored]:
        """All stored events."""
        return self.ledgers.stream(ledger)

    def event(self, ledger: str, sequence: int) -> Event:
        """One event. Raises NotFound."""
        found = self.ledgers.read(ledger, sequence, 1)
        if not found or found[0].sequence != sequence:
            raise NotFound("unknown-event", f"ledger {ledger} has no event {sequence}")
        return Event.from_bytes(found[0].body)

    def texts(self, ledger: str, first: int, last: int) -> list[Text]:
        """The free texts of events, as far as they are not erased."""
        return self.ledgers.texts(ledger, first, last)

    def populations(self) -> list[str]:
        """All populations, in order."""
        return [name for name in self.ledgers.names() if name != KEYS]

    def ready(self) -> None:
        """Raises Unavailable, with the reason, unless the database can be read and written to."""
        try:
            self.ledgers.check()
        except StoreError as error:
            hint = "; has `accountant migrate` run?" if "no such table" in str(error) else ""
            raise Unavailable("not-ready", f"{error}{hint}") from error

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
        with self._keys.lock:
            return self._read_up(self._keys).find(secret)

    def keys(self) -> list[Key]:
        """All valid keys."""
        with self._keys.lock:
            ring = self._read_up(self._keys)
            return sorted(ring.by_digest.values(), key=lambda key: key.name)

    def _key_event(self, kind: str, by: str, body: dict[str, str], *, exists: bool) -> None:
        with self.ledgers.writing() as writing, self._keys.lock:
            ring = _write_up(self._keys, writing)
            there = ring.named(body["name"])
            if there and not exists:
                raise Conflict("key-exists", f"a key is called {body['name']!r}; revoke it first")
            if exists and not there:
                raise NotFound("unknown-key", f"no valid key is called {body['name']!r}")
            now = max(self._clock(), ring.time)
            writing.append([Event(KEYS, ring.sequence, kind, now, by, dict(body))])
            writing.commit()

    # -- the state in memory ----------------------------------------------------------------

    def _book(self, ledger: str, *, opens: bool = False) -> Book[State]:
        """The book of a ledger; names that nothing was ever registered under get none."""
        if ledger not in self._books and not opens:
            with _told():
                head = self.ledgers.head(ledger)
                if head.size == 0 and not self._known(ledger):
                    State(ledger).people()
        with self._books_lock, _told():
            if ledger not in self._books:
                known = self._known(ledger)
                self._books[ledger] = Book(ledger, lambda: State(ledger), apply, known)
            return self._books[ledger]

    def _known(self, ledger: str) -> tuple[Known, ...]:
        """The heads that were signed or published: a database that does not continue them is not
        written to.
        """
        if self.vault is None:
            return ()
        known = self.vault.known(ledger)
        if (last := self.ledgers.last_signed(ledger)) is not None:
            self.vault.holds(ledger)
            try:
                head = Checkpoint.from_text(parse(last.note).text)
            except BadNote as error:
                raise StoreError(f"checkpoint {last.number} is damaged: {error}") from error
            known += (Known(head.size, head.root, f"checkpoint {last.number} of the database"),)
        return known

    def _read_up(self, book: Book[F]) -> F:
        book.follow(
            self.ledgers.head(book.ledger), lambda first: self.ledgers.read(book.ledger, first)
        )
        return book.fold


def _sealed(state: State, writing: Writing, asked: Asked) -> tuple[Asked, dict[str, Opened]]:
    """``asked`` with its free texts sealed; on a retry as they were the first time."""
    before = state.answers.get(asked.by, asked.key) if asked.key else None
    if not before:
        return seal(state, asked, lambda: secrets.token_bytes(SALT_BYTES))
    stored = _answered(writing, state.ledger, before[1])
    kept = writing.texts(state.ledger, stored[0].sequence, stored[-1].sequence)
    texts = {(t.sequence, t.field): Opened(t.salt, t.text) for t in kept}
    return seal_again(state, asked, stored, texts), {}


def _answered(writing: Writing, ledger: str, sequence: int) -> tuple[Event, ...]:
    """The event that answered a command, with the items of a batch behind it."""
    [first] = writing.read(ledger, sequence, 1)
    event = Event.from_bytes(first.body)
    if event.type != OPENED:
        return (event,)
    items = writing.read(ledger, sequence + 1, event.body["command"]["size"])
    return (event, *(Event.from_bytes(item.body) for item in items))


def _price_ahead(book: Book[State], command: Command) -> None:
    """Prices what is asked before any lock is taken: a new mechanism takes a millisecond, a plan
    many; remembered, it costs nothing under the lock. What is priced here decides nothing.
    """
    people, orders = book.fold.population, book.fold.orders
    if people is not None:
        mechanisms = getattr(command, "mechanisms", None) or ()
        price_all(mechanisms, people.relation, orders, book.fold.custody.engine)


def _write_up(book: Book[F], writing: Writing) -> F:
    """Folds in what other processes have appended; the head cannot move meanwhile."""
    book.follow(writing.head(book.ledger), lambda first: writing.read(book.ledger, first, PAGE))
    return book.fold


@contextmanager
def _told() -> Iterator[None]:
    """Turns failures of the database into what the caller is told."""
    try:
        yield
    except Diverged as error:
        raise Unavailable("ledger-diverged", str(error)) from error
    except VaultError as error:
        raise Unavailable("vault-failed", str(error)) from error
    except StoreError as error:
        raise Unavailable(
            "storage-failed",
            f"the ledger could not be reached ({error}); nothing is lost: try again with the same "
            "Idempotency-Key",
        ) from error
