"""What of a limit is still locked, by cell.

On each cell a share of the limit is unlocked, from 0 to 1, and in every currency that is compared a
charge has to fit ``used + charge <= floor(capacity * share)``. What is locked, the rest of the
capacity, is like a reservation that nobody owns: ``used + charge + locked <= capacity``. So one
comparison (peak.py) serves for both, on sums to which it is added.

It only tightens: ``floor(capacity * share)`` is at most the capacity in each currency, so whatever
is admitted here is admitted without it, and the filter's promise holds as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.classes import Classes, Space
from accountant.budget.accounts.integers import Integers
from accountant.budget.accounts.numbering import Shape
from accountant.budget.accounts.spans import Period
from accountant.budget.accounts.sums import Sums
from accountant.budget.population.population import Population
from accountant.budget.population.selection import EVERYONE, Selection
from accountant.privacy.filters import Capacity
from accountant.privacy.units import LARGEST, Axis

_MOST: Final = LARGEST - 1
"""The most of a capacity that unlocks, so that no sum with what is locked wraps."""
Cell = tuple[int, ...]
Grown = tuple[tuple[int, int, int], ...]
"""Of a population (population.py)."""


class Arrivals(NamedTuple):
    """How many requests have asked for each cell of an account, of a limit that they unlock."""

    ends: int | None
    """The stamp from which they no longer count, where the limit refreshes."""
    counts: Sums

    def at(self, now: int) -> Arrivals | None:
        """Return what counts at stamp ``now``; None if nothing does."""
        return self if self.ends is None or now < self.ends else None


class Lock(NamedTuple):
    """The shares of a limit that are unlocked, and in one row of each cell which of them; without
    cells the one share of all.
    """

    shares: tuple[Fraction, ...]
    of: Sums | None = None

    @property
    def open(self) -> bool:
        """Nothing is locked any more."""
        return min(self.shares) >= 1

    def share(self, cell: Cell | None) -> Fraction:
        """Return the share of a cell; None stands for any, where all are alike."""
        return self.shares[0 if self.of is None else self.of.of(0, cell)[0]]

    def on(self, account: Account, capacity: Capacity) -> Account:
        """Return ``account`` with what is locked as if it were used."""
        locked = [_locked(account.axis, capacity, share) for share in self.shares]
        if self.of is None:
            used = account.used.over()
            used.add(EVERYONE, locked[0], [0] * used.rows)
        else:
            used = account.used.shifted(self.of, np.array(locked, dtype=np.int64).T)
        most = map(max, zip(*locked, strict=True))
        bound = [a + b for a, b in zip(account.bound, most, strict=True)]
        return Account(account.axis, used, bound, account.held)


UNLOCKED: Final = Lock((Fraction(1),))


@lru_cache(maxsize=1_024)
def whole(capacity: Capacity) -> Capacity:
    """Return what of a capacity unlocks: no more than a sum can hold beside it."""
    along = tuple(min(most, _MOST) for most in capacity.along)
    return replace(capacity, epsilon=min(capacity.epsilon, _MOST), along=along)


def unlocked(capacity: Capacity, share: Fraction) -> Capacity:
    """Return the most that a cell may hold of which ``share`` is unlocked, rounded down."""
    most = whole(capacity)
    if share >= 1:
        return most
    return Capacity(
        _part(most.epsilon, share),
        _part(most.own_delta, share),
        tuple(_part(each, share) for each in most.along),
        most.currencies,
    )


def without(capacity: Capacity, locked: Sequence[int]) -> Capacity:
    """Return the most that a cell may hold where so much is locked, in the order of ``sides``."""
    most = whole(capacity)
    epsilon, own, *along = (side - each for (_, side), each in zip(most.sides, locked, strict=True))
    return Capacity(epsilon, own, tuple(along), most.currencies)


def _part(most: int, share: Fraction) -> int:
    """Return a share of a capacity; one below zero, where nothing fits, has no part."""
    return most if most <= 0 else int(most * share // 1)


@lru_cache(maxsize=1_024)
def _locked(axis: Axis, capacity: Capacity, share: Fraction) -> list[int]:
    """Return the units that are locked in each currency of ``axis``, 0 where none is compared."""
    pairs = zip(whole(capacity).sides, unlocked(capacity, share).sides, strict=True)
    locked = {currency: most - part for (currency, most), (_, part) in pairs}
    return [locked.get(currency, 0) for currency in axis]


def over_time(
    people: Population, length: int, begun: int, period: Period | None, now: int, space: Space
) -> Lock:
    """Return the lock of a limit that unlocks evenly over ``length``, at stamp ``now``: on each
    cell from when its youngest value was added, or from when the limit was first adopted, or with
    the ``period`` that it refreshes by, whichever is the latest.
    """
    first = begun if period is None else max(begun, period.start)

    def share(born: int) -> Fraction:
        return Fraction(min(max(now - max(first, born), 0), length), length)

    if not people.grown:
        return Lock((share(0),))
    if isinstance(space, Classes):
        each, kinds = np.unique(space.born, return_inverse=True)
        return _lock(tuple(map(share, each.tolist())), Sums.of_kinds(space, kinds))
    stamps, of = _stamps(people.shape, people.grown)
    return _lock(tuple(map(share, stamps)), of)


@lru_cache(maxsize=64)
def _stamps(shape: Shape, grown: Grown) -> tuple[tuple[int, ...], Sums]:
    """Return when cells came, and of each cell which of these stamps is its own."""
    stamps, of = np.unique(born(shape, grown), return_inverse=True)
    return tuple(stamps.tolist()), Sums.of_kinds(shape, of)


def born(shape: Shape, grown: Grown) -> Integers:
    """Return the stamp at which each cell came."""
    found = np.zeros(shape, dtype=np.int64)
    for axis, first, stamp in grown:  # in the order of their stamps
        found[(*(slice(None),) * axis, slice(first, None))] = stamp
    return found


def per_request(
    share: Fraction,
    arrived: Arrivals | None,
    arriving: Selection,
    more: int,
    space: Space,
) -> Lock:
    """Return the lock of a limit of which each request unlocks ``share`` on its cells, with so many
    ``more`` that are ``arriving``: it is looked at on these cells only.
    """
    counts = Sums(1, space) if arrived is None else arrived.counts.over()
    if isinstance(space, Classes):
        arriving = EVERYONE  # a request that is only judged parts no class
    if more:
        counts.add(arriving, [more], [0])
    enough = -(-1 // share)
    if counts.flat:
        return Lock((min(share * counts.everyone[0], Fraction(1)),))
    many, of = counts.kinds(0, int(enough))
    return _lock(tuple(min(share * n, Fraction(1)) for n in many), of)


def _lock(shares: tuple[Fraction, ...], of: Sums) -> Lock:
    """Return a lock; one without cells where all have the same share."""
    return Lock(shares[:1]) if len(set(shares)) == 1 else Lock(shares, of)
