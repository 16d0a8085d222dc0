"""Tumult Analytics; cannot see whether a unit is as its session's protected change says.

::

    from accountant.adapters.tumult import charge

    session = charge(Session.from_dataframe(…), ledger, "visits", purpose="weekly dashboard")
    answer = session.evaluate(QueryBuilder("visits").groupby(countries).count(), PureDPBudget(0.5))

``evaluate`` compiles the query, asks for a grant of the noise that it found, and only then runs it.
The ledger gets each noise with its exact scale and sensitivity, quantiles as the exponential
mechanism. What the library tells nothing else of, bounds and groups that it finds by itself, is
declared with the part of the budget that it costs.

Sessions that ``partition_and_create`` makes are charged alike. They are charged one after another,
as if a person were in all of them; name the ``subjects`` of each split to charge them in parallel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from math import isqrt
from types import MethodType
from typing import Any, Final, Unpack, cast

from accountant.adapters.libraries import Fields, needs, only, sampler
from accountant.client import (
    Client,
    Mechanism,
    Subjects,
    declared,
    discrete_gaussian,
    discrete_laplace,
    exponential,
    gaussian,
    laplace,
    mechanism,
)
from accountant.client.calls import Datasets

with needs("tumult"):
    from tmlt.analytics._noise_info import _noise_from_measurement, _NoiseMechanism
    from tmlt.analytics._query_expr_compiler import _base_measurement_visitor as _visitor
    from tmlt.core.measurements.chaining import ChainTM
    from tmlt.core.measurements.composition import Composition
    from tmlt.core.measurements.converters import PureDPToApproxDP, PureDPToRhoZCDP
    from tmlt.core.measurements.noise_mechanisms import (
        AddDiscreteGaussianNoise,
        AddGaussianNoise,
        AddGeometricNoise,
        AddLaplaceNoise,
    )
    from tmlt.core.measurements.pandas_measurements.series import AddNoiseToSeries
    from tmlt.core.measurements.postprocess import PostProcess
    from tmlt.core.measurements.spark_measurements import AddNoiseToColumn
    from tmlt.core.measures import ApproxDP, PureDP, RhoZCDP
    from tmlt.core.utils.exact_number import ExactNumber

_DIGITS: Final = 10**30  # of a root that is irrational
_ABOUT: Final[dict[str, Any]] = {
    "neighbouring": "add_or_remove_one",  # what every protected change of Tumult means
    "sampler": sampler("tmlt-analytics"),
}
_INSIDE: Final = {
    PostProcess: "measurement",
    AddNoiseToColumn: "measurement",
    AddNoiseToSeries: "noise_measurement",
    PureDPToApproxDP: "pure_dp_measurement",
    PureDPToRhoZCDP: "pure_dp_measurement",
}
"""Measurements that cost what the one inside costs."""


def charge(session: Any, ledger: Client, dataset: Datasets, **about: Unpack[Fields]) -> Any:
    """Make a ``Session`` ask before each query; return it. Its ``evaluate`` then raises Refused."""
    only(about)
    run, split = session.evaluate, session.partition_and_create

    def evaluate(self: Any, query_expr: Any, privacy_budget: Any) -> Any:
        mechanisms = stated(self, query_expr, privacy_budget)
        with ledger.grant(dataset, mechanisms, **about):
            return run(query_expr, privacy_budget)

    def partition_and_create(
        self: Any, *args: Any, subjects: Mapping[str, Subjects] | None = None, **named: Any
    ) -> Any:
        del self
        found = split(*args, **named)
        for name, part in found.items():
            group = {"subjects": subjects[name]} if subjects is not None else {}
            charge(part, ledger, dataset, **cast(Fields, about | group))
        return found

    session.evaluate = MethodType(evaluate, session)
    session.partition_and_create = MethodType(partition_and_create, session)
    return session


def stated(session: Any, query: Any, budget: Any) -> list[Mechanism]:
    """Return what a query will draw with ``budget``. Raise RuntimeError if the session's own budget
    does not suffice, and what the library raises for a query that it cannot compile.
    """
    with _compiled() as seen:
        whole, adjusted, _ = session._compile_and_get_info(query._query_expr, budget)
    account = session._accountant
    if not account.output_measure.compare(adjusted.value, account.privacy_budget):
        raise RuntimeError(
            f"the session has {session.remaining_privacy_budget} left, less than {budget}"
        )
    total, inner = whole.privacy_function(session._d_in), whole
    while isinstance(inner, PostProcess):
        inner = inner.measurement
    if len(seen) != 1 or not isinstance(inner, ChainTM) or not _finite(total):
        return [_cost(total, account.output_measure)]
    [drawn] = seen
    unit = inner.transformation.stability_function(session._d_in)
    found = list(_noises(drawn, unit))
    rest = _less(total, drawn.privacy_function(unit))
    return found if rest is None else [*found, _cost(rest, account.output_measure)]


@contextmanager
def _compiled() -> Iterator[list[Any]]:
    """Collect the measurements whose noise Tumult looks up while it compiles: the library tells
    their scales as floats, and their sensitivities not at all.
    """
    seen: list[Any] = []

    def look(measurement: Any) -> Any:
        seen.append(measurement)
        return _noise_from_measurement(measurement)

    before, _visitor._noise_from_measurement = _visitor._noise_from_measurement, look
    try:
        yield seen
    finally:
        _visitor._noise_from_measurement = before


def _noises(measurement: Any, moved: Any) -> Iterator[Mechanism]:
    """Yield the noises of a measurement whose input one unit moves by ``moved``."""
    if isinstance(measurement, ChainTM):
        through = measurement.transformation.stability_function(moved)
        yield from _noises(measurement.measurement, through)
    elif isinstance(measurement, Composition):
        for each in measurement.measurements:
            yield from _noises(each, moved)
    elif type(measurement) in _INSIDE:
        yield from _noises(getattr(measurement, _INSIDE[type(measurement)]), moved)
    else:
        yield _noise(measurement, moved)


def _noise(measurement: Any, moved: Any) -> Mechanism:
    """Return one noise, over all groups of the answer."""
    width = _number(ExactNumber(moved), up=True) if _adds(measurement) else None
    if isinstance(measurement, AddLaplaceNoise):
        return laplace({"l1": width}, _number(measurement.scale, up=False), **_ABOUT)
    if isinstance(measurement, AddGeometricNoise):
        return discrete_laplace({"l1": width}, _number(measurement.alpha, up=False), **_ABOUT)
    if isinstance(measurement, AddGaussianNoise):
        return gaussian({"l2": width}, _root(measurement.sigma_squared), **_ABOUT)
    if isinstance(measurement, AddDiscreteGaussianNoise):
        return discrete_gaussian({"l2": width}, _root(measurement.sigma_squared), **_ABOUT)
    cost, measure = measurement.privacy_function(moved), measurement.output_measure
    kinds = [each["noise_mechanism"] for each in _noise_from_measurement(measurement)]
    if kinds == [_NoiseMechanism.EXPONENTIAL] and measure == PureDP():
        return exponential(_number(cost, up=True), 2, **_ABOUT)
    return _cost(cost, measure)


def _adds(measurement: Any) -> bool:
    kinds = AddLaplaceNoise, AddGeometricNoise, AddGaussianNoise, AddDiscreteGaussianNoise
    return isinstance(measurement, kinds)


def _cost(cost: Any, measure: Any) -> Mechanism:
    """Return what the library says that something costs, on its word."""
    if not _finite(cost):
        return mechanism("non_private")
    first, *delta = [_number(ExactNumber(each), up=True) for each in _parts(cost)]
    if measure == RhoZCDP():
        return declared(rho=first, **_ABOUT)
    if measure == ApproxDP():
        return declared(epsilon=first, delta=delta[0], **_ABOUT)
    return declared(epsilon=first, **_ABOUT)


def _parts(cost: Any) -> tuple[Any, ...]:
    return cost if isinstance(cost, tuple) else (cost,)


def _finite(cost: Any) -> bool:
    return all(ExactNumber(each).is_finite for each in _parts(cost))


def _less(total: Any, part: Any) -> Any:
    """Return what is left of a total without a part; None where that is nothing."""
    if not isinstance(total, tuple):
        rest = ExactNumber(total) - part
        return None if rest == 0 else rest
    found = tuple(ExactNumber(one) - other for one, other in zip(total, part, strict=True))
    return None if all(each == 0 for each in found) else found


def _number(value: Any, *, up: bool) -> Fraction | float:
    """Return a rational exactly, anything else as a float on that side."""
    if value.expr.is_Rational:
        return Fraction(int(value.expr.p), int(value.expr.q))
    return float(value.to_float(round_up=up))


def _root(square: Any) -> Fraction:
    """Return the root of a variance, rounded down to 30 decimals."""
    found = Fraction(_number(square, up=False))
    return Fraction(isqrt(found.numerator * _DIGITS**2 // found.denominator), _DIGITS)
