"""Subject groups: selections over public dimensions, compiled to disjoint boxes of cells.

A box is a product of index sets, one a dimension, so charging it is one strided NumPy operation.
A union is cut into disjoint boxes: no cell is charged twice however the parts overlap.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from accountant.budget.errors import Invalid
from accountant.budget.population import Population

MAX_TERMS: Final = 100
MAX_BOXES: Final = 500
MAX_WORK: Final = 3_000_000
"""Set members looked at: bounds the time that one selection takes under the ledger's lock."""

Name = Annotated[str, Field(min_length=1, max_length=200)]


class Range(BaseModel):
    """An inclusive range of a dimension's values, in their declared order."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    first: Name = Field(alias="from", description="first value, included")
    last: Name = Field(alias="to", description="last value, included")


DimensionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]
Values = Annotated[
    Annotated[list[Name], Field(min_length=1), Tag(":values")] | Annotated[Range, Tag(":range")],
    Discriminator(lambda value: ":values" if isinstance(value, list) else ":range"),
]
Term = dict[DimensionName, Values]
Terms = Annotated[list[Term], Field(min_length=1, max_length=MAX_TERMS)]
Subjects = Annotated[
    Annotated[Term, Tag(":term")] | Annotated[Terms, Tag(":terms")],
    Discriminator(lambda value: ":terms" if isinstance(value, list) else ":term"),
]

Box = tuple[frozenset[int], ...]
Index = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Selection:
    """Cells. ``everyone`` also covers cells that are added later; else ``boxes`` are disjoint."""

    everyone: bool
    boxes: tuple[Box, ...] = ()

    def cells(self, population: Population) -> int:
        """How many cells it has."""
        return population.cells if self.everyone else sum(prod(map(len, b)) for b in self.boxes)

    def __or__(self, other: Selection) -> Selection:
        """Both, which must be disjoint."""
        return Selection(self.everyone or other.everyone, self.boxes + other.boxes)


EVERYONE: Final = Selection(everyone=True)


def select(population: Population, subjects: Subjects | None) -> Selection:
    """Compiles ``subjects`` (None or {}: everyone). Raises Invalid for unknown names or values."""
    if subjects is None or subjects == {}:
        return EVERYONE
    terms = subjects if isinstance(subjects, list) else [subjects]
    if any(term == {} for term in terms):
        return EVERYONE
    return _union(population, terms, MAX_WORK)


def reaching(
    population: Population, subjects: Subjects | None, dimension: str, values: list[str]
) -> Selection:
    """The cells with one of ``values`` that ``subjects`` covers without naming ``dimension``: a
    group that names no value of a dimension means all of them, those appended later included.

    Never too complex if ``subjects`` was not: it is used while an event is folded.
    """
    terms = subjects if isinstance(subjects, list) else [subjects or {}]
    unnamed = [term | {dimension: values} for term in terms if dimension not in term]
    return _union(population, unnamed, None)


def _union(population: Population, terms: Iterable[Term], most: int | None) -> Selection:
    disjoint: list[Box] = []
    work = 0
    for term in terms:
        work += sum(population.shape)
        _bounded(work, most, len(disjoint))
        pieces = [_box(population, term)]
        for taken in disjoint:
            work += sum(len(side) for piece in pieces for side in piece)
            _bounded(work, most, len(disjoint) + len(pieces))
            pieces = [rest for piece in pieces for rest in _minus(piece, taken)]
        disjoint += pieces
    return Selection(everyone=False, boxes=tuple(disjoint))


def _bounded(work: int, most: int | None, boxes: int) -> None:
    if most is not None and (work > most or boxes > MAX_BOXES):
        raise Invalid(
            "selection-too-complex",
            f"the union falls into more than {MAX_BOXES} separate boxes of cells, or takes more "
            f"than {most} steps to get there; ask for simpler groups",
        )


@lru_cache(maxsize=256)
def index_of(box: Box) -> Index:
    """A NumPy index for the cells of ``box``: slices where contiguous (views), else ``np.ix_``."""
    ordered = [sorted(side) for side in box]
    if all(side[-1] - side[0] + 1 == len(side) for side in ordered):
        return tuple(slice(side[0], side[-1] + 1) for side in ordered)
    return np.ix_(*ordered)


def _box(population: Population, term: Term) -> Box:
    sides = [frozenset(range(n)) for n in population.shape]
    for dimension, wanted in term.items():
        axis = population.axis(dimension)
        if isinstance(wanted, Range):
            first = population.index(axis, wanted.first)
            last = population.index(axis, wanted.last)
            if first > last:
                raise Invalid(
                    "empty-range",
                    f"in dimension {dimension!r} {wanted.first!r} comes after {wanted.last!r}; "
                    "ranges follow the declared order",
                )
            sides[axis] = frozenset(range(first, last + 1))
        else:
            sides[axis] = frozenset(population.index(axis, value) for value in wanted)
    return tuple(sides)


def _minus(box: Box, taken: Box) -> list[Box]:
    """``box`` without ``taken``, as disjoint boxes: peel off one dimension after the other."""
    if not all(a & b for a, b in zip(box, taken, strict=True)):
        return [box]
    pieces = []
    for axis, (mine, theirs) in enumerate(zip(box, taken, strict=True)):
        if outside := mine - theirs:
            common = tuple(a & b for a, b in zip(box[:axis], taken[:axis], strict=True))
            pieces.append((*common, outside, *box[axis + 1 :]))
    return pieces
