"""A finite universe of records, its histogram, and linear questions about it, all in whole numbers.

A cell is one combination of the listed categories of some columns. A linear question gives each
cell a weight from 0 to 1, and its answer is the sum of the weights of all records. Weights are
rounded to 2^-20, and the rounded question is what is asked: its answer is a whole number of such
``PARTS``, exactly, and one record changes it by ``PARTS`` at most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.queries import frame
from accountant.queries.exact import Numbers
from accountant.queries.records import Records
from accountant.queries.same import key

PARTS: Final = 2**20
"""Parts of 1 in which weights and answers are counted."""
MOST_CELLS: Final = 10**7
MOST_RECORDS: Final = 2**32
"""Records whose answer in parts a float holds exactly."""

Counts = NDArray[np.int64]
"""Records in each cell."""


@dataclass(frozen=True, eq=False, slots=True)
class Linear:
    """A linear question: True for the cells that count, or the weight of each cell in parts."""

    weights: NDArray[np.bool_] | NDArray[np.int32]

    def of(self, counts: Counts) -> int:
        """Return the exact answer, in parts."""
        if self.weights.dtype == np.bool_:
            return int(counts[self.weights].sum()) * PARTS
        return int(counts @ self.weights.astype(np.int64))

    def on(self, cells: Numbers) -> int:
        """Return the answer of public numbers of records, in parts, rounded."""
        if self.weights.dtype == np.bool_:
            return round(float(cells[self.weights].sum()) * PARTS)
        return round(float(cells @ self.weights))

    @property
    def shares(self) -> Numbers:
        """The weights from 0 to 1."""
        whole = 1 if self.weights.dtype == np.bool_ else PARTS
        return self.weights.astype(np.float64) / whole


@dataclass(frozen=True, slots=True)
class Universe:
    """The cells of some columns, numbered with the last column fastest."""

    columns: Mapping[str, tuple[Any, ...]]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", math.prod(map(len, self.columns.values())))

    @classmethod
    def of(cls, data: Records, columns: Mapping[str, Sequence[Any] | None]) -> Universe:
        """Return the universe of the listed categories: of None, those of the registered dimension.
        Raise ValueError where there are none, or too many cells.
        """
        if not columns:
            raise ValueError("a universe has at least one column")
        found = {name: data.categories(name, given) for name, given in columns.items()}
        for name in found:
            data.table.column(name)
        universe = cls(found)
        if not 2 <= universe.size <= MOST_CELLS:
            raise ValueError(f"a universe has 2 to {MOST_CELLS} cells, not {universe.size}")
        return universe

    def counts(self, data: Records) -> Counts:
        """Return how many selected records there are in each cell. A record with a value that is
        not listed is counted nowhere.
        """
        columns = data.raw(*self.columns)
        if len(columns[0]) > MOST_RECORDS:
            raise ValueError(f"{len(columns[0])} records are more than {MOST_RECORDS}")
        cell = np.zeros(len(columns[0]), dtype=np.int64)
        inside = np.ones(len(cell), dtype=np.bool_)
        for (name, categories), column in zip(self.columns.items(), columns, strict=True):
            values = frame.as_text(column) if name in data.people.dimensions else column
            place = frame.categorised(values, categories)
            inside &= place >= 0
            cell = cell * len(categories) + place
        return np.bincount(cell[inside], minlength=self.size).astype(np.int64)

    def where(self, **equal: Any) -> Linear:
        """Return the question how many records have these values, one or several of a column.
        Raise ValueError for a value that is not listed.
        """
        mask = np.ones((), dtype=np.bool_)
        if strange := set(equal) - set(self.columns):
            raise ValueError(f"the universe has no column {min(strange)!r}")
        for name, categories in self.columns.items():
            wanted = frame.listed(equal[name]) if name in equal else categories
            keys, known = set(map(key, wanted)), list(map(key, categories))
            if outside := [value for value in wanted if key(value) not in known]:
                raise ValueError(f"{outside[0]!r} is no listed category of {name!r}")
            mask = np.multiply.outer(mask, np.array([each in keys for each in known]))
        return Linear(mask.reshape(-1))

    def linear(self, weights: Any) -> Linear:
        """Return the question with a weight from 0 to 1 for each cell, in the order of the cells,
        or True for those that count. Raise ValueError for other weights.
        """
        if isinstance(weights, Linear):
            weights = weights.weights if weights.weights.dtype == np.bool_ else weights.shares
        given = np.asarray(weights)
        if given.shape != (self.size,):
            raise ValueError(f"a question has {self.size} weights, not {given.shape}")
        if given.dtype == np.bool_:
            return Linear(given)
        numbers = frame.numbers("weights", given)
        if not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.max() <= 1):
            raise ValueError("weights are numbers from 0 to 1")
        return Linear(np.floor(numbers * PARTS + 0.5).astype(np.int32))

    def all_linear(self, questions: Sequence[Any]) -> tuple[Linear, ...]:
        """Return several questions. Raise ValueError if there are fewer than two."""
        found = tuple(self.linear(each) for each in questions)
        if len(found) < 2:
            raise ValueError("give at least two questions")
        return found


def exactly(parts: int) -> Fraction:
    """Return a number of parts as what it is."""
    return Fraction(parts, PARTS)


def as_float(parts: int) -> float:
    """Return a number of parts, exactly: answers have fewer than 2^53."""
    if abs(parts) >= 2**53:
        raise ValueError(f"{parts / PARTS:.6g} is more than {MOST_RECORDS} records")
    return parts / PARTS
