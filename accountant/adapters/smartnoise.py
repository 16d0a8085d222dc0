"""SmartNoise SQL; cannot see whether the data keep the bounds and contributions of the metadata.

::

    from accountant.adapters.smartnoise import charge

    reader = charge(from_df(frame, privacy=privacy, metadata=metadata), ledger, "visits",
                    purpose="weekly dashboard")
    rows = reader.execute("SELECT country, COUNT(*) AS n FROM v.visits GROUP BY country")

Each query asks for a grant before the database runs it, and says before its noise is drawn that it
will be. The ledger gets every column's noise with its scale and sensitivity, those of the key count
that SmartNoise adds by itself too. A query by group also costs the delta with which rare groups are
left out, as the library states it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from fractions import Fraction
from typing import Any, Final, Unpack

from accountant.adapters.libraries import Fields, needs, only, sampler
from accountant.client import Client, Grant, Mechanism, declared, gaussian, laplace
from accountant.client.calls import Datasets

with needs("smartnoise"):
    from snsql.sql._mechanisms import Gaussian, Laplace
    from snsql.sql.reader.pandas import PandasReader

_RELATION: Final = "add_or_remove_one"  # One person's records are there or not
_OPTIONS: Final = (
    "row_privacy", "censor_dims", "clamp_counts", "use_dpsu", "clamp_columns",
)  # fmt: skip
_SAMPLER: Final = sampler("smartnoise-sql")


def charge(
    reader: Any,
    ledger: Client,
    dataset: Datasets,
    *,
    public_groups: bool = False,
    **about: Unpack[Fields],
) -> Any:
    """Make a ``PrivateReader`` ask before each query; return it. Its ``execute`` then raises
    Refused, and ValueError for a query that reveals something without noise.

    ``public_groups``: the groups of a query are no secret, so they may be shown although the
    metadata say ``censor_dims: false``. Raise ValueError for a reader of Spark: each look at its
    lazy result would draw fresh noise for one charge.
    """
    only(about)
    if reader.engine == "spark":
        raise ValueError(
            "a result on Spark draws its noise anew whenever it is looked at: query another engine"
        )
    charging = _Charging(reader, ledger, dataset, public_groups, about)
    reader._execute_ast = charging.execute
    reader._get_mechanisms = charging.mechanisms
    return reader


class _Charging:
    """What stands between a reader and its noise."""

    def __init__(
        self, reader: Any, ledger: Client, dataset: Datasets, public_groups: bool, about: Fields
    ) -> None:
        self._reader, self._ledger, self._dataset = reader, ledger, dataset
        self._public_groups, self._about = public_groups, about
        self._execute, self._found = reader._execute_ast, reader._get_mechanisms
        self._grant: Grant | None = None
        self._asked: list[Mechanism] = []

    def execute(self, query: Any, *ignored: Any, **how: Any) -> Any:
        """Ask for what the query will draw, then run it."""
        self._asked = self._stated(self._rewritten(query))
        with self._ledger.grant(self._dataset, self._asked, tracked=True, **self._about) as grant:
            self._grant = grant
            try:
                return self._execute(query, *ignored, **how)
            finally:
                self._grant = None

    def mechanisms(self, subquery: Any) -> Any:
        """Return the mechanisms of the columns. While a query runs: their noise is drawn next."""
        found = self._found(subquery)
        if self._grant is not None:
            now = self._stated(subquery)
            if now != self._asked:
                raise ValueError("the reader's settings changed while it ran: run the query again")
            for mechanism in now:
                self._grant.use(mechanism)
        return found

    def _rewritten(self, query: Any) -> Any:
        """Return the query that the database will get, with its settings in force."""
        reader = self._reader
        for name in _OPTIONS:
            setattr(reader._options, name, getattr(query, name))
        reader._options.reservoir_sample = query.sample_max_ids
        reader._refresh_options()
        return reader._rewrite_ast(deepcopy(query))[0]

    def _stated(self, subquery: Any) -> list[Mechanism]:
        options = self._reader._options
        if options.use_dpsu and isinstance(self._reader.reader, PandasReader):
            raise ValueError(
                "use_dpsu spends an epsilon of 1 to find groups, which the library's odometer "
                "leaves out: take it out of the metadata, and let censor_dims leave out rare groups"
            )
        return stated(subquery, censored=options.censor_dims, public_groups=self._public_groups)


def stated(subquery: Any, *, censored: bool, public_groups: bool) -> list[Mechanism]:
    """Return what one run of a rewritten query draws. Raise ValueError for a column without noise,
    or groups that are neither ``censored`` nor public.
    """
    symbols = subquery._select_symbols
    bare = [s.name for s in symbols if s.mechanism is None and not s.is_grouping_column]
    if bare:
        raise ValueError(f"SmartNoise adds no noise to {', '.join(bare)}: leave it out")
    found = [_noise(s.mechanism) for s in symbols if s.mechanism is not None]
    if subquery.agg is None or not subquery.agg.groupingExpressions:
        return found
    if censored:
        return found + _leaving_out(symbols)
    if not public_groups:
        raise ValueError(
            "the result shows every group that anybody is in: set censor_dims in the metadata, or "
            "say that the groups are no secret (public_groups=True)"
        )
    return found


def _noise(mechanism: Any) -> Mechanism:
    """Return the noise of one column, over all groups: a person is in ``max_contrib`` records."""
    if math.isinf(mechanism.sensitivity):
        raise ValueError("a column has no bounds in the metadata: give it lower and upper")
    width = Fraction(mechanism.sensitivity) * mechanism.max_contrib
    about: dict[str, Any] = {"neighbouring": _RELATION, "sampler": _SAMPLER}
    if isinstance(mechanism, Laplace):
        return laplace({"l1": width}, Fraction(mechanism.scale), **about)
    if isinstance(mechanism, Gaussian):
        delta = mechanism.delta or None
        return gaussian({"l2": width}, Fraction(mechanism.scale), delta=delta, **about)
    return declared(epsilon=mechanism.epsilon, delta=mechanism.delta, **about)


def _leaving_out(symbols: Sequence[Any]) -> list[Mechanism]:
    """Return the chance that a group of one person is shown, which the threshold is made for."""
    return [
        declared(epsilon=0, delta=s.mechanism.delta, neighbouring=_RELATION, sampler=_SAMPLER)
        for s in symbols
        if s.is_key_count and s.mechanism is not None
    ]
