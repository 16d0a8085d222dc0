"""The projections of all ledgers, each started from a snapshot if there is a valid one.

A snapshot is valid if the database continues the tree that it was made at, and every head that was
signed or published: a stale one, or one of another history, only costs time. However many ledgers
grow, their snapshots are made in a small part of the running time.
"""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Final, NamedTuple

from accountant.budget.apply import follow_checked
from accountant.budget.snapshot import Copied, load
from accountant.budget.state import State
from accountant.config.logs import logger
from accountant.ledger.checkpoints import Known
from accountant.ledger.merkle import MissingHash, Tree, tree_of
from accountant.runtime.cores import USABLE
from accountant.runtime.memory import collection_paused
from accountant.store.ahead import read_ahead
from accountant.store.ledgers import Ledgers
from accountant.store.projection import Projection
from accountant.store.snapshots import Snapshots
from accountant.store.vault import Vault

_WORTH: Final = 500  # Events that take longer to fold than a snapshot to read
_PART: Final = 500  # The part by which a long ledger, whose snapshot takes long, has to grow
_log = logger()
_SHARE: Final = 30  # Snapshots, of all ledgers together, take one part of the time in this many
_BURST: Final = 5.0  # Seconds of which that part may be taken at once: short ones need not wait
_BREATH: Final = 0.002  # Seconds that writing a snapshot pauses now and then: others can decide


class _Kept(NamedTuple):
    """The last snapshot of a ledger: the number of events, and when one was tried last: a ledger
    whose snapshot cannot be written does not come first again.
    """

    size: int
    at: float


class Projections:
    """The projections of one database. Thread-safe. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, vault: Vault | None, snapshots: Snapshots | None) -> None:
        self._ledgers, self._vault, self._snapshots = ledgers, vault, snapshots
        self._all: dict[str, Projection[State]] = {}
        self._lock = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._keeping = threading.Lock()
        self._free = 0.0
        """When snapshots will have had no more than their part of the time."""

    def of(self, ledger: str, *, opens: bool = False) -> Projection[State]:
        """Return a ledger's projection. Raise NotFound if there is none, unless ``opens``."""
        if ledger not in self._all and not opens:
            head = self._ledgers.head(ledger)
            if head.size == 0 and not self._known(ledger):
                State(ledger).people()
        with self._lock:
            if ledger not in self._all:
                self._all[ledger] = Projection(
                    ledger,
                    lambda: State(ledger),
                    follow_checked,
                    self._known(ledger),
                    partial(self._from_snapshot, ledger),
                    partial(read_ahead, self._ledgers.url, USABLE, ledger),
                )
            return self._all[ledger]

    def in_memory(self, ledger: str) -> Projection[State] | None:
        """Return the projection of a ledger that is in memory; read nothing."""
        return self._all.get(ledger)

    def all(self) -> list[Projection[State]]:
        """Return the projections of all ledgers that are in memory."""
        return list(self._all.values())

    def keep(self, *, now: bool = False) -> None:
        """Make snapshots of ledgers that have grown: of all ``now``, or of those whose last is the
        oldest, for as long as snapshots have not had their part of the time.
        """
        if self._snapshots is None:
            return
        with self._keeping:
            for projection in sorted(self.all(), key=lambda one: self._last(one.ledger).at):
                begun = time.monotonic()
                if not now and begun + _BURST < self._free:
                    return
                size = self._last(projection.ledger).size
                if projection.seen.size - size < max(_WORTH, size // _PART):
                    continue
                try:
                    self._keep(projection, self._snapshots, 0.0 if now else _BREATH)
                finally:
                    taken = time.monotonic() - begun
                    self._free = max(self._free, begun) + _SHARE * taken

    def _last(self, ledger: str) -> _Kept:
        return self._kept.get(ledger, _Kept(0, 0.0))

    def _keep(self, projection: Projection[State], snapshots: Snapshots, breath: float) -> None:
        with projection.lock:
            tree = projection.seen
            if projection.tree != tree:
                return  # dropped, and not read back yet
            copied = Copied.of(projection.state)
        size = self._last(projection.ledger).size
        try:
            parts = copied.dump(partial(time.sleep, breath))
            if snapshots.keep(projection.ledger, tree, parts):
                size = tree.size
        finally:
            self._kept[projection.ledger] = _Kept(size, time.monotonic())

    def _from_snapshot(self, ledger: str) -> tuple[State, Tree] | None:
        """Return the valid snapshot that a projection starts from, if there is one."""
        found = self._snapshots.read(ledger) if self._snapshots else None
        if found is None:
            return None
        tree, data = found
        try:
            if not self._continued(ledger, tree):
                raise ValueError("the database does not continue it")
            with collection_paused():
                state = load(ledger, data)
        except ValueError as error:
            _log.warning("snapshot of no use", population=ledger, reason=str(error))
            return None
        _log.info("begun from a snapshot", population=ledger, events=tree.size)
        self._kept.setdefault(ledger, _Kept(tree.size, 0.0))
        return state, tree

    def _continued(self, ledger: str, tree: Tree) -> bool:
        """Return whether the database and all known heads continue ``tree``."""
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
        """Return the heads that were signed or published, which the database must continue."""
        if self._vault is None:
            return ()
        known = self._vault.known(ledger)
        if (last := self._ledgers.last_signed(ledger)) is not None:
            self._vault.holds(ledger)
            head = last.head
            known += (Known(head.size, head.root, f"checkpoint {last.number} of the database"),)
        return known
