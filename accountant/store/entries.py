"""Events on their way into a database: whole rows, in the order of the tables' columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from accountant.ledger.events import Entry
from accountant.ledger.merkle import Node, Tree, leaf_hash


class Ends(NamedTuple):
    """Where a ledger ends, or has to."""

    ledger: str
    tree: Tree

    @property
    def peaks(self) -> bytes:
        """The tree's peaks, as the head keeps them."""
        return b"".join(self.tree.peaks)


class Grown(NamedTuple):
    """What a ledger grows by. Rows of events come as columns (sequence, type, time, body, leaf),
    which is how drivers take them fastest.
    """

    before: Tree
    events: list[Sequence[Any]]
    nodes: list[Node]
    after: Tree

    @property
    def peaks(self) -> bytes:
        """The new tree's peaks, as the head keeps them."""
        return b"".join(self.after.peaks)


def grown(before: Tree, entries: Sequence[Entry]) -> Grown:
    """``before`` with the entries appended. Raises ValueError if they do not follow each other."""
    columns: list[Sequence[Any]] = list(zip(*entries, strict=True))
    sequences, _, _, bodies = columns
    if sequences != tuple(range(sequences[0], sequences[0] + len(entries))):
        raise ValueError("the events do not follow each other")
    leaves = [leaf_hash(body) for body in bodies]
    after, nodes = before.grown(leaves)
    return Grown(before, [*columns, leaves], nodes, after)
