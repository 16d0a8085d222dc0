"""A damaged ledger is not read over and over: others need the processor."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from accountant.ledger.merkle import Tree, leaf_hash
from accountant.store import Damaged
from accountant.store.ledgers import Stored
from accountant.store.projection import RESTS, Projection

TAKES = 0.05
"""Seconds that reading the ledger takes."""


class Slow:
    """A ledger of two events whose reading takes long, and the last of which may be damaged."""

    def __init__(self) -> None:
        self.bodies, self.times, self.damaged = [b"{}", b'{"a":1}'], 0, True
        self.head = Tree().grown([leaf_hash(body) for body in self.bodies])[0]
        self.projection = Projection[list[bytes]]("fair", list, list.append)

    def read(self, first: int) -> Iterator[Stored]:
        """The events from one on."""
        self.times += 1
        time.sleep(TAKES)
        for number, body in enumerate(self.bodies[first:], first):
            yield Stored(number, b"{" if number and self.damaged else body, leaf_hash(body))

    def follow(self) -> list[bytes]:
        """What the projection has after reading on."""
        self.projection.follow(self.head, self.read)
        return self.projection.state


def test_a_damaged_ledger_is_read_again_later() -> None:
    """After a damage reading rests for some times as long as it took; then what was put back is
    noticed.
    """
    slow = Slow()
    for _ in range(3):
        with pytest.raises(Damaged, match="event 1 of fair"):
            slow.follow()
    assert slow.times == 1
    slow.damaged = False
    with pytest.raises(Damaged, match="event 1 of fair"):
        slow.follow()
    time.sleep(TAKES * RESTS * 1.5)
    assert slow.follow() == slow.bodies


def test_a_ledger_that_has_grown_is_read_at_once() -> None:
    """Another head may be that of another database."""
    slow = Slow()
    with pytest.raises(Damaged):
        slow.follow()
    slow.damaged = False
    slow.bodies.append(b'{"b":2}')
    slow.head = slow.head.grown([leaf_hash(b'{"b":2}')])[0]
    assert slow.follow() == slow.bodies
