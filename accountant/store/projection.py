"""A ledger's fold in memory: kept in step with the database, and a witness of its past."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final, Generic, NamedTuple, TypeVar

from accountant.ledger.checkpoints import Known
from accountant.ledger.events import check_canonical
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store import Damaged
from accountant.store.ahead import OWN, Ahead
from accountant.store.ledgers import Stored, StoreError

_LATELY: Final = 1.0  # Seconds after which a writer may have written its last
RESTS: Final = 20  # How much longer than reading a damaged ledger took it is not read again
_TOGETHER: Final = 128  # Events that are checked, then applied: each step for all (ADR 0022)


class Diverged(StoreError):
    """The database does not continue a head that was seen, signed or published."""

    def __init__(self, ledger: str, known: Known, found: Tree) -> None:
        size, root = found.size, found.root.hex()
        how = (
            f"the database ends with {size} events (root {root})"
            if size < known.size
            else f"in the database the first {size} events have the root {root}"
        )
        super().__init__(
            f"ledger {ledger} does not continue {known.whose} of {known.size} events (root "
            f"{known.root.hex()}): {how}. It was restored from a backup or rewritten. Nothing is "
            "written until the right database is put back, or `accountant recover` has opened a "
            "new epoch, and the service is started again"
        )


S = TypeVar("S")


class _Broken(NamedTuple):
    """A ledger was read up to a damage, and is not read again until a moment."""

    head: Tree
    reason: str
    until: float


@dataclass(slots=True)
class Projection(Generic[S]):
    """The state after the events of one ledger, and their tree, guarded by ``lock``.

    ``seen`` is the end last seen, committed. Unlike the state it is never dropped, so a database
    that went back is noticed. ``known`` are heads that were signed or published: they outlive the
    process.
    """

    ledger: str
    first: Callable[[], S]  # Makes the state before the first event
    apply: Callable[[S, bytes], None]  # Applies the next event, of canonical bytes, to the state
    known: tuple[Known, ...] = ()
    kept: Callable[[], tuple[S, Tree] | None] = lambda: None  # Reads a snapshot
    ahead: Ahead = lambda first, end: nullcontext(iter(()))  # Reads many events on another core
    state: S = field(init=False)
    tree: Tree = field(init=False)
    seen: Tree = field(init=False, default=Tree())
    others: float = field(init=False, default=-inf)  # When another writer was last noticed
    broken: _Broken | None = field(init=False, default=None)
    lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Forget the state, without the database; the next ``follow`` reads it back."""
        self.state, self.tree = self.first(), Tree()

    @property
    def alone(self) -> bool:
        """No other writer was noticed lately, and everything that was written is folded in."""
        return self.whole and time.monotonic() > self.others + _LATELY

    @property
    def whole(self) -> bool:
        """Everything that was seen is folded in: since then nothing was dropped."""
        return self.tree == self.seen and self.tree.size > 0

    def moved(self) -> None:
        """Note that another writer is at work."""
        self.others = time.monotonic()

    def committed(self, end: Tree) -> None:
        """Note that the folded events are durable: the ledger may not end before them any more."""
        self.tree = self.seen = end

    def follow(self, head: Tree, read: Callable[[int], Iterable[Stored]]) -> None:
        """Fold in the events up to ``head``, hashing each. Raises Diverged, StoreError; and Damaged
        again without reading where it was found lately: reading on and on would keep a core busy.
        """
        began = time.monotonic()
        if (old := self.broken) is not None and old.head == head and began < old.until:
            raise Damaged(old.reason)
        try:
            self._follow(head, read)
        except Damaged as error:
            now = time.monotonic()
            self.broken = _Broken(head, str(error), now + RESTS * (now - began))
            raise
        self.broken = None

    def _follow(self, head: Tree, read: Callable[[int], Iterable[Stored]]) -> None:
        for known in self._heads():
            if head.size < known.size:
                raise Diverged(self.ledger, known, head)
        if not self.tree.size and (kept := self.kept()) is not None:
            state, tree = kept
            if tree.size <= head.size:  # another process may have kept it since ``head`` was read
                self.state, self.tree = state, tree
        self._read_on(head.size, read)
        if self.tree != head:
            raise Diverged(self.ledger, self._heads()[-1], head)
        self.committed(head)

    def _read_on(self, end: int, read: Callable[[int], Iterable[Stored]]) -> None:
        """Fold in the events before ``end``: some, then those that come from another core, then all
        that it left.
        """
        border = min(self.tree.size + OWN, end)
        with self.ahead(border, end) as pages:
            self._read_alone(border, read)
            for page in pages:
                with self._whole():
                    first = self.tree.size
                    self._take(range(first, first + len(page.bodies)), page.bodies, page.leaves)
        self._read_alone(end, read)

    def _read_alone(self, end: int, read: Callable[[int], Iterable[Stored]]) -> None:
        while (first := self.tree.size) < end:
            if self.seen.size:
                self.moved()
            page = list(islice(read(first), end - first))
            if not page:
                raise StoreError(f"ledger {self.ledger} ends before its head")
            with self._whole():
                self._add(page)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Forget the state if it may be half folded."""
        try:
            yield
        except BaseException:
            self.drop()
            raise

    def _heads(self) -> tuple[Known, ...]:
        """Return the heads that the ledger has to continue, the one last seen at the end."""
        seen = Known(self.seen.size, self.seen.root, "what this service has seen")
        return (*self.known, seen)

    def _add(self, page: list[Stored]) -> None:
        """Fold in a page, some events at a time: they are hashed and checked, then applied one by
        one. An event that is damaged is told after whatever is wrong before it.
        """
        for first in range(0, len(page), _TOGETHER):
            some = page[first : first + _TOGETHER]
            leaves: list[bytes] = []
            bodies: list[bytes] = []
            wrong: Damaged | None = None
            for stored in some:
                if (wrong := self._wrong(stored, leaves)) is not None:
                    break
                bodies.append(stored.body)
            self._take([stored.sequence for stored in some], bodies, leaves)
            if wrong is not None:
                raise wrong

    def _wrong(self, stored: Stored, leaves: list[bytes]) -> Damaged | None:
        """Add the hash of an event's bytes to ``leaves``. Return what is wrong if they are others
        than those that were hashed, or not canonical.
        """
        try:
            leaves.append(leaf_hash(stored.body))
            if leaves[-1] != stored.leaf:
                return self._broken(stored.sequence, "its bytes are not those that were hashed")
            check_canonical(stored.body)
        except (TypeError, ValueError) as error:
            return self._broken(stored.sequence, error)
        return None

    def _take(self, numbers: Sequence[int], bodies: list[bytes], leaves: list[bytes]) -> None:
        """Apply events, and grow the tree in one step up to each size at which a head is known. It
        is compared there before the event that comes to it is applied.
        """
        size, begin = self.tree.size, 0
        stops = {known.size - size for known in self._heads()}
        for stop in sorted({*(one for one in stops if 0 < one < len(leaves)), len(leaves)}):
            last = stop - 1
            self._apply(numbers[begin:last], bodies[begin:last])
            self._grow(leaves[begin:stop])
            self._apply(numbers[last:stop], bodies[last:stop])
            begin = stop

    def _apply(self, numbers: Sequence[int], bodies: list[bytes]) -> None:
        for number, body in zip(numbers, bodies, strict=False):
            try:
                self.apply(self.state, body)
            except Exception as error:
                raise self._broken(number, error) from error

    def _grow(self, leaves: list[bytes]) -> None:
        """Grow the tree by ``leaves``, and compare with heads of its size."""
        self.tree, _ = self.tree.grown(leaves)
        for known in self._heads():
            if known.size == self.tree.size and known.root != self.tree.root:
                raise Diverged(self.ledger, known, self.tree)

    def _broken(self, number: int, reason: object) -> Damaged:
        return Damaged(f"event {number} of {self.ledger} cannot be folded: {reason}")
