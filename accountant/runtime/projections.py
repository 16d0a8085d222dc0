"""The books of all ledgers in memory: each begun from a snapshot where there is a sound one.

A snapshot is only believed where the database continues the tree that it was made at, and every
head that was signed or published: a stale one, or one of another history, costs time and nothing
else. One is made now and then, in so little of the time that it is not felt.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Final, NamedTuple

import structlog

from accountant.budget.apply import follow
from accountant.budget.snapshot import Copied, load
from accountant.budget.state import State
from accountant.ledger.checkpoints import Checkpoint, Known
from accountant.ledger.merkle import MissingHash, Tree, tree_of
from accountant.ledger.notes import BadNote, parse
from accountant.runtime.memory import not_looked_for
from accountant.store.ledgers import Ledgers, StoreError
from accountant.store.projection import Projection
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

_WORTH: Final = 500
"""Events that take longer to fold than a snapshot to read."""
_PART: Final = 500
"""And so small a part of a long ledger, whose snapshot takes long to write."""
_log = structlog.get_logger()
_SHARE: Final = 30
"""A snapshot is made no sooner than so many times its own duration after the last."""
_BREATH: Final = 0.002
"""Seconds that making one stops for, now and then: whoever decides has to wait for a turn."""


class _Kept(NamedTuple):
    """The last snapshot of a ledger: how many events, when it was made, how long that took."""

    size: int
    at: float
    seconds: float


class Fold:
    """The fold of a population's ledger: its state."""

    __slots__ = ("__weakref__", "state")

    def __init__(self, state: State) -> None:
        self.state = state

    @property
    def sequence(self) -> int:
        """The next event's."""
        return self.state.sequence

    def follow(self, data: bytes) -> None:
        """Folds in the next event, as somebody else has decided it. Raises ValueError if it is not
        the next one, or cannot be folded.
        """
        follow(self.state, data)


class Projections:
    """The books of one database. Thread-safe. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, vault: Vault | None, snapshots: Snapshots | None) -> None:
        self._ledgers, self._vault, self._snapshots = ledgers, vault, snapshots
        self._all: dict[str, Projection[Fold]] = {}
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._keeping = threading.Lock()

    def book(self, ledger: str, *, opens: bool = False) -> Projection[Fold]:
        """The book of a ledger. Names that nothing was ever registered under get none (NotFound),
        unless this is to open it.
        """
        if ledger not in self._all and not opens:
            head = self._ledgers.head(ledger)
            if head.size == 0 and not self._known(ledger):
                State(ledger).people()
        with self._lock:
            if ledger not in self._all:
                nothing, kept = partial(_nothing, ledger), partial(self._begin, ledger)
                self._all[ledger] = Projection(ledger, nothing, self._known(ledger), kept)
            return self._all[ledger]

    def there(self, ledger: str) -> Projection[Fold] | None:
        """The book of a ledger that was asked for before; nothing is read."""
        return self._all.get(ledger)

    def books(self) -> list[Projection[Fold]]:
        """The books of all ledgers that were asked for before."""
        return list(self._all.values())

    def keep(self, *, now: bool = False) -> None:
        """Makes snapshots of the ledgers that have grown, where it is time; or ``now``."""
        if self._snapshots is None:
            return
        with self._keeping:
            for book in list(self._all.values()):
                kept = self._kept.get(book.ledger, _Kept(0, 0.0, 0.0))
                due = now or time.monotonic() >= kept.at + _SHARE * kept.seconds
                if due and book.seen.size - kept.size >= max(_WORTH, kept.size // _PART):
                    self._keep(book, self._snapshots, 0.0 if now else _BREATH)

    def _keep(self, book: Projection[Fold], snapshots: Snapshots, breath: float) -> None:
        begun = time.monotonic()
        with book.lock:
            tree = book.seen
            if book.tree != tree:
                return  # dropped, and not read back yet
            copied = Copied.of(book.fold.state)
        parts = copied.dump(partial(time.sleep, breath))
        if snapshots.keep(book.ledger, tree, parts):
            ended = time.monotonic()
            self._kept[book.ledger] = _Kept(tree.size, ended, ended - begun)

    def _begin(self, ledger: str) -> tuple[Fold, Tree] | None:
        """The snapshot that a book starts from, if there is a sound one."""
        found = self._snapshots.read(ledger) if self._snapshots else None
        if found is None:
            return None
        tree, data = found
        try:
            if not self._continued(ledger, tree):
                raise ValueError("the database does not continue it")
            with not_looked_for():
                state = load(ledger, data)
        except ValueError as error:
            _log.warning("snapshot of no use", ledger=ledger, reason=str(error))
            return None
        _log.info("begun from a snapshot", ledger=ledger, events=tree.size)
        self._kept.setdefault(ledger, _Kept(tree.size, 0.0, 0.0))
        return Fold(state), tree

    def _continued(self, ledger: str, tree: Tree) -> bool:
        """The database and all known heads have the same first events as ``tree``."""
        hashes = partial(self._ledgers.hashes, ledger)
        earlier = [known for known in self._known(ledger) if known.size <= tree.size]
        try:
            return (
                self._ledgers.head(ledger).size >= tree.size
                and tree_of(hashes, tree.size) == tree
                and all(tree_of(hashes, known.size).root == known.root for known in earlier)
            )
        except MissingHash:
            return False

    def _known(self, ledger: str) -> tuple[Known, ...]:
        """The heads that were signed or published: a database that does not continue them is not
        written to.
        """
        if self._vault is None:
            return ()
        known = self._vault.known(ledger)
        if (last := self._ledgers.last_signed(ledger)) is not None:
            self._vault.holds(ledger)
            try:
                head = Checkpoint.from_text(parse(last.note).text)
            except BadNote as error:
                raise StoreError(f"checkpoint {last.number} is damaged: {error}") from error
            known += (Known(head.size, head.root, f"checkpoint {last.number} of the database"),)
        return known


def _nothing(ledger: str) -> Fold:
    return Fold(State(ledger))
