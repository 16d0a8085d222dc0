"""What a dataset may be asked besides sums and choices: local reports, densities, data sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from accountant.client.amounts import Amount
from accountant.queries import bernstein, collecting, densities, kernel, synthetic
from accountant.queries.query import Query
from accountant.queries.records import Records


@dataclass(frozen=True, slots=True, eq=False)
class Offers(Records):
    """Records, and these queries on them. None spends anything before its release."""

    def response(
        self,
        column: str,
        categories: Sequence[Any] | None = None,
        *,
        theta: Amount | None = None,
        truth_probability: Amount | None = None,
        epsilon: Amount | None = None,
    ) -> Query:
        """Describe one randomised response a person (``collecting.response``). Give ``theta``, the
        probability of the true answer; or ``truth_probability``, that of the first of two coins; or
        an ``epsilon``. The answer maps categories to estimates.
        """
        return collecting.response(
            self, column, categories,
            theta=theta, truth_probability=truth_probability, epsilon=epsilon,
        )  # fmt: skip

    def unary(
        self,
        column: str,
        categories: Sequence[Any] | None = None,
        *,
        p: Amount | None = None,
        q: Amount | None = None,
        epsilon: Amount | None = None,
    ) -> Query:
        """Describe one row of randomised bits a person (``collecting.unary``). Give ``p`` and
        ``q``, or an ``epsilon``. The answer maps categories to estimates.
        """
        return collecting.unary(self, column, categories, p=p, q=q, epsilon=epsilon)

    def both_ways(
        self, column: str, categories: Sequence[Any] | None = None, *, epsilon: Amount
    ) -> collecting.BothWays:
        """Describe one histogram in the local and in the central model, with both errors and why
        they differ (``collecting.both_ways``).
        """
        return collecting.both_ways(self, column, categories, epsilon=epsilon)

    def histogram_density(
        self, column: str, *, bins: int, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the density of a column on equal bins; synthetic records are drawn from it."""
        return densities.histogram_density(self, column, bins, epsilon, rho)

    def series_density(
        self,
        column: str,
        *,
        terms: int,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        points: int = 256,
    ) -> Query:
        """Describe the density of a column as a series of so many cosines, on ``points`` cells."""
        return densities.series_density(self, column, terms, epsilon, rho, points)

    def kernel_density(
        self, column: str, *, bandwidth: Amount, rho: Amount, points: int = 256
    ) -> Query:
        """Describe a kernel density estimate of a column at ``points``, with the noise of a
        Gaussian process.
        """
        return kernel.kernel_density(self, column, bandwidth, rho, points)

    def function(
        self,
        columns: Sequence[str],
        summand: bernstein.Summand,
        *,
        within: tuple[Amount, Amount],
        axes: Sequence[tuple[Amount, Amount]],
        degree: int,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
        order: int = 1,
    ) -> Query:
        """Describe a function of points, a sum over the records, as a Bernstein polynomial that may
        be asked at any point (``bernstein.function``).
        """
        return bernstein.function(
            self, columns, summand, within, axes,
            degree=degree, epsilon=epsilon, rho=rho, order=order,
        )  # fmt: skip

    def nearest(
        self,
        column: str,
        candidates: Sequence[Any] | Mapping[str, Any],
        *,
        epsilon: Amount,
        points: Sequence[float] | None = None,
    ) -> Query:
        """Describe the choice of a data set or a distribution near the records of a column, by the
        distance of the distribution functions (``synthetic.nearest``).
        """
        return synthetic.nearest(self, column, candidates, epsilon, points)
