"""The most that one privacy unit can change: the sensitivities of sums, counts and ranks.

The neighbouring relation decides. With add or remove one, a unit's records are there or not. With
replace one, they are exchanged for others; where every unit has exactly one record, and stays in
its group, the number of records is the same in both data sets, and public.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from accountant.queries.exact import root_above


@dataclass(frozen=True, slots=True)
class Unit:
    """A privacy unit of at most ``records`` records, as the neighbouring relation sees it."""

    present: bool
    """Neighbours differ by a unit that is there or not; else by one that is exchanged."""
    fixed: bool
    """Every unit has exactly one record here, whatever it says: their number is public."""
    records: int = 1
    """The most records of a unit."""

    def of_sum(self, low: Fraction, high: Fraction) -> Fraction:
        """Return the most by which a unit changes a sum of one summand a record, each in [low,
        high]; 0 for a number that is public.

        A unit brings between 0 and ``records`` summands. Added or removed, it changes the sum by
        what it brings; exchanged, by the difference of what two of them bring.
        """
        if self.present:
            return self.records * max(abs(low), abs(high))
        if self.fixed:
            return high - low
        return self.records * (max(high, Fraction(0)) - min(low, Fraction(0)))

    def of_cells(self) -> int:
        """Return the most by which a unit changes counts of disjoint categories, in all (L1): each
        record counts in one at most; exchanged, it leaves one and enters another.
        """
        return self.records if self.present else 2 * self.records

    def of_cells_in_length(self) -> Fraction:
        """Return the same in Euclidean length (L2), at most: all records in one category, or all
        moved from one to another, where the square root of 2 is rounded up.
        """
        one = Fraction(self.records)
        return one if self.present else one * root_above(Fraction(2))

    def of_rank(self, share: Fraction) -> Fraction:
        """Return the most by which a unit changes ``below - share * all``: a record that comes
        changes it by 1 - share or by -share, one that is exchanged by 1 at most.
        """
        return self.records * (max(share, 1 - share) if self.present else Fraction(1))
