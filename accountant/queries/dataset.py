"""A table as a dataset of a ledger, and the queries that it may be asked.

``dataset`` checks the table against the population as it is registered. The methods of ``Dataset``
describe queries (``Query``); none of them spends anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from accountant.client.amounts import Amount
from accountant.client.calls import Datasets
from accountant.queries import choosing, correlation, frame, moments, quantiles, sums
from accountant.queries.arguments import MOST_RECORDS, Limits, pair, whole_number
from accountant.queries.frame import Frame, Mask
from accountant.queries.offers import Offers
from accountant.queries.query import Query
from accountant.queries.records import Missing, Population

if TYPE_CHECKING:
    from accountant.client.sync import Client


def dataset(
    ledger: Client,
    dataset: Datasets,
    data: Any,
    *,
    bounds: Mapping[str, tuple[Amount, Amount]] | None = None,
    unit: str | None = None,
    records_per_unit: int | None = None,
    missing: Missing = "refuse",
) -> Dataset:
    """Return a table as a dataset that may be asked, charged to ``dataset`` of the ledger.

    ``data``: a pandas or polars DataFrame, or a mapping of column names to arrays. One row is one
    record. Without ``records_per_unit`` every privacy unit has exactly one; with it, at most so
    many, and it may have none.

    ``unit``: the column that says to which privacy unit a record belongs. Give it wherever there is
    one: then the promise is checked. Rows of a unit beyond ``records_per_unit`` are left out, the
    later ones in the order of the table, before anything is counted. (What one unit has decides
    which of its rows are left out, so the others are never affected.)

    ``bounds``: for each column of numbers the least and the largest value that counts; what is
    outside is moved to the bound. They have to come from public knowledge, never from the data.

    ``missing``: what happens to None and NaN in a column that is asked about. "refuse" raises
    ValueError and says how many there are; "drop" leaves these records out of the query, and how
    many are left is then private.

    Nothing is spent. Raise ValueError for a table that does not fit.
    """
    people = Population.of(ledger.describe())
    table = Frame.of(data)
    if missing not in ("refuse", "drop"):
        raise ValueError(f'missing is "refuse" or "drop", not {missing!r}')
    limits = {name: _limits(table, name, ends) for name, ends in (bounds or {}).items()}
    most = records_per_unit
    if most is not None:
        most = whole_number("records_per_unit", most, 1, MOST_RECORDS)
    kept = _kept(table, people, unit, most)
    return Dataset(ledger, dataset, table, people, limits, unit, most, missing, kept)


def _limits(table: Frame, name: str, ends: Any) -> Limits:
    if name not in table.names:
        raise ValueError(f"bounds name a column {name!r} that is not there")
    return pair(f"the bounds of {name!r}", ends)


def _kept(table: Frame, people: Population, unit: str | None, most: int | None) -> Mask | None:
    """Return the rows that count; None for all. Raise ValueError for a unit with too many."""
    if unit is None:
        return None
    column = table.column(unit)
    if lost := int(frame.missing(column).sum()):
        raise ValueError(f"column {unit!r} does not say whose record it is in {lost} rows")
    units = frame.places(column)
    largest = frame.most_rows(units)
    if most is None and largest > 1:
        raise ValueError(
            f"a {people.unit} has up to {largest} rows, and a {people.unit} is the privacy unit: "
            "say by records_per_unit how many count at most, or give a table with one row a "
            f"{people.unit}"
        )
    return None if most is None or largest <= most else frame.first(units, most)


@dataclass(frozen=True, slots=True, eq=False)
class Dataset(Offers):
    """Records, and what they may be asked. Give each query either an ``epsilon`` or, where noise is
    added, a ``rho`` (normal noise).
    """

    def count(self, *, epsilon: Amount | None = None, rho: Amount | None = None) -> Query:
        """Describe the number of records. Raise ValueError where it is public."""
        return sums.count(self, epsilon, rho)

    def sum(
        self, column: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the sum of a column within its bounds."""
        return sums.total(self, column, epsilon, rho)

    def sums(
        self,
        columns: Sequence[str],
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
    ) -> Query:
        """Describe the sums of several columns, with noise of one scale on each: for columns in one
        unit. The answer maps columns to sums.
        """
        return sums.totals(self, columns, epsilon, rho)

    def histogram(
        self,
        column: str,
        categories: Sequence[Any] | None = None,
        *,
        epsilon: Amount | None = None,
        rho: Amount | None = None,
    ) -> Query:
        """Describe how many records each of the ``categories`` has, by default each value of the
        registered dimension that the column is. The answer maps categories to counts.
        """
        return sums.histogram(self, column, categories, epsilon, rho)

    def mean(
        self, column: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the mean of a column within its bounds: a noisy sum over the number of records,
        which is noisy too where it is private.
        """
        return moments.mean(self, column, epsilon, rho)

    def second_moment(
        self, column: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the mean of the squares of a column within its bounds."""
        return moments.second_moment(self, column, epsilon, rho)

    def variance(
        self, column: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the variance (divided by n) of a column within its bounds."""
        return moments.variance(self, column, epsilon, rho)

    def standard_deviation(
        self, column: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the standard deviation (divided by n) of a column within its bounds."""
        return moments.standard_deviation(self, column, epsilon, rho)

    def pearson(
        self, one: str, other: str, *, epsilon: Amount | None = None, rho: Amount | None = None
    ) -> Query:
        """Describe the correlation of two columns, from noisy sums that share the budget."""
        return correlation.pearson(self, one, other, epsilon, rho)

    def correlation(self, one: str, other: str, *, epsilon: Amount, parts: int = 200) -> Query:
        """Describe the correlation of two columns, chosen among ``parts`` + 1 values from -1 to 1
        by how few units would have to change for it to be that.
        """
        return correlation.nearest(self, one, other, epsilon, parts)

    def median(self, column: str, *, epsilon: Amount, step: Amount | None = None) -> Query:
        """Describe the median of a column, chosen among points that are ``step`` apart."""
        return quantiles.quantile(self, column, "0.5", epsilon, step)

    def quantile(
        self, column: str, share: Amount, *, epsilon: Amount, step: Amount | None = None
    ) -> Query:
        """Describe the value below which a ``share`` of the records lies, chosen among points that
        are ``step`` apart: by default 1 for whole numbers of which none may be missing, else 2^-20
        of the distance of the bounds. At most 2^32 points.
        """
        return quantiles.quantile(self, column, share, epsilon, step)

    def choose(
        self,
        candidates: Sequence[Any],
        score: choosing.Score,
        *,
        sensitivity: Amount,
        epsilon: Amount,
        columns: Sequence[str] = (),
        monotonic: bool = False,
    ) -> Query:
        """Describe the choice of a candidate with a high score (the exponential mechanism).

        ``score(records, candidate)`` reads the named ``columns`` of the selected records and
        returns a number. One privacy unit, with all its records, may change no score by more than
        ``sensitivity``: that is the caller's word, as nothing else can know it. The candidates come
        from public knowledge. ``monotonic``: one more unit can only raise all scores, or only lower
        them; halves the cost where units come and go.
        """
        return choosing.choose(
            self, candidates, score, sensitivity, epsilon, columns=columns, monotonic=monotonic
        )
