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
    """The fold of one ledger with the last link that it was folded from, guarded by ``lock``."""

    ledger: str
    new: Callable[[], F]
    apply: Callable[[F, Event], None]
    fold: F = field(init=False)
    link: bytes = field(init=False, default=EMPTY)
    lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.fold = self.new()

    def drop(self) -> None:
        """Forgets what is in memory; it is read back when next asked for."""
        self.fold, self.link = self.new(), EMPTY

    def follow(self, head: Head, read: Callable[[int], Iterable[Stored]]) -> None:
        """Folds in what has been appended since, up to ``head``, checking every link.

        Raises Diverged if the database went back or another way, StoreError if it is damaged.
        """
        seen = self.fold.sequence
        if head.sequence < seen or (head.sequence == seen and head.link != self.link):
            raise Diverged(self.ledger, seen)
        while (first := self.fold.sequence) < head.sequence:
            for stored in islice(read(first), head.sequence - first):
                self._add(stored, seen)
            if self.fold.sequence == first:
                raise StoreError(f"ledger {self.ledger} ends before its head")

    def _add(self, stored: Stored, seen: int) -> None:
        number = stored.sequence
        try:
            expected = link(self.link, stored.body)
            if stored.link == expected:
                self.apply(self.fold, Event.from_bytes(stored.body))
                self.link = expected
                return
        except Exception as error:
            self.drop()  # it may be half folded
            raise StoreError(
                f"event {number} of {self.ledger} cannot be folded: {error}"
            ) from error
        if number == seen > 0:
            raise Diverged(self.ledger, seen)
        self.drop()
        raise StoreError(f"ledger {self.ledger} is damaged: its chain breaks at event {number}")
