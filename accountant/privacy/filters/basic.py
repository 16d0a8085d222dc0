"""Basic composition."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from accountant.privacy.filters.base import Capacity, Limit, sure_capacity


class Basic:
    """The sum of epsilons and the sum of deltas.

    Source: Rogers, Roth, Ullman, Vadhan, "Privacy odometers and filters", NeurIPS 2016 (fully
    adaptive); Vadhan and Wang 2021, Vadhan and Zhang 2023 (concurrent interactive mechanisms).
    Precondition: none beyond (epsilon_i, delta_i)-DP of each mechanism given its past.
    """

    name = "basic"

    def capacity(self, limit: Limit, share: Fraction = Fraction(1)) -> Capacity:
        """Basic has no failure probability of its own."""
        return sure_capacity(limit, share)

    def currency(self, limit: Limit) -> None:
        """Basic has none of its own."""
        return

    def spent(self, limit: Limit, epsilon: int | None, second: int | None) -> int | None:
        """The path-wise sum."""
        return epsilon

    def spent_each(
        self, limit: Limit, epsilons: Sequence[int], seconds: Sequence[int]
    ) -> list[int]:
        """The path-wise sums."""
        return list(epsilons)

    def per_epsilon(self, limit: Limit) -> Fraction:
        """Basic has no currency of its own."""
        return Fraction(0)
