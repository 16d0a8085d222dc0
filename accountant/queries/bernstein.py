"""The Bernstein mechanism: a whole function of the data, released by its values on a grid.

Aldà and Rubinstein 2017. Noise is added to the values at the points of a grid, once; the Bernstein
polynomial of the noisy values is then the answer at every point. It is made from the noisy values
alone, so that it may be asked as often as anybody likes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from accountant.client.amounts import Amount
from accountant.queries.arguments import pair, whole_number
from accountant.queries.budgets import Budget
from accountant.queries.exact import Numbers, clipped, exact_sum, root_above
from accountant.queries.frame import listed
from accountant.queries.query import Error, Query
from accountant.queries.records import Records

Summand = Callable[..., Any]
"""From the columns, and after them a point, one number a record: each from its own record alone."""
MOST_VALUES: Final = 2**16
MOST_DEGREE: Final = 512
MOST_ORDER: Final = 8


@dataclass(frozen=True, slots=True)
class Polynomial:
    """A Bernstein polynomial on a box."""

    axes: tuple[tuple[float, float], ...]
    coefficients: NDArray[np.float64] = field(repr=False)
    """One axis a dimension."""

    def __call__(self, *point: float) -> float:
        """Return the value at a point of the box. Raise ValueError for one outside."""
        if len(point) != len(self.axes):
            raise ValueError(f"a point has {len(self.axes)} coordinates, not {len(point)}")
        found = self.coefficients
        for value, (low, high) in zip(point, self.axes, strict=True):
            if not low <= value <= high:
                raise ValueError(f"{value} is not between {low} and {high}")
            weights = bernstein(found.shape[0] - 1, np.array([(value - low) / (high - low)]))
            found = np.tensordot(weights[0], found, axes=1)
        return float(found)


def bernstein(degree: int, points: Numbers) -> NDArray[np.float64]:
    """Return the basis polynomials C(k, v) u^v (1 - u)^(k - v), v = 0 .. k: a row a point u in [0,
    1].
    """
    orders = np.arange(degree + 1)
    logs = np.array([math.lgamma(degree + 1) - math.lgamma(v + 1) - math.lgamma(degree - v + 1)
                     for v in range(degree + 1)])  # fmt: skip
    u = np.clip(points, 0, 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        powers = np.where(orders == 0, 0, orders * np.log(u))
        powers += np.where(orders == degree, 0, (degree - orders) * np.log1p(-u))
    found = np.exp(logs + powers)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def function(
    data: Records,
    columns: Sequence[str],
    summand: Summand,
    within: tuple[Amount, Amount],
    axes: Sequence[tuple[Amount, Amount]],
    *,
    degree: int,
    epsilon: Amount | None = None,
    rho: Amount | None = None,
    order: int = 1,
) -> Query:
    """Return the query for the function F(t) = sum over records of ``summand(*columns, *t)`` on a
    box: ``axes`` are its sides. The answer is a ``Polynomial``.

    The summand of a record has to be made of that record alone. It is cut to ``within``, which has
    to come from public knowledge, like the axes. The grid has ``degree`` + 1 = k + 1 points an
    axis, (k + 1)^l in all.

    **Sensitivity.** A unit changes each of these sums by at most what it changes a sum of numbers
    within these bounds (``Unit.of_sum``), and so the list by (k + 1)^l times that in all (L1), and
    by its root times that in length (L2).

    ``order`` h: the iterated polynomial (Micchelli 1973), whose coefficients are c = sum over j < h
    of (I - B)^j v for the values v, where B takes values on the grid to the polynomial's values
    there. It follows smoother functions more closely, and multiplies noise by at most 2^h - 1.

    **Error.** Only the noise is bounded, at all points at once: a polynomial of order 1 is an
    average of the values on the grid, so its noise is at most the largest of theirs. How far a
    polynomial is from F without noise depends on how smooth F is: for order 1 at most 3/2 of what F
    changes within 1 / root(k) of an axis (Popoviciu 1935; in one dimension).
    """
    degree = whole_number("degree", degree, 1, MOST_DEGREE)
    order = whole_number("order", order, 1, MOST_ORDER)
    sides = _sides(axes)
    size = (degree + 1) ** len(sides)
    if size > MOST_VALUES:
        raise ValueError(f"{size} points of the grid are more than 65536: take a lower degree")
    low, high = pair("the bounds of the summand", within)
    reach = data.unit().of_sum(low, high)
    if not reach:
        raise ValueError("within is a single number: the function would be the same for all data")
    budget = Budget.of(data, epsilon, rho)
    step = budget.noise_on_list(size, size * reach, root_above(Fraction(size)) * reach)
    if not (names := listed(columns)):
        raise ValueError("the function reads at least one column")
    read = data.raw(*names)

    def values() -> list[Any]:
        grids = [np.linspace(*side, degree + 1).tolist() for side in sides]
        return [[_sum(summand, read, point, low, high) for point in product(*grids)]]

    def finish(drawn: Sequence[Any]) -> Polynomial:
        noisy = np.array(drawn[0]).reshape([degree + 1] * len(sides))
        return Polynomial(sides, iterated(noisy, order))

    def bounds(confidence: float, drawn: Sequence[Any] | None, records: int | None) -> Error:
        how = f"{2**order - 1} times the quantile of the noise of all points of the grid"
        amount = (2**order - 1) * step.within(1 - confidence)
        return Error(amount, confidence, "units of the function", how)

    return Query("function", data.charged, (step,), values, finish, bounds, data.notes)


def iterated(values: NDArray[np.float64], order: int) -> NDArray[np.float64]:
    """Return the coefficients of the iterated polynomial of values on a grid."""
    degree = values.shape[0] - 1
    operator = bernstein(degree, np.linspace(0, 1, degree + 1))
    found = values
    for _ in range(order - 1):
        there = found
        for axis in range(values.ndim):
            there = np.moveaxis(np.tensordot(operator, there, axes=(1, axis)), 0, axis)
        found = values + found - there
    return found


def _sum(
    summand: Summand, read: Sequence[Any], point: Sequence[float], low: Fraction, high: Fraction
) -> Fraction:
    found = np.asarray(summand(*read, *point), dtype=np.float64)
    size = len(read[0])
    if found.shape != (size,):
        raise ValueError(f"the summand returned {found.shape} for {size} records: one number each")
    if np.isnan(found).any():
        raise ValueError(f"the summand is not a number for some record at {tuple(point)}")
    return exact_sum(clipped(found, low, high))


def _sides(axes: Sequence[tuple[Amount, Amount]]) -> tuple[tuple[float, float], ...]:
    if not axes:
        raise ValueError("the function has at least one axis: axes=[(least, largest)]")
    found = [pair("the ends of an axis", axis) for axis in axes]
    return tuple((float(low), float(high)) for low, high in found)
