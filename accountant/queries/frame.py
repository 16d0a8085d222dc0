"""Tables: a pandas or polars DataFrame, or a mapping of arrays, as columns of NumPy.

Neither library is imported here: a frame that is given brings its own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.queries.arguments import real
from accountant.queries.exact import Numbers
from accountant.queries.same import key, keys

Mask = NDArray[np.bool_]
Column = NDArray[Any]

_MISSING: Final = frozenset({"NAType", "NaTType"})
_SHOWN: Final = 5
_MANY: Final = 100
"""Numbers for each category, beyond which categories are looked for among the numbers."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Columns of equal length, read when they are first asked for."""

    names: tuple[str, ...]
    rows: int
    _read: Callable[[str], Any]

    @classmethod
    def of(cls, data: Any) -> Frame:
        """Return the frame of a DataFrame or of a mapping of arrays. Raise TypeError for anything
        else, and ValueError if it is empty or its columns differ in length.
        """
        if isinstance(data, Mapping):
            columns = {name: _array(values) for name, values in data.items()}
            own, get = list(data), columns.__getitem__
        elif hasattr(data, "columns") and hasattr(data, "__getitem__") and hasattr(data, "shape"):
            held = _held(data)
            own, get = list(held.columns), lambda name: held[name].to_numpy()
        else:
            raise TypeError(
                f"{type(data).__name__} is no table: give a pandas or polars DataFrame, or a "
                "mapping of column names to arrays"
            )
        names = tuple(map(str, own))
        if not names:
            raise ValueError("the table has no columns")
        named = dict(zip(names, own, strict=True))

        def read(name: str) -> Any:
            return get(named[name])

        lengths = {len(get(name)) for name in (own if isinstance(data, Mapping) else own[:1])}
        if len(lengths) > 1:
            raise ValueError(f"the columns differ in length: {sorted(lengths)}")
        if lengths == {0}:
            raise ValueError("the table has no rows: there is nobody to ask about")
        return cls(names, lengths.pop(), read)

    def column(self, name: str) -> Column:
        """Return a column as it is. Raise ValueError if there is none of that name, or two."""
        if name not in self.names:
            raise ValueError(f"there is no column {name!r}; there are: {', '.join(self.names)}")
        found: Column = np.asarray(self._read(name))
        if found.ndim != 1 or self.names.count(name) > 1:
            raise ValueError(f"column {name!r} is not one list of values")
        return found


def _held(table: Any) -> Any:
    """Return a DataFrame that keeps its rows and columns when those of the given one are changed.
    No value is copied.
    """
    if hasattr(table, "iloc"):  # pandas
        return table.copy(deep=False)
    return table.clone() if hasattr(table, "clone") else table


def _array(values: Any) -> Column:
    """Return values as an array; what a masked array hides is missing."""
    if isinstance(values, np.ma.MaskedArray):
        found = np.asarray(values.data).astype(object)
        found[np.ma.getmaskarray(values)] = None
        return found
    return np.asarray(values)


def locked(column: Column) -> Column:
    """Return the same values as an array that cannot be changed."""
    found = column.view()
    found.flags.writeable = False
    return found


def missing(column: Column) -> Mask:
    """Return which values are None, NaN, or another library's sign for a missing value."""
    if column.dtype.kind == "f":
        return np.asarray(np.isnan(column))
    if column.dtype.kind in "mM":
        return np.asarray(np.isnat(column))
    if column.dtype.kind != "O":
        return np.zeros(len(column), dtype=np.bool_)
    return np.fromiter((_is_missing(value) for value in column), np.bool_, len(column))


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ in _MISSING:
        return True
    return isinstance(value, float | np.floating | Decimal) and value != value  # noqa: PLR0124


def numbers(name: str, column: Column) -> Numbers:
    """Return the values of a column, of which none is missing, as floats. Raise ValueError if they
    are not numbers.
    """
    if column.dtype.kind in "biuf":
        return column.astype(np.float64)
    kinds = {type(value) for value in column} if column.dtype.kind == "O" else {column.dtype.type}
    if column.dtype.kind != "O" or not all(issubclass(kind, Real | Decimal) for kind in kinds):
        told = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ValueError(f"column {name!r} is not numeric but {told}: turn it into numbers first")
    return np.array([real(value) for value in column], dtype=np.float64)


def among(column: Column, values: Iterable[Any]) -> Mask:
    """Return which entries are the same as one of ``values``."""
    return np.asarray(categorised(column, values) >= 0)


def categorised(column: Column, categories: Iterable[Any]) -> NDArray[np.int64]:
    """Return the place of each entry's category, the first that is the same, or -1."""
    known: dict[Any, int] = {}
    for place, category in enumerate(categories):
        known.setdefault(key(category), place)
    if column.dtype.kind == "O":
        return np.fromiter((known.get(each, -1) for each in keys(column)), np.int64, len(column))
    values, inverse = np.unique(column, return_inverse=True)
    if column.dtype.kind in "iuf" and len(values) > _MANY * len(known):
        return _searched(values, known)[inverse]
    return np.array([known.get(each, -1) for each in keys(values)], dtype=np.int64)[inverse]


def _searched(values: Column, known: Mapping[Any, int]) -> NDArray[np.int64]:
    """Return the same for sorted numbers of one type, by looking for each category among them."""
    found = np.full(len(values), -1, dtype=np.int64)
    end = len(values) - int(missing(values[-1:])[0])  # NaN is the last
    for wanted, place in known.items():
        if isinstance(wanted, Fraction | float):
            at = bisect_left(values, wanted, hi=end, key=key)  # type: ignore[arg-type]
        else:
            at = len(values) - 1
        if at < len(values) and key(values[at]) == wanted:
            found[at] = place
    return found


def agree(one: Column, other: Column) -> Mask:
    """Return where two columns have the same value."""
    if one.dtype == other.dtype and one.dtype.kind != "O":
        return np.asarray(one == other)
    pairs = zip(keys(one), keys(other), strict=True)
    return np.fromiter((left == right for left, right in pairs), np.bool_, len(one))


def as_text(column: Column) -> Column:
    """Return the entries as texts, as the values of dimensions are."""
    if column.dtype.kind == "U":
        return column
    return np.array([str(value) for value in column.tolist()], dtype=object)


def unknown(column: Column, values: Collection[Any]) -> list[Any]:
    """Return the first few entries that are none of ``values``."""
    known = set(values)
    found = dict.fromkeys(value for value in column.tolist() if value not in known)
    return list(found)[:_SHOWN]


def places(column: Column) -> NDArray[np.intp]:
    """Return a number for each entry, the same for those that are the same."""
    if column.dtype.kind == "O":
        numbered: dict[Any, int] = {}
        each = (numbered.setdefault(value, len(numbered)) for value in keys(column))
        return np.fromiter(each, np.intp, len(column))
    return np.unique(column, return_inverse=True)[1].astype(np.intp)


def first(units: NDArray[np.intp], most: int) -> Mask:
    """Return which rows are among the first ``most`` of their unit, in the order of the table."""
    order = np.argsort(units, kind="stable")
    ordered = units[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[begins, len(ordered)])
    found = np.empty(len(units), dtype=np.bool_)
    found[order] = np.arange(len(units)) - np.repeat(begins, lengths) < most
    return found


def most_rows(units: NDArray[np.intp]) -> int:
    """Return the largest number of rows of a unit."""
    return int(np.bincount(units).max())


def listed(values: Any) -> tuple[Any, ...]:
    """Return one value as a tuple of it, and several as a tuple."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        return (values,)
    return tuple(values)
