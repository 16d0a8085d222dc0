"""A ledger up to the end of a period, read once: what readers collect of it on the way.

The closing of a period that is over is what counted at its last microsecond, whatever came later,
so that a report of it stays the same. That of a period that still runs is what counted at its last
event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from msgspec.structs import replace

from accountant.budget.apply import apply
from accountant.budget.reading import read
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.reporting.periods.period import Period
from accountant.reporting.progress import STEP, Progress, silent
from accountant.store.ledgers import Stored

_STEP: Final = STEP
"""Leaves by which the tree grows."""


class Reader(Protocol):
    """Collects what a report needs while ``walk`` folds a ledger, event by event."""

    def opens(self, state: State) -> None:
        """Look at the ledger as it is when the period begins."""

    def comes(self, state: State, event: Event) -> None:
        """Look at the ledger before an event of the period is folded in."""

    def came(self, state: State, event: Event, *, inside: bool) -> None:
        """Look at it after an event was folded in; ``inside`` the period, or before."""


class Walked(NamedTuple):
    """A ledger at the end of a period, which its events ``first`` to ``size - 1`` lie in; None
    if there are none. ``tree`` is that of all events up to there. ``finished``: the period is over.
    """

    state: State
    tree: Tree
    first: int | None
    size: int
    closed: int
    """The stamp of the closing."""
    finished: bool
    broken: int | None
    """The first event whose bytes do not have the hash that was stored with it."""

    @property
    def inside(self) -> int:
        """How many events lie in the period."""
        return 0 if self.first is None else self.size - self.first


def walk(
    ledger: str,
    stored: Iterable[Stored],
    period: Period,
    now: int,
    reader: Reader | None = None,
    progress: Progress = silent,
) -> Walked:
    """Read the events up to the end of a period, in order. ``now`` says only whether it is over.
    Without a reader no event is hashed: there is no tree.
    Raise ValueError if an event is not canonical or does not follow the one before.
    """
    state, tree, leaves = State(ledger), Tree(), list[bytes]()
    first, opened, broken, seen = None, False, None, 0
    start, end = period.start, period.end
    for row in stored:
        event = Event.from_bytes(row.body)
        if event.time >= end:
            break
        if event.time >= start:
            if not opened:
                _open(state, period, reader)
                opened, first = True, event.sequence
            if reader is not None:
                reader.comes(state, event)
        outcome = read(state, event, row.body)
        # Nobody asks here again, so that the state need not keep idempotency keys.
        apply(state, outcome if outcome.batch is not None else replace(outcome, key=None))
        seen += 1
        if reader is not None:
            reader.came(state, event, inside=opened)
            leaves.append(leaf_hash(row.body))
            if leaves[-1] != row.leaf and broken is None:
                broken = event.sequence
        if seen % _STEP == 0:
            tree, _ = tree.grown(leaves)
            leaves.clear()
            progress(_STEP)
    if not opened:
        _open(state, period, reader)
    tree, _ = tree.grown(leaves)
    progress(seen % _STEP)
    finished = now >= end
    state.now = end - 1 if finished else max(state.time, start)
    closed = max(state.now, state.time)
    return Walked(state, tree, first, state.sequence, closed, finished, broken)


def _open(state: State, period: Period, reader: Reader | None) -> None:
    if reader is not None:
        state.now = period.start
        reader.opens(state)
        state.now = 0
