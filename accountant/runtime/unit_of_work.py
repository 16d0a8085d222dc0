"""A unit of work: commands decided one after another within one transaction on one ledger.

What they lead to is appended and committed together. Nobody sees the state before the commit:
events are folded in under the projection's lock, and what a failed commit leaves is taken back.

In a light unit the transaction has not begun yet, for it is believed to be known where the ledger
ends. It begins as soon as something is read of the database, or decided that cannot be taken back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from accountant.budget.apply import Happened, apply
from accountant.budget.batches import OPENED
from accountant.budget.commands import AcceptTime, AdoptEngine, Envelope
from accountant.budget.decide import Repeated, decide, repeated
from accountant.budget.errors import Invalid, Problem
from accountant.budget.outcome import Outcome
from accountant.budget.request import work_out
from accountant.budget.sealing import SALT_BYTES, Opened, places_of, seal, seal_again
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event, EventTooLarge
from accountant.ledger.merkle import Tree
from accountant.privacy import engine as bounds
from accountant.runtime.clock import Reading
from accountant.runtime.projections import Fold
from accountant.store.ledgers import Text, Writing
from accountant.store.projection import Projection

_SALTS: Final = 32
"""Salts drawn at once: at each draw other threads run, and whoever decides waits for its turn."""
_SEALED: Final = b'"sealed":'
"""Stands in the bytes of every event with a sealed text: within a text the quotes would have
backslashes.
"""


def _drawn() -> Iterator[bytes]:
    while True:
        salts = secrets.token_bytes(_SALTS * SALT_BYTES)
        for first in range(0, len(salts), SALT_BYTES):
            yield salts[first : first + SALT_BYTES]


class Answer(NamedTuple):
    """The events that a command led to, or the one that answered it the first time."""

    ledger: str
    entries: tuple[Entry, ...]
    repeated: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, read."""
        return tuple(Event.of_entry(self.ledger, entry) for entry in self.entries)


@dataclass(slots=True)
class UnitOfWork:
    """An open transaction on ``book``, which is caught up with the database and held still."""

    book: Projection[Fold]
    writing: Writing
    reading: Reading
    """The clock, looked at once: what is committed together happens at once."""
    entries: list[Entry] = field(default_factory=list)
    """What was decided and is not appended yet."""
    texts: list[Text] = field(default_factory=list)
    salts: Iterator[bytes] = field(default_factory=_drawn)
    broken: bool = False
    """The state may be half changed: it has to be read back."""
    answered: dict[int, tuple[Entry, ...]] = field(default_factory=dict)
    """What was read to answer again, by sequence: events never change."""

    @property
    def state(self) -> State:
        """The state with all that was decided in this round."""
        return self.book.fold.state

    def answer(self, asked: Envelope) -> Answer:
        """Decides and folds in. Raises Problem; then nothing has changed."""
        try:
            return self._answer(asked)
        except Problem:
            self.writing.begin()  # nobody is refused by what is only believed
            raise

    def _answer(self, asked: Envelope) -> Answer:
        state, ledger = self.state, self.book.ledger
        asked, opened = self._sealed(state, asked)
        try:
            outcome = decide(state, asked, self._stamp(state, asked))
        except EventTooLarge as error:
            raise Invalid("event-too-large", str(error)) from error
        if isinstance(outcome, Repeated):
            return Answer(ledger, self._answered(outcome.sequence), repeated=True)
        if any(isinstance(one.change, Happened) for one in outcome):
            self.writing.begin()  # it cannot be taken back
        self._fold(outcome)
        entries = [one.entry for one in outcome]
        self.entries += entries
        if opened and outcome:
            places = places_of(entries, opened)
            self.texts += [Text(sequence, field, *text) for sequence, field, text in places]
        return Answer(ledger, tuple(entries))

    def _fold(self, outcome: Sequence[Outcome]) -> None:
        self.broken = True
        for one in outcome:
            apply(self.state, one)
        self.broken = False

    def work_out(self, commands: Iterable[Envelope]) -> None:
        """Work out, for all, what does not depend on the order in which they are decided."""
        if self.state.population is not None:
            flat = (command for one in commands for command in (one.items or (one.command,)))
            work_out(self.state, flat)

    def answer_all(self, commands: Sequence[Envelope]) -> list[Answer]:
        """``answer`` for all. Raises the first Problem; those before it are decided."""
        return [self.answer(asked) for asked in commands]

    def upgrade(self, by: str) -> None:
        """What is decided from here on is decided by this program's bounds, and says so."""
        state = self.book.fold.state
        if state.custody.engine < bounds.CURRENT and state.population is not None:
            self.answer(Envelope(by, AdoptEngine(version=bounds.CURRENT)))

    def flush(self) -> Tree:
        """Appends what was decided; where the ledger ends then."""
        if not self.entries:
            return self.book.tree
        return self.writing.append(self.book.ledger, self.entries, self.texts)

    def _stamp(self, state: State, asked: Envelope) -> int:
        """When it is decided. Raises Unavailable if nobody knows, and that bears on the answer."""
        if isinstance(asked.command, AcceptTime):
            return asked.command.stamp
        if self.reading.doubt and repeated(state, asked) is None:
            self.reading.admit(asked)
        return self.reading.stamp

    def _sealed(self, state: State, asked: Envelope) -> tuple[Envelope, dict[str, Opened]]:
        """``asked`` with its free texts sealed; on a retry as they were the first time."""
        before = state.idempotency.get(asked.by, asked.key) if asked.key else None
        if not before:
            return seal(state, asked, self.salts.__next__)
        entries = self._answered(before[1])
        texts = {(t.sequence, t.field): Opened(t.salt, t.text) for t in self._kept(entries)}
        stored = [Event.of_entry(state.ledger, entry) for entry in entries]
        return seal_again(state, asked, stored, texts), {}

    def _kept(self, entries: Sequence[Entry]) -> Sequence[Text]:
        """The free texts of these events; nothing is read where none was ever sealed."""
        if not any(_SEALED in entry.body for entry in entries):
            return ()
        first, last = entries[0].sequence, entries[-1].sequence
        kept = [text for text in self.texts if first <= text.sequence <= last]
        return kept or self.writing.texts(self.book.ledger, first, last)

    def _answered(self, sequence: int) -> tuple[Entry, ...]:
        """The event that answered a command, with the items of a batch behind it."""
        if sequence not in self.answered:
            [first] = found = self._stored(sequence, 1)
            if first.type == OPENED:
                size = orjson.loads(first.body)["command"]["size"]
                found += self._stored(sequence + 1, size)
            self.answered[sequence] = tuple(found)
        return self.answered[sequence]

    def _stored(self, sequence: int, count: int) -> list[Entry]:
        """Events that are stored, or about to be."""
        if self.entries and sequence >= self.entries[0].sequence:
            place = sequence - self.entries[0].sequence
            return self.entries[place : place + count]
        stored = self.writing.read(self.book.ledger, sequence, count)
        return [Entry.read(one.body) for one in stored]
