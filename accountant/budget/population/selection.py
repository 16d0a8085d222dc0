"""Subject groups: selections over public dimensions, compiled to disjoint boxes of cells.

A box is a product of index sets, one a dimension: one strided NumPy operation charges it. Disjoint
boxes charge no cell twice, however the terms of a union overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial, reduce
from math import prod
from typing import Annotated, Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from accountant.budget.errors import Invalid
from accountant.budget.population.population import Population
from accountant.budget.population.positions import CODES, read

MAX_TERMS: Final = 100
MAX_BOXES: Final = 500
MAX_WORK: Final = 3_000_000
"""Set members that are looked at: bounds the time of one selection under the ledger's lock."""

FEW: Final = 500
"""Cells up to which several boxes are a mask over all of them. NumPy lets other threads run while
it picks many cells by index or looks for the largest, and then waits for its turn, which takes
longer than to look at all of so few cells by arithmetic, which does not.
"""
_FAR: Final = 2**62
"""No sum is larger, and none is further below zero."""

Name = Annotated[str, Field(min_length=1, max_length=200)]


class Range(BaseModel, frozen=True, extra="forbid", populate_by_name=True):
    """An inclusive range of a dimension's values, in their declared order."""

    first: Name = Field(alias="from", description="first value, included")
    last: Name = Field(alias="to", description="last value, included")


DimensionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$")]


def stored_only(code: str, message: str) -> BeforeValidator:
    """Return a validator that refuses a form that only events hold, with this error."""

    def check(value: Any, info: ValidationInfo) -> Any:
        if not (info.context or {}).get("stored"):
            raise PydanticCustomError(code, message)
        return value

    return BeforeValidator(check)


def checked(check: Callable[[Any], object], value: Any) -> Any:
    """Return ``value`` if ``check`` raises no ValueError for it."""
    check(value)
    return value


def _sort_of(value: Any) -> str:
    if isinstance(value, list):
        return ":values"
    return ":positions" if isinstance(value, dict) and value.keys() <= CODES else ":range"


Positions = Annotated[
    dict[str, str],
    stored_only("not_names", "it must be a list of names, or a range"),
    AfterValidator(partial(checked, read)),
]
"""Values as events hold them where names would take too many bytes (positions.py)."""
Values = Annotated[
    Annotated[list[Name], Field(min_length=1), Tag(":values")]
    | Annotated[Range, Tag(":range")]
    | Annotated[Positions, Tag(":positions"), SkipJsonSchema()],
    Discriminator(_sort_of),
]
Term = dict[DimensionName, Values]
Terms = Annotated[list[Term], Field(min_length=1, max_length=MAX_TERMS)]
Subjects = Annotated[
    Annotated[Term, Tag(":term")] | Annotated[Terms, Tag(":terms")],
    Discriminator(lambda value: ":terms" if isinstance(value, list) else ":term"),
]

Side = range | frozenset[int]
"""Positions on a dimension, at least one; a range wherever they have no gap."""
Box = tuple[Side, ...]
Index = tuple[Any, ...]
Spots = tuple[int, tuple[int, ...], NDArray[np.intp]]
"""Rows and shape of an array, and what ``Selection.spots`` returns for it."""


class Layout(NamedTuple):
    """The place of a box in an array of cells."""

    in_row: Index
    """The index into one row: slices where contiguous (views), else arrays."""
    in_all: Index
    """The index into all rows."""
    views: bool
    """Indexing gives a view of the cells."""
    sides: tuple[Sequence[int], ...]

    @classmethod
    def of(cls, box: Box) -> Layout:
        """Return the layout of ``box``."""
        sides = tuple(map(ordered, box))
        scattered = sum(not isinstance(side, range) for side in box)
        index: Index
        if scattered > 1:
            index = np.ix_(*sides)
        else:  # an array beside slices is several times as fast as the product of arrays
            index = tuple(
                slice(side[0], side[-1] + 1)
                if isinstance(side, range)
                else np.array(side, dtype=np.intp)
                for side in sides
            )
        return cls(index, (slice(None), *index), not scattered, sides)

    def cell(self, at: int) -> tuple[int, ...]:
        """Return the cell at the place ``at`` of the box, in row-major order."""
        return _cell_at(self.sides, at)


class Selection(Struct, frozen=True, eq=False, gc=False):
    """Cells. ``everyone`` also covers cells that are added later; else ``boxes`` are disjoint.
    ``lasting``: everyone, and members of cells added later even if they are attested new.
    """

    everyone: bool
    boxes: tuple[Box, ...] = ()
    lasting: bool = False
    _bare: Selection | None = None
    _layouts: tuple[Layout, ...] | None = None
    _views: bool | None = None
    _mask: NDArray[np.int64] | None = None
    _outside: NDArray[np.int64] | None = None
    _few: bool | None = None
    _spots: tuple[Spots, ...] = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Selection):
            return NotImplemented
        mine = self.everyone, self.lasting, self.boxes
        return self is other or mine == (other.everyone, other.lasting, other.boxes)

    __ne__ = object.__ne__  # the structure's own would look at all fields

    def __hash__(self) -> int:
        return hash((self.everyone, self.boxes, self.lasting))

    def __repr__(self) -> str:
        return f"Selection({self.everyone}, {self.boxes!r}, lasting={self.lasting})"

    def bare(self) -> Selection:
        """Return the same cells without layouts and masks, which take several kilobytes."""
        if self.everyone or not (self._layouts or self._spots or self._mask is not None):
            return self
        if self._bare is None:
            force_setattr(self, "_bare", Selection(False, self.boxes))
        return self._bare or self

    def to_unit(self, *, spans: bool) -> Selection:
        """Return the cells that are charged for a unit, which ``spans`` several cells or not."""
        return LASTING if spans and self.lasting else EVERYONE if spans else self

    def to_last(self) -> Selection:
        """Return the cells of a charge that may still run, although no grant holds it."""
        return LASTING if self.everyone else self

    def within(self, box: Box) -> Selection | None:
        """Return the selected cells that lie in ``box``; None if there are none."""
        if self.everyone:
            return Selection(everyone=False, boxes=(box,))
        boxes = _within(self.boxes, box)
        return Selection(everyone=False, boxes=boxes) if boxes else None

    @property
    def views(self) -> bool:
        """True if indexing gives a view of the cells of every box."""
        if self._views is None:  # a group with gaps may have no other use for its layouts
            gaps = self._layouts is None and any(map(_has_gaps, self.boxes))
            found = not gaps and all(layout.views for layout in self.layouts)
            force_setattr(self, "_views", found)
            return found
        return self._views

    @property
    def layouts(self) -> tuple[Layout, ...]:
        """The place of each box in an array of sums, found once."""
        if self._layouts is None:
            found = _layouts_of(self.boxes)
            force_setattr(self, "_layouts", found)
            return found
        return self._layouts

    @property
    def few(self) -> bool:
        """True if it is one box of few cells with gaps: these are picked by their places in the
        flat array, in a fourth of the time of an index for each axis.
        """
        if self._few is None:
            [box, *others] = self.boxes or ((),)
            found = not others and _has_gaps(box) and prod(map(len, box)) <= FEW
            force_setattr(self, "_few", found)
            return found
        return self._few

    def spots(self, rows: int, shape: tuple[int, ...]) -> NDArray[np.intp]:
        """Return where the cells of the one box, which are few, are in an array of ``rows`` over
        all cells that is looked at as flat: (rows, cells), those of a row ascending.
        """
        first = None
        for of, over, known in self._spots:
            if over == shape:
                if of == rows:
                    return known
                first = known[0]
        if first is None:
            [box] = self.boxes
            first = np.array(_places(box, shape), dtype=np.intp)
        found: NDArray[np.intp] = first + _beginnings(rows, prod(shape))
        force_setattr(self, "_spots", (*self._spots[:3], (rows, shape, found)))
        return found

    def cell(self, at: int) -> tuple[int, ...]:
        """Return the cell at the place ``at`` of the one box, in row-major order."""
        [box] = self.boxes
        return _cell_at(tuple(map(ordered, box)), at)

    def mask(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return 1 at the selected cells of an array of ``shape``, 0 elsewhere; made once."""
        found = self._mask
        if found is None or found.shape != shape:
            found = _mask_of(self.boxes, shape)
            force_setattr(self, "_mask", found)
        return found

    def outside(self, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """Return 0 at the selected cells, flat, and far below all sums elsewhere; made once."""
        found = self._outside
        if found is None or self._mask is None or self._mask.shape != shape:
            found = ((self.mask(shape) - 1) * _FAR).reshape(-1)
            force_setattr(self, "_outside", found)
        return found

    def __or__(self, other: Selection) -> Selection:
        """Return the union of both, which must be disjoint."""
        return Selection(self.everyone or other.everyone, self.boxes + other.boxes)


def _cell_at(sides: Sequence[Sequence[int]], at: int) -> tuple[int, ...]:
    """Return the cell at the place ``at`` of these sides, in row-major order."""
    found = []
    for side in reversed(sides):
        at, place = divmod(at, len(side))
        found.append(side[place])
    found.reverse()
    return tuple(found)


def _places(box: Box, shape: tuple[int, ...]) -> Sequence[int]:
    """Return the places of a box in row-major order."""
    found = ordered(box[0])
    for side, size in zip(box[1:], shape[1:], strict=True):
        if len(side) == 1:
            [position] = side
            found = [before * size + position for before in found]
        else:
            positions = ordered(side)
            found = [before * size + position for before in found for position in positions]
    return found


@lru_cache(maxsize=1_024)
def _beginnings(rows: int, cells: int) -> NDArray[np.intp]:
    """Return where each row of an array over all cells begins if it is looked at as flat."""
    return (np.arange(rows, dtype=np.intp) * cells).reshape(-1, 1)


def _has_gaps(box: Box) -> bool:
    return frozenset in map(type, box)


@lru_cache(maxsize=2_048)
def _layouts_of(boxes: tuple[Box, ...]) -> tuple[Layout, ...]:
    return tuple(map(Layout.of, boxes))


@lru_cache(maxsize=2_048)
def _within(boxes: tuple[Box, ...], taken: Box) -> tuple[Box, ...]:
    found = []
    for box in boxes:
        common = [_common(a, b) for a, b in zip(box, taken, strict=True)]
        if all(common):
            found.append(tuple(map(side_of, common)))
    return tuple(found)


@lru_cache(maxsize=2_048)
def _mask_of(boxes: tuple[Box, ...], shape: tuple[int, ...]) -> NDArray[np.int64]:
    masks = [_mask(box, shape) for box in boxes]
    return reduce(np.add, masks) if masks else np.zeros(shape, dtype=np.int64)


def _mask(box: Box, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return 1 at the cells of ``box``, as a product of its sides."""
    lines = []
    for side, size in zip(box, shape, strict=True):
        line = [0] * size
        for position in side:
            line[position] = 1
        lines.append(np.array(line, dtype=np.int64))
    return reduce(np.multiply.outer, lines) if lines else np.ones((), dtype=np.int64)


EVERYONE: Final = Selection(everyone=True)
LASTING: Final = Selection(everyone=True, lasting=True)


def select(population: Population, subjects: Subjects | None) -> Selection:
    """Compile ``subjects``, read or as events hold them (None or {}: everyone). Raises Invalid for
    unknown names or values.
    """
    if subjects is None or subjects == {}:
        return EVERYONE
    terms = subjects if isinstance(subjects, list) else [subjects]
    if any(term == {} for term in terms):
        return EVERYONE
    return _union(population, terms, MAX_WORK)


def box_of(population: Population, term: Mapping[str, list[str]]) -> Box:
    """Return the cells that have, of each dimension of ``term``, one of its values. Raises Invalid
    for unknown names or values.
    """
    return _box(population, dict(term))


def reaching(
    population: Population, subjects: Subjects | None, dimension: str, values: list[str]
) -> Selection:
    """Return the cells with one of ``values`` that ``subjects`` covers without naming
    ``dimension``: a group that names no value of a dimension means all of them, later ones too.

    Its complexity is not bounded, for an event that is folded cannot be refused.
    """
    terms = subjects if isinstance(subjects, list) else [subjects or {}]
    unnamed = [term | {dimension: values} for term in terms if dimension not in term]
    return _union(population, unnamed, None)


def _union(population: Population, terms: Sequence[Term], most: int | None) -> Selection:
    if len(terms) == 1:
        box = _box(population, terms[0])
        _bounded(_members(box), most, 0)
        return Selection(everyone=False, boxes=(box,))
    disjoint: list[Box] = []
    work = 0
    for term in terms:
        pieces = [_box(population, term)]
        work += _members(pieces[0])
        _bounded(work, most, len(disjoint))
        for taken in disjoint:
            left: list[Box] = []
            for piece in pieces:
                rest, looked_at = _minus(piece, taken)
                left += rest
                work += looked_at
                _bounded(work, most, len(disjoint) + len(left))
            pieces = left
        disjoint += pieces
    return Selection(everyone=False, boxes=tuple(disjoint))


def _bounded(work: int, most: int | None, boxes: int) -> None:
    if most is not None and (work > most or boxes > MAX_BOXES):
        raise Invalid(
            "selection-too-complex",
            f"the union falls into more than {MAX_BOXES} separate boxes of cells, or takes more "
            f"than {most} steps to get there; ask for simpler groups",
        )


def ordered(side: Side) -> Sequence[int]:
    """Return the positions, sorted."""
    return side if isinstance(side, range) else sorted(side)


def side_of(positions: Collection[int]) -> Side:
    """Return the one form of these positions, of which some may be stated twice."""
    if type(positions) is range:
        return positions
    members = frozenset(positions)
    first, last = min(members), max(members)
    return range(first, last + 1) if last - first + 1 == len(members) else members


def runs_of(side: Side) -> tuple[tuple[int, int], ...]:
    """Return the first and the last position of each part without a gap."""
    if isinstance(side, range):
        return ((side[0], side[-1]),)
    values = np.sort(np.fromiter(side, dtype=np.int64, count=len(side)))
    ends = np.flatnonzero(np.diff(values) != 1)
    firsts, lasts = values[[0, *(ends + 1)]], values[[*ends, -1]]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def side_from(runs: Sequence[tuple[int, int]], most: int) -> Side:
    """Return the side of these runs. Raises ValueError unless it fits into ``most`` positions."""
    if not runs or max(last for _, last in runs) >= most:
        raise ValueError("a side of a box is empty or too long")
    first, *others = (range(first, last + 1) for first, last in runs)
    return side_of(set(first).union(*others) if others else first)


def _members(box: Box) -> int:
    """Return the number of members of sets; ranges cost nothing."""
    found = 0
    for side in box:
        if type(side) is not range:
            found += len(side)
    return found


def _box(population: Population, term: Term) -> Box:
    sides = list[Side](population.whole)
    for dimension, wanted in term.items():
        axis = population.axis(dimension)
        if (ends := _ends(wanted)) is not None:
            first, last = population.indices(axis, ends)
            if first > last:
                raise Invalid(
                    "empty-range",
                    f"in dimension {dimension!r} {ends[0]!r} comes after {ends[1]!r}; "
                    "ranges follow the declared order",
                )
            sides[axis] = range(first, last + 1)
        elif isinstance(wanted, dict):
            positions = read(wanted)
            if positions[-1] >= population.shape[axis]:
                raise Invalid(
                    "unknown-group", f"dimension {dimension!r} has no position {positions[-1]}"
                )
            sides[axis] = side_of(positions.tolist())
        elif not isinstance(wanted, Range):
            sides[axis] = side_of(population.indices(axis, wanted))
    return tuple(sides)


def _ends(wanted: Any) -> tuple[str, str] | None:
    """Return the first and the last value of a range, as it is read or as events hold it."""
    if isinstance(wanted, Range):
        return wanted.first, wanted.last
    return (wanted["from"], wanted["to"]) if type(wanted) is dict and "from" in wanted else None


def _minus(box: Box, taken: Box) -> tuple[list[Box], int]:
    """Return ``box`` without ``taken`` as disjoint boxes, and how many members were looked at."""
    common = [_common(a, b) for a, b in zip(box, taken, strict=True)]
    if not all(common):
        return [box], _members(box)
    pieces = []
    for axis, (mine, shared) in enumerate(zip(box, common, strict=True)):
        if len(shared) < len(mine):
            outside = side_of(set(mine).difference(shared))
            pieces.append((*map(side_of, common[:axis]), outside, *box[axis + 1 :]))
    return pieces, sum(map(len, box))


def _common(mine: Side, theirs: Side) -> Collection[int]:
    """Return the positions that are in both."""
    if isinstance(mine, range) and isinstance(theirs, range):
        return range(max(mine.start, theirs.start), min(mine.stop, theirs.stop))
    if isinstance(mine, range):
        return [position for position in theirs if position in mine]
    return [position for position in mine if position in theirs]


def alike(cells: NDArray[np.int64]) -> Iterator[tuple[tuple[Box, ...], NDArray[np.int64]]]:
    """Yield groups of cells with the same sums, and these; cells that hold nothing are left out."""
    flat = cells.reshape(len(cells), -1)
    where = np.flatnonzero(flat.any(axis=0))
    if not where.size:
        return
    columns, kinds = np.unique(flat[:, where], axis=1, return_inverse=True)
    kinds = kinds.reshape(-1)
    places = np.stack(np.unravel_index(where, cells.shape[1:]), axis=1)
    order = np.argsort(kinds, kind="stable")  # within a kind the cells keep their order
    ends = np.cumsum(np.bincount(kinds))[:-1]
    for kind, part in enumerate(np.split(places[order], ends)):
        yield tuple(boxes_of(part)), columns[:, kind]


def boxes_of(places: NDArray[np.intp]) -> Iterator[Box]:
    """Yield disjoint boxes of these cells, which are given in order, a row a cell."""
    if places.shape[1] == 1:
        yield (frozenset(places[:, 0].tolist()),)
        return
    firsts, starts = np.unique(places[:, 0], return_index=True)
    same: dict[bytes, tuple[NDArray[np.intp], list[int]]] = {}
    for first, rest in zip(firsts.tolist(), np.split(places[:, 1:], starts[1:]), strict=True):
        same.setdefault(rest.tobytes(), (rest, []))[1].append(first)
    for rest, side in same.values():
        for box in boxes_of(rest):
            yield (frozenset(side), *box)
