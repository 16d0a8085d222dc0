"""A unit of work: commands decided one after another within one transaction on one ledger.

Their events are appended and committed together. Events are folded in under the projection's lock,
so no reader sees the state before the commit, and a failed commit is rolled back.

A light unit of work decides from memory, and its transaction has not begun yet. It begins before a
read of the database, a refusal, or an outcome that cannot be rolled back.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from accountant.budget.accounts.epochs import Adopted
from accountant.budget.apply import apply
from accountant.budget.batches import OPENED, REFUSED
from accountant.budget.commands import (
    AdoptEngine,
    Envelope,
    RegisterDataset,
    command_from_json,
)
from accountant.budget.decide import (
    Repeated,
    accepted,
    admission,
    before_of,
    check_size,
    decide,
    repeated,
)
from accountant.budget.decide.datasets import check_elsewhere, check_parents, check_spellings
from accountant.budget.errors import Invalid, Problem
from accountant.budget.outcome import PROPOSED, REGISTRATIONS, WAITING, Outcome
from accountant.budget.population.naming import normal_form
from accountant.budget.population.population import Population
from accountant.budget.reading import Happened
from accountant.budget.request import work_out
from accountant.budget.sealing import SALT_BYTES, Opened, places_of, seal, seal_again
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event, EventTooLarge
from accountant.ledger.merkle import Tree
from accountant.privacy import engine as bounds
from accountant.runtime.clock import CheckedTime
from accountant.runtime.measures import Fired
from accountant.store.ledgers import Callback, Text, Use, Writing
from accountant.store.projection import Projection

_SALTS: Final = 32  # Salts drawn at once: at each draw other threads run, and this one waits
_ENTERED: Final = (*REGISTRATIONS, PROPOSED)
"""The events that may register a dataset, or propose to."""
_SEALED: Final = b'"sealed":'
"""In the bytes of every event with a sealed text, and of no other: texts have escaped quotes."""


def _drawn() -> Iterator[bytes]:
    while True:
        salts = secrets.token_bytes(_SALTS * SALT_BYTES)
        for first in range(0, len(salts), SALT_BYTES):
            yield salts[first : first + SALT_BYTES]


def _too_large(asked: Envelope, error: EventTooLarge) -> str:
    """Return what to do about an event that has no room for the answer."""
    if not isinstance(asked.command, RegisterDataset):
        return str(error)
    return (
        f"{error}; the event lists all datasets that name {asked.command.id!r} as a parent, and "
        "whose use is charged: register some of them without this parent first, and with it again "
        "afterwards"
    )


class _Ahead(NamedTuple):
    """Sealed commands, by the identity of the open ones, and the terms that they were sealed on."""

    population: Population
    adopted: Adopted | None
    sealed: dict[int, tuple[Envelope, dict[str, Opened]]]

    def take(self, state: State, asked: Envelope) -> tuple[Envelope, dict[str, Opened]] | None:
        """Return what was sealed for ``asked``, if the terms are the same still."""
        same = self.adopted is state.adopted and self.population is state.population
        return self.sealed.pop(id(asked), None) if same else None


class Answer(NamedTuple):
    """The events of a command, now or when it was first answered."""

    entries: tuple[Entry, ...]
    repeated: bool = False

    @property
    def events(self) -> tuple[Event, ...]:
        """The events, parsed."""
        return tuple(Event.from_bytes(entry.body) for entry in self.entries)


@dataclass(slots=True)
class UnitOfWork:
    """An open transaction on ``projection``, which is up to date and locked."""

    projection: Projection[State]
    writing: Writing
    time: CheckedTime  # The clock, read once: commands that are committed together have one stamp
    entries: list[Entry] = field(default_factory=list)  # Decided, and not appended yet
    fired: list[Fired] = field(default_factory=list)  # On each of them
    texts: list[Text] = field(default_factory=list)
    salts: Iterator[bytes] = field(default_factory=_drawn)
    broken: bool = False  # The state may be half changed: it must be read back
    answered: dict[int, tuple[Entry, ...]] = field(default_factory=dict)  # Read for retries
    ahead: _Ahead | None = None  # What was sealed before the first command is decided

    @property
    def state(self) -> State:
        """The state, with the events of this unit of work."""
        return self.projection.state

    def answer(self, asked: Envelope) -> Answer:
        """Decide a command and fold its events in. Raise Problem; then nothing has changed."""
        try:
            return self._answer(asked)
        except Problem:
            self.writing.lock()  # no refusal rests on a state that is only believed
            raise

    def _answer(self, asked: Envelope) -> Answer:
        state = self.state
        if isinstance(asked.command, RegisterDataset):
            check_size(asked)  # before names are read
            check_spellings(asked.command)
        asked, opened = self._sealed(state, asked)
        stamp = self._stamp(state, asked)
        self.admit(before_of(state, asked, stamp))
        try:
            outcome = decide(state, asked, stamp)
        except EventTooLarge as error:
            raise Invalid("event-too-large", _too_large(asked, error)) from error
        if isinstance(outcome, Repeated):
            return Answer(self._answered(outcome.sequence), repeated=True)
        if not outcome:
            return Answer(())
        if any(isinstance(one.change, Happened) for one in outcome):
            self.writing.lock()  # it cannot be rolled back
        last = outcome[-1].entry
        if last.type in _ENTERED:
            self._enter(last)
        elif last.type == WAITING:
            self._keep_callback(asked, last)
        entries = self._take(outcome)
        self.admit(stamp)
        if opened:
            places = places_of(entries, opened)
            self.texts += [Text(sequence, field, *text) for sequence, field, text in places]
        return Answer(tuple(entries))

    def admit(self, stamp: int) -> None:
        """Admit the requests that wait and fit at a stamp: what time, or the last event, let in."""
        while (one := admission(self.state, stamp)) is not None:
            self._take([one])

    def _take(self, outcomes: Sequence[Outcome]) -> list[Entry]:
        """Fold outcomes in, and return their entries."""
        self.broken, state = True, self.state
        for one in outcomes:
            apply(state, one)
        self.broken = False
        entries = [one.entry for one in outcomes]
        self.entries += entries
        self.fired += [one.fired for one in outcomes]
        return entries

    def _enter(self, entry: Entry) -> None:
        """Enter the dataset that an event registers; of one that it proposes, only check ``also``.
        Raise as ``enter``, and Conflict if a parent would be read as other data.
        """
        command = command_from_json(orjson.loads(entry.body)["command"])
        if isinstance(command, RegisterDataset):
            check_parents(self.state, command)
            self.enter(command, proposed=entry.type == PROPOSED)

    def _keep_callback(self, asked: Envelope, entry: Entry) -> None:
        """Keep, in the same commit, where to tell what becomes of a request that waits."""
        url = getattr(asked.command, "callback", None)
        if url is not None:
            self.writing.keep_callback(self.projection.ledger, Callback(entry.sequence, url))

    def enter(self, command: RegisterDataset, *, proposed: bool = False) -> None:
        """Enter a dataset where all ledgers see which data are registered. Raise Conflict if others
        have the same data and the command does not say so, Moved if another was first.
        """
        data, mine = normal_form(command.namespace, command.name), self.projection.ledger
        uses = self.writing.uses(data.digest)
        check_elsewhere(self.state, command, [str(use) for use in uses if use.ledger != mine])
        if not proposed and (use := Use(mine, command.id)) not in uses:
            self.writing.enter_use(data.digest, len(uses), use)

    def work_out(self, commands: Sequence[Envelope]) -> None:
        """Compute for all commands what does not depend on the order in which they are decided."""
        state = self.state
        if state.population is not None:
            work_out(state, [one for asked in commands for one in asked.items or (asked.command,)])
            self.ahead = _Ahead(state.population, state.adopted, {})
            for asked in commands:
                try:
                    sealed = seal(state, asked, self.salts.__next__)
                    _ = sealed[0].canonical
                except (Problem, ValueError):
                    continue  # it is told to whoever asked, when that is decided
                self.ahead.sealed[id(asked)] = sealed

    def upgrade(self, by: str) -> None:
        """Adopt this program's bounds, by an event, unless the ledger has them."""
        state = self.projection.state
        if state.custody.engine < bounds.CURRENT and state.population is not None:
            self.answer(Envelope(by, AdoptEngine(version=bounds.CURRENT)))

    def flush(self) -> Tree:
        """Append the events that were decided; return the ledger's new head."""
        if not self.entries:
            return self.projection.tree
        return self.writing.append(self.projection.ledger, self.entries, self.texts)

    def _stamp(self, state: State, asked: Envelope) -> int:
        """Return a command's stamp. Raise Unavailable if it needs a clock that is not in doubt."""
        if (shown := accepted(asked.command)) is not None:
            return shown
        if self.time.doubt and repeated(state, asked) is None:
            self.time.admit(asked)
        return self.time.stamp

    def _sealed(self, state: State, asked: Envelope) -> tuple[Envelope, dict[str, Opened]]:
        """Return ``asked`` with its free texts sealed, in a retry as they were the first time."""
        before = state.idempotency.get(asked.by, asked.key) if asked.key else None
        if not before:
            sealed = self.ahead.take(state, asked) if self.ahead else None
            return sealed or seal(state, asked, self.salts.__next__)
        entries = self._answered(before[1])
        texts = {(t.sequence, t.field): Opened(t.salt, t.text) for t in self._kept(entries)}
        stored = [Event.from_bytes(entry.body) for entry in entries]
        return seal_again(state, asked, stored, texts), {}

    def _kept(self, entries: Sequence[Entry]) -> Sequence[Text]:
        """Return the free texts of events; nothing is read if none was sealed."""
        if not any(_SEALED in entry.body for entry in entries):
            return ()
        first, last = entries[0].sequence, entries[-1].sequence
        kept = [text for text in self.texts if first <= text.sequence <= last]
        return kept or self.writing.texts(self.projection.ledger, first, last)

    def _answered(self, sequence: int) -> tuple[Entry, ...]:
        """Return the event that answered a command; the items of a batch after it, and the parts of
        a refused one before it.
        """
        if sequence not in self.answered:
            [first] = found = self._stored(sequence, 1)
            if first.type == OPENED:
                size = orjson.loads(first.body)["command"]["size"]
                found += self._stored(sequence + 1, size)
            elif first.type == REFUSED and (parts := orjson.loads(first.body).get("parts")):
                found = [*self._stored(sequence - parts, parts), first]
            self.answered[sequence] = tuple(found)
        return self.answered[sequence]

    def _stored(self, sequence: int, count: int) -> list[Entry]:
        """Return events that are stored, or decided in this unit of work."""
        if self.entries and sequence >= self.entries[0].sequence:
            place = sequence - self.entries[0].sequence
            return self.entries[place : place + count]
        stored = self.writing.read(self.projection.ledger, sequence, count)
        return [Entry.of(Event.from_bytes(one.body)) for one in stored]
