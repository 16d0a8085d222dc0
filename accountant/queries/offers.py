"""What a dataset may be asked besides sums and choices: local reports, densities, data sets,
sessions of many questions, synthetic data, and functions of any kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accountant.client.amounts import Amount
from accountant.queries import (
    bernstein,
    boosting,
    collecting,
    densities,
    features,
    holdout,
    kernel,
    mwem,
    proposals,
    sessions,
    subsample,
    synthetic,
    weights,
)
from accountant.queries.query import Query
from accountant.queries.records import Records
from accountant.queries.universe import Universe

Categories = Mapping[str, Sequence[Any] | None]
"""Columns with their categories; None for those of a registered dimension."""


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

    # -- many questions ----------------------------------------------------------------------------

    def sparse_vector(
        self,
        *,
        threshold: Amount,
        epsilon: Amount,
        positives: int,
        numbers: bool = False,
        sensitivity: Amount | None = None,
        columns: Sequence[str] = (),
        monotonic: bool = False,
    ) -> sessions.Comparing:
        """Describe a session that says of each question whether its answer is about ``threshold``
        or more, until so many ``positives`` (``sessions.sparse_vector``). Questions are selections
        to count, as ``where`` makes them; with a ``sensitivity``, functions of ``columns``.
        """
        return sessions.sparse_vector(
            self, threshold=threshold, epsilon=epsilon, positives=positives, numbers=numbers,
            sensitivity=sensitivity, columns=columns, monotonic=monotonic,
        )  # fmt: skip

    def reusable_holdout(
        self,
        training: Any,
        columns: Sequence[str],
        *,
        threshold: Amount,
        epsilon: Amount,
        budget: int,
        records: int | None = None,
    ) -> holdout.Holdout:
        """Describe a holdout for a table of ``training``, which says anew and anew whether a mean
        over the training records holds, and wears out only where it does not
        (``holdout.reusable_holdout``).
        """
        return holdout.reusable_holdout(
            self, training, columns,
            threshold=threshold, epsilon=epsilon, budget=budget, records=records,
        )  # fmt: skip

    # -- synthetic data over a finite universe -----------------------------------------------------

    def universe(self, columns: Categories) -> Universe:
        """Return the finite universe of the categories of some columns. Its ``where`` makes the
        questions of ``online_weights``, ``mwem`` and ``boosting``.
        """
        return Universe.of(self, columns)

    def online_weights(
        self,
        columns: Categories,
        *,
        records: int,
        epsilon: Amount,
        updates: int,
        threshold: Amount | None = None,
        questions: int = 1000,
    ) -> weights.OnlineWeights:
        """Describe private multiplicative weights, online: a session whose questions synthetic data
        answer, until so many ``updates`` (``weights.online_weights``).
        """
        return weights.online_weights(
            self, columns, records=records, epsilon=epsilon, updates=updates,
            threshold=threshold, questions=questions,
        )  # fmt: skip

    def mwem(
        self,
        columns: Categories,
        questions: Sequence[Any],
        *,
        records: int,
        epsilon: Amount,
        rounds: int,
    ) -> Query:
        """Describe synthetic data that answer given ``questions``, by multiplicative weights and
        the exponential mechanism (``mwem.mwem``).
        """
        return mwem.mwem(self, columns, questions, records=records, epsilon=epsilon, rounds=rounds)

    def boosting(
        self,
        columns: Categories,
        questions: Sequence[Any],
        *,
        records: int,
        epsilon: Amount,
        rounds: int,
        draws: int,
        fine: Amount | None = None,
    ) -> Query:
        """Describe answers to given ``questions`` from synopses of some of them, drawn by weights
        that grow where the synopses err (``boosting.boosting``).
        """
        return boosting.boosting(
            self, columns, questions, records=records, epsilon=epsilon, rounds=rounds, draws=draws,
            fine=fine,
        )  # fmt: skip

    # -- functions of any kind, and features -------------------------------------------------------

    def subsample(
        self,
        function: subsample.Function,
        columns: Sequence[str],
        bounds: tuple[Amount, Amount],
        *,
        epsilon: Amount,
        blocks: int,
        aggregate: Literal["mean", "median"] = "mean",
        step: Amount | None = None,
        key: bytes = subsample.KEY,
    ) -> Query:
        """Describe the mean or the median of any ``function`` over disjoint ``blocks`` of the
        records: subsample and aggregate (``subsample.subsample``).
        """
        return subsample.subsample(
            self, function, columns, bounds,
            epsilon=epsilon, blocks=blocks, aggregate=aggregate, step=step, key=key,
        )  # fmt: skip

    def propose_test_release(
        self,
        column: str,
        statistic: Literal["median", "interquartile_range"] = "median",
        *,
        bound: Amount,
        epsilon: Amount,
        delta: Amount,
        step: Amount | None = None,
    ) -> Query:
        """Describe a median or an interquartile range with noise for a proposed ``bound`` on how
        far one unit moves it, after a test of that bound; the value is None where the test fails
        (``proposals``).
        """
        kinds = {
            "median": proposals.median,
            "interquartile_range": proposals.interquartile_range,
        }
        if statistic not in kinds:
            raise ValueError(f"the statistic is one of {', '.join(kinds)}, not {statistic!r}")
        return kinds[statistic](self, column, bound=bound, epsilon=epsilon, delta=delta, step=step)

    def best_feature(self, among: Sequence[str], target: str, *, epsilon: Amount) -> Query:
        """Describe the choice of the feature that agrees with the target in most records, by the
        exponential mechanism (``features.best_feature``).
        """
        return features.best_feature(self, among, target, epsilon=epsilon)

    def features_above(
        self,
        among: Sequence[str],
        target: str,
        *,
        threshold: Amount,
        epsilon: Amount,
        positives: int = 1,
    ) -> features.Search:
        """Describe the search for the first features that agree with the target in about
        ``threshold`` records or more, by the sparse vector technique (``features.features_above``).
        """
        return features.features_above(
            self, among, target, threshold=threshold, epsilon=epsilon, positives=positives
        )
