"""PipelineDP; cannot see whether the pipeline ran, nor whether a lazy result was computed twice.

::

    from accountant.adapters.pipelinedp import LedgerAccountant

    with LedgerAccountant(ledger, "visits", 1.0, 1e-6, purpose="weekly dashboard") as budget:
        engine = pipeline_dp.DPEngine(budget, backend)
        result = engine.aggregate(visits, params, extractors)
        budget.compute_budgets()        # asks, before any data are read
        noisy = list(result)            # runs: inside the block, and once

``compute_budgets`` asks for the exact list: a mechanism for each noise, with the sensitivity 1 to
which PipelineDP scales it. What runs in libraries that it calls, partition selection and quantiles,
is declared with its (epsilon, delta), and so is what custom combiners do.

The block commits when it ends, also by an exception. A pipeline that runs elsewhere or later calls
``commit`` when it has run, or ``release`` when it never will; otherwise the grant expires, and is
charged. A lazy result that is computed twice draws fresh noise twice: keep it (``list``, Spark's
``cache``), or ask again.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final, Self, Unpack

from accountant.adapters.libraries import needs, only, sampler
from accountant.client import Client, Grant, declared, gaussian, laplace
from accountant.client.amounts import exact
from accountant.client.calls import Asked, Datasets

with needs("pipelinedp"):
    from pipeline_dp import NaiveBudgetAccountant
    from pipeline_dp.aggregate_params import MechanismType
    from pipeline_dp.dp_computations import compute_sigma

_DRAWS: Final = {
    "Count": 1,
    "Sum": 1,
    "MeanCount": 1,
    "MeanSum": 1,
    "PrivacyIdCount": 1,
    "VectorSum": 1,
    "AddDPNoise": 1,
    "Variance": 3,
}
"""How many noises PipelineDP draws for the mechanism of each name, at equal parts of its budget."""
_RELATION: Final = "add_or_remove_one"  # Of a privacy identifier, with all its rows


class LedgerAccountant(NaiveBudgetAccountant):  # type: ignore[misc]
    """PipelineDP's accountant by naive composition, which asks the service for what it splits.

    The arguments after ``dataset`` are PipelineDP's own; the rest are the fields of a grant.
    """

    def __init__(
        self,
        ledger: Client,
        dataset: Datasets,
        total_epsilon: float,
        total_delta: float,
        num_aggregations: int | None = None,
        aggregation_weights: list[float] | None = None,
        **asked: Unpack[Asked],
    ) -> None:
        only(asked, Asked)
        super().__init__(total_epsilon, total_delta, num_aggregations, aggregation_weights)
        self._ledger, self._dataset, self._asked = ledger, dataset, asked
        self.grant: Grant | None = None
        """The grant, once ``compute_budgets`` has got it."""

    def compute_budgets(self) -> None:
        """Split the budget and ask for it. Raise Refused: then no mechanism has a budget, so that
        nothing can run, and the accountant is as it was before.
        """
        super().compute_budgets()
        if not self._mechanisms:
            return
        try:
            stated = [self._stated(each) for each in self.mechanism_specs]
            self.grant = self._ledger.grant(self._dataset, stated, **self._asked).__enter__()
        except BaseException:
            self._take_back()
            raise

    def _take_back(self) -> None:
        self.grant, self._finalized = None, False
        for spec in self.mechanism_specs:
            spec._eps = spec._delta = None

    def commit(self) -> None:
        """Report that the pipeline has run. Without a grant that is open, do nothing."""
        self.__exit__(None, None, None)

    def release(self, reason: str) -> None:
        """Attest that the pipeline has not run, and never will. Without a grant, do nothing."""
        if self.grant is not None:
            self.grant.release(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        if self.grant is not None:
            self.grant.__exit__(*error)

    def _stated(self, spec: Any) -> dict[str, Any]:
        """Return a mechanism as PipelineDP calibrates its noise, for a sensitivity of 1."""
        common: Any = {"neighbouring": _RELATION, "sampler": sampler("pipeline-dp")}
        draws, kind = _DRAWS.get(spec.name, 0), spec.mechanism_type
        epsilon, delta = Fraction(exact(spec.eps)), Fraction(exact(spec.delta or 0))
        if not draws or kind not in (MechanismType.LAPLACE, MechanismType.GAUSSIAN):
            return declared(epsilon=epsilon, delta=delta or None, count=spec.count, **common)
        common |= {"count": spec.count * draws}
        one, rest = float(epsilon / draws), float(delta / draws)
        if kind is MechanismType.LAPLACE:
            return laplace({"l1": 1}, draws / epsilon, claimed={"epsilon": one}, **common)
        claimed = {"epsilon": one, "delta": rest}
        return gaussian({"l2": 1}, compute_sigma(one, rest, 1.0), claimed=claimed, **common)
