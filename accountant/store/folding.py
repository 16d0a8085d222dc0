"""Where ledgers end, by the bytes of their events: what a copy of a database is held to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from accountant.ledger.checkpoints import Known
from accountant.ledger.merkle import Node, Tree, leaf_hash

_OTHER: Final = "the copy is damaged, or was made of a damaged database: take another one"


class BadCopy(ValueError):
    """The rows do not belong together, or are not those of the ledgers that were signed."""


@dataclass
class Folding:
    """The trees of all ledgers, as rows of events come in order. ``known``: heads, by ledger, that
    the events have to continue.
    """

    known: Mapping[str, Iterable[Known]]
    trees: dict[str, Tree] = field(default_factory=dict)
    _nodes: set[tuple[str, Node]] = field(default_factory=set)
    _roots: dict[tuple[str, int], bytes] = field(default_factory=dict)
    _wanted: set[tuple[str, int]] = field(init=False)

    def __post_init__(self) -> None:
        self._wanted = {(name, head.size) for name, heads in self.known.items() for head in heads}

    def event(self, ledger: str, sequence: int, body: bytes, leaf: bytes) -> None:
        """Take the next event. Raises BadCopy if it is not the next, or not what was hashed."""
        tree = self.trees.get(ledger, Tree())
        if sequence != tree.size:
            raise BadCopy(f"event {tree.size} of {ledger} is not there: {_OTHER}")
        if leaf_hash(body) != leaf:
            raise BadCopy(f"event {sequence} of {ledger} is not what was hashed: {_OTHER}")
        tree, kept = tree.grown((leaf,))
        self._nodes.update((ledger, node) for node in kept)
        self.trees[ledger] = tree
        if (ledger, tree.size) in self._wanted:
            self._roots[ledger, tree.size] = tree.root

    def compare(self, heads: Mapping[str, Tree], nodes: set[tuple[str, Node]]) -> None:
        """Raise BadCopy unless the heads and hashes beside the events are those of the events."""
        for ledger in sorted(heads.keys() | self.trees.keys()):
            stated, found = heads.get(ledger, Tree()), self.trees.get(ledger, Tree())
            if stated != found:
                raise BadCopy(
                    f"ledger {ledger} has {found.size} events with the root {found.root.hex()}, "
                    f"and its head says {stated.size} with the root {stated.root.hex()}: {_OTHER}"
                )
        if nodes != self._nodes:
            [(ledger, node), *_] = sorted(nodes ^ self._nodes)
            where = f"hash {node.number} of level {node.level} of {ledger}"
            raise BadCopy(f"{where} is not that of the events: {_OTHER}")

    def lost(self) -> list[tuple[str, Known]]:
        """Return the known heads of more events than there are, by ledger. Raises BadCopy for one
        of as many or fewer that is another history.
        """
        lost = []
        for ledger, heads in self.known.items():
            size = self.trees.get(ledger, Tree()).size
            for head in heads:
                if head.size > size:
                    lost.append((ledger, head))
                elif head.size and self._roots[ledger, head.size] != head.root:
                    raise BadCopy(
                        f"ledger {ledger} does not continue {head.whose}, of {head.size} events "
                        f"with the root {head.root.hex()}: its first {head.size} events have the "
                        f"root {self._roots[ledger, head.size].hex()}. It is another history"
                    )
        return lost
