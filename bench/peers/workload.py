"""What a peer asked of a scheduler: requests on blocks of data, and the limit of each block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final, NamedTuple

DATASET: Final = "data"
SECOND: Final = 1_000_000
Body = dict[str, Any]
Side = Sequence[int]
"""Positions on one dimension: a range, or some of them, sorted."""
Box = tuple[Side, ...]
"""The cells of one product of sides, by dimension."""


class Ask(NamedTuple):
    """One request: when it comes, in microseconds since the beginning, what it runs, and the
    disjoint ``boxes`` of cells on which it does.
    """

    at: int
    mechanism: Body
    boxes: tuple[Box, ...]


class Published(NamedTuple):
    """A number of admitted requests that the peer published, and by which order."""

    order: str
    admitted: float


@dataclass(frozen=True)
class Workload:
    """``dimensions`` map a name to its number of values; ``rule`` is the rule of the policy that
    limits every cell, without its braces; ``published`` is of the peer's own seeds.
    """

    name: str
    source: str
    dimensions: dict[str, int]
    rule: str
    asks: tuple[Ask, ...]
    published: tuple[Published, ...] = ()
    window: int = 1
    every: int = 0
    """If blocks come with time: one every so many microseconds, and ``window`` of them, the first
    ``window`` - 1 before the beginning; else all are there, and this is 0."""

    @property
    def policy(self) -> str:
        """The policy, in YAML."""
        return f"policy: peers\nrules:\n  - {{id: block, {self.rule}}}\n"

    def policy_of(self, order: str, unlock: str) -> str:
        """The policy that unlocks the limit gradually, and admits what waits in an order."""
        rule = f"{{id: block, {self.rule}, unlock: {{{unlock}}}}}"
        return f"policy: peers\norder: {order}\nrules:\n  - {rule}\n"

    @property
    def values(self) -> dict[str, list[str]]:
        """The values of each dimension, by position."""
        return {
            name: list(starmap(value, ((name, at) for at in range(many))))
            for name, many in self.dimensions.items()
        }

    def body(self, ask: Ask) -> Body:
        """The body of a request for a grant."""
        terms = [dict(zip(self.dimensions, map(self._side, self.dimensions, box), strict=True))
                 for box in ask.boxes]  # fmt: skip
        subjects = terms[0] if len(terms) == 1 else terms
        return {"dataset": DATASET, "mechanisms": [ask.mechanism], "subjects": subjects}

    @staticmethod
    def _side(name: str, side: Side) -> Any:
        if isinstance(side, range):
            return {"from": value(name, side[0]), "to": value(name, side[-1])}
        return [value(name, at) for at in side]


def value(dimension: str, at: int) -> str:
    """The name of the value at a position."""
    return f"{dimension}-{at:04d}"
