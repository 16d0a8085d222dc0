"""A ledger's fold in memory: kept in step with the database, and a witness of what was there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from accountant.ledger.checkpoints import Known
from accountant.ledger.events import Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store.ledgers import Stored, StoreError


class Diverged(StoreError):
    """The database does not continue a head that was seen, signed or published."""

    def __init__(self, ledger: str, known: Known, size: int, root: bytes) -> None:
        how = (
            f"the database ends with {size} events (root {root.hex()})"
            if size < known.size
            else f"in the database the first {size} events have the root {root.hex()}"
        )
        super().__init__(
            f"ledger {ledger} does not continue {known.whose} of {known.size} events (root "
            f"{known.root.hex()}): {how}. It was restored from a backup or rewritten. Nothing is "
            "written until the right database is put back, or `accountant recover` has opened a "
            "new epoch, and the service is started again"
        )
        self.known = known


class Fold(Protocol):
    """What events are folded into. ``sequence`` is the next event's."""

    sequence: int


F = TypeVar("F", bound=Fold)


@dataclass(slots=True)
class Book(Generic[F]):
    """The fold of one ledger with the tree of the events that it was folded from, guarded by
    ``lock``.

    ``seen`` is where the ledger was last seen to end, committed. Unlike the fold it is never
    dropped, so a database that went back is noticed whatever happened in between. ``known`` are
    heads that were signed or published: they outlive the process.
    """

    ledger: str
    new: Callable[[], F]
    apply: Callable[[F, Event], None]
    known: tuple[Known, ...] = ()
    fold: F = field(init=False)
    tree: Tree = field(init=False, default=Tree())
    seen: Tree = field(init=False, default=Tree())
    lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.fold = self.new()

    def drop(self) -> None:
        """Forgets what is in memory; it is read back when next asked for."""
        self.fold, self.tree = self.new(), Tree()

    def add(self, events: Iterable[Event], end: Tree) -> None:
        """Folds in what was appended, up to ``end``, ahead of its commit."""
        for event in events:
            self.apply(self.fold, event)
        self.tree = end

    def committed(self) -> None:
        """What is folded in is durable: from now on the ledger may not end before it."""
        self.seen = self.tree

    def follow(self, head: Tree, read: Callable[[int], Iterable[Stored]]) -> None:
        """Folds in what has been appended since, up to ``head``, hashing every event.

        Raises Diverged if the database went back or another way, StoreError if it is damaged.
        """
        for known in (*self.known, self._seen()):
            if head.size < known.size:
                raise Diverged(self.ledger, known, head.size, head.root)
        while (first := self.fold.sequence) < head.size:
            for stored in islice(read(first), head.size - first):
                self._add(stored)
            if self.fold.sequence == first:
                raise StoreError(f"ledger {self.ledger} ends before its head")
        if self.tree != head:
            raise Diverged(self.ledger, self._seen(), head.size, head.root)
        self.committed()

    def _seen(self) -> Known:
        return Known(self.seen.size, self.seen.root, "what this service has seen")

    def _add(self, stored: Stored) -> None:
        number = stored.sequence
        try:
            leaf = leaf_hash(stored.body)
            event = Event.from_bytes(stored.body) if leaf == stored.leaf else None
        except (TypeError, ValueError) as error:
            raise self._broken(number, error) from error
        tree, _ = self.tree.grown([leaf])
        self._continues(tree)
        if event is None:
            raise self._broken(number, "its bytes are not those that were hashed")
        try:
            self.add([event], tree)
        except Exception as error:
            self.drop()  # it may be half folded
            raise self._broken(number, error) from error

    def _continues(self, tree: Tree) -> None:
        """Compares the tree with every head of its size."""
        for known in self.known:
            if known.size == tree.size and known.root != tree.root:
                raise Diverged(self.ledger, known, tree.size, tree.root)
        if tree.size == self.seen.size and tree != self.seen:
            raise Diverged(self.ledger, self._seen(), tree.size, tree.root)

    def _broken(self, number: int, reason: object) -> StoreError:
        return StoreError(f"event {number} of {self.ledger} cannot be folded: {reason}")
