"""A ledger's fold in memory: kept in step with the database, and a witness of what was there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from accountant.ledger.chain import EMPTY, link
from accountant.ledger.events import Event
from accountant.store.ledgers import Head, Stored, StoreError


class Diverged(StoreError):
    """The database does not continue the ledger that this process has seen."""

    def __init__(self, ledger: str, sequence: int) -> None:
        super().__init__(
            f"ledger {ledger} does not continue what this service has seen up to event "
            f"{sequence - 1}: it was restored from a backup or rewritten. Nothing is written until "
            "somebody has looked at it and restarted the service"
        )


class Fold(Protocol):
    """What events are folded into. ``sequence`` is the next event's."""

    sequence: int


F = TypeVar("F", bound=Fold)


@dataclass(slots=True)
class Book(Generic[F]):
    """The fold of one ledger with the last link that it was folded from, guarded by ``lock``.

    ``witness`` is where the ledger was last seen to end, committed. Unlike the fold it is never
    dropped, so a database that went back is noticed whatever happened in between.
    """

    ledger: str
    new: Callable[[], F]
    apply: Callable[[F, Event], None]
    fold: F = field(init=False)
    link: bytes = field(init=False, default=EMPTY)
    witness: Head = field(init=False, default=Head(0, EMPTY))
    lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.fold = self.new()

    def drop(self) -> None:
        """Forgets what is in memory; it is read back when next asked for."""
        self.fold, self.link = self.new(), EMPTY

    def add(self, events: Iterable[Event], end: Head) -> None:
        """Folds in what was appended, up to ``end``, ahead of its commit."""
        for event in events:
            self.apply(self.fold, event)
        self.link = end.link

    def committed(self) -> None:
        """What is folded in is durable: from now on the ledger may not end before it."""
        self.witness = Head(self.fold.sequence, self.link)

    def follow(self, head: Head, read: Callable[[int], Iterable[Stored]]) -> None:
        """Folds in what has been appended since, up to ``head``, checking every link.

        Raises Diverged if the database went back or another way, StoreError if it is damaged.
        """
        if head.sequence < self.witness.sequence:
            raise Diverged(self.ledger, self.witness.sequence)
        while (first := self.fold.sequence) < head.sequence:
            for stored in islice(read(first), head.sequence - first):
                self._add(stored)
            if self.fold.sequence == first:
                raise StoreError(f"ledger {self.ledger} ends before its head")
        if self.link != head.link:
            raise Diverged(self.ledger, self.witness.sequence)
        self.committed()

    def _add(self, stored: Stored) -> None:
        number, seen = stored.sequence, self.witness
        try:
            expected = link(self.link, stored.body)
            chained = stored.link == expected
            event = Event.from_bytes(stored.body) if chained else None
        except (TypeError, ValueError) as error:
            raise self._broken(number, error) from error
        if (event is None and number == seen.sequence > 0) or (
            number == seen.sequence - 1 and expected != seen.link
        ):
            raise Diverged(self.ledger, seen.sequence)  # another past than the one that was seen
        if event is None:
            raise self._broken(number, "its chain breaks there")
        try:
            self.add([event], Head(number + 1, expected))
        except Exception as error:
            self.drop()  # it may be half folded
            raise self._broken(number, error) from error

    def _broken(self, number: int, reason: object) -> StoreError:
        return StoreError(f"event {number} of {self.ledger} cannot be folded: {reason}")
