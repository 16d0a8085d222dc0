"""OpenDP's releases, each of which asks for its own grant before OpenDP draws noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Unpack

from accountant.adapters.libraries import Fields, needs, only
from accountant.adapters.opendp import wrong
from accountant.adapters.opendp.losses import CURVES, loss_of
from accountant.adapters.opendp.measurements import mechanisms_of
from accountant.client.amounts import Amount
from accountant.client.calls import Datasets
from accountant.client.sync import Client, Grant

with needs("opendp"):
    from opendp import core
    from opendp.context import Context
    from opendp.mod import Measurement, OdometerQueryable, Queryable

_INVOKED: Final = (
    "measurement_invoke",
    "odometer_invoke",
    "queryable_eval",
    "odometer_queryable_invoke",
)
"""The functions of opendp.core that run something; all methods of OpenDP go through them."""
_COMPOSITORS: Final = frozenset(
    {"make_adaptive_composition", "make_sequential_composition", "make_fully_adaptive_composition",
     "make_privacy_filter"}
)  # fmt: skip
"""What draws nothing when it gets its data: only its queries do."""
_ROUNDING: Final = 1e-9
_paid: ContextVar[bool] = ContextVar("paid", default=False)


class Unpaid(RuntimeError):
    """Noise would have been drawn for which no grant was asked."""


class Exceeded(ValueError):
    """OpenDP's own budget does not cover the query. Nothing was asked, drawn or spent: OpenDP's
    filter, which a refusal of its own would close for good, is as it was.
    """


class Asking:
    """Asks for a grant for each measurement: the fields of all requests, and what prices them."""

    def __init__(
        self,
        ledger: Client,
        dataset: Datasets,
        d_in: Any,
        delta: Amount | None,
        neighbouring: str | None,
        fields: Fields,
    ) -> None:
        only(fields)
        self.d_in = d_in
        self._ledger, self._dataset, self._fields = ledger, dataset, fields
        self._how = {"delta": delta, "neighbouring": neighbouring}

    def grant(self, measurement: Any) -> Grant:
        """Ask for one invocation. Raise Refused."""
        mechanisms = mechanisms_of(measurement, self.d_in, **self._how)  # type: ignore[arg-type]
        return self._ledger.grant(self._dataset, mechanisms, **self._fields)

    def run(self, measurement: Any, draw: Callable[[], Any]) -> Any:
        """Draw under a grant of its own, which is committed also if drawing fails half-way."""
        with self.grant(measurement), _paying():
            return _prepaid(draw(), self.d_in)


def paying(
    context: Any,
    ledger: Client,
    dataset: Datasets,
    *,
    delta: Amount | None = None,
    neighbouring: str | None = None,
    **fields: Unpack[Fields],
) -> Any:
    """Return the same ``context``, each release of which asks first: a query in it, Polars' too,
    and a compositor within it, which pays for all that it allows when it is opened.

    Refused leaves OpenDP's budget as it was, and so does a query that this budget does not cover:
    that raises Exceeded before anything is asked. The other arguments are those of
    ``mechanisms_of`` and of a grant. Raise ValueError for a context that pays already.
    """
    if not isinstance(context, Context):
        raise TypeError(f"{type(context).__name__} is not a Context of OpenDP")
    if isinstance(context.queryable, _Paying | _Prepaid):
        raise ValueError("this context pays already, or its parent has paid for it")
    asking = Asking(ledger, dataset, context.d_in, delta, neighbouring, fields)
    kind = _PaidOdometer if isinstance(context.queryable, OdometerQueryable) else _PaidQueries
    context.queryable = kind(context, asking)
    return context


def invoke(
    measurement: Any,
    data: Any,
    d_in: Any,
    ledger: Client,
    dataset: Datasets,
    *,
    delta: Amount | None = None,
    neighbouring: str | None = None,
    **fields: Unpack[Fields],
) -> Any:
    """Return ``measurement(data)``, for which a grant is asked first. Raise Refused."""
    asking = Asking(ledger, dataset, d_in, delta, neighbouring, fields)
    return asking.run(measurement, lambda: measurement(data))


@contextmanager
def strict() -> Iterator[None]:
    """Refuse, in the whole process, all that draws noise without a grant, by raising Unpaid: bare
    measurements, and queries of contexts that do not pay.

    It does not see calls that go around ``opendp.core``, nor names that were imported from there
    before. Compositors may be made: it is their queries that draw.
    """
    before = {name: getattr(core, name) for name in _INVOKED}
    for name, function in before.items():
        setattr(core, name, _guarded(function))
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(core, name, function)


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(this: Any, argument: Any) -> Any:
        note = getattr(this, "__opendp_dict__", {})
        if not _paid.get() and note.get("__function__") not in _COMPOSITORS:
            raise Unpaid(
                "this would draw noise without a grant: use invoke(), or a context that pays()"
            )
        return function(this, argument)

    return guarded


@contextmanager
def _paying() -> Iterator[None]:
    """Let OpenDP draw in the block."""
    token = _paid.set(True)
    try:
        yield
    finally:
        _paid.reset(token)


def _prepaid(answer: Any, d_in: Any) -> Any:
    """Return an answer; one that takes queries may take them, for all of them are paid."""
    return _PREPAID[type(answer)](answer, d_in) if type(answer) in _PREPAID else answer


class _Same:
    """A queryable that stands for another, with all that OpenDP keeps in it."""

    def __init__(self, inner: Any) -> None:
        vars(self).update(vars(inner))
        self._inner = inner


class _Prepaid(_Same):
    """The queries of a compositor that has been paid as a whole, and counts by OpenDP's maps."""

    def __init__(self, inner: Any, d_in: Any) -> None:
        super().__init__(inner)
        self._d_in = d_in

    def __call__(self, query: Any) -> Any:
        """Draw. Raise WrongMap for a query of which OpenDP would count too little."""
        wrong.refuse(query, self._d_in, believed=True)
        with _paying():
            return _prepaid(self._inner(query), self._d_in)

    invoke = __call__


class _Paying(_Same):
    """Queries to a context's own queryable, each with a grant of its own."""

    def __init__(self, context: Any, asking: Asking) -> None:
        super().__init__(context.queryable)
        self._context, self._asking = context, asking

    def __call__(self, query: Any) -> Any:
        """Ask, then draw."""
        if isinstance(query, Measurement):
            _fits(query, self._context.accountant)
            _covered(query, self._context)
        return self._asking.run(query, lambda: self._inner(query))

    invoke = __call__


class _PrepaidQueries(_Prepaid, Queryable):
    pass


class _PrepaidOdometer(_Prepaid, OdometerQueryable):
    pass


class _PaidQueries(_Paying, Queryable):
    pass


class _PaidOdometer(_Paying, OdometerQueryable):
    pass


_PREPAID: Final = {Queryable: _PrepaidQueries, OdometerQueryable: _PrepaidOdometer}


def _fits(query: Any, accountant: Any) -> None:
    """Raise ValueError if OpenDP is sure to refuse ``query`` for what it is about."""
    for name in ("input_domain", "input_metric", "output_measure"):
        given, wanted = getattr(query, name), getattr(accountant, name)
        if given != wanted:
            words = name.replace("_", " ")
            raise ValueError(f"the query's {words} is {given} and the context's is {wanted}")


def _covered(query: Any, context: Any) -> None:
    """Raise Exceeded if OpenDP is sure to refuse ``query``, as far as that can be told from here:
    of losses that add up.
    """
    asked, d_in = _numbers(query, context.d_in), context.d_in
    if asked is None:
        return
    if context.d_mids is not None:
        allowed = context.d_mids[0] if context.d_mids else 0.0
        spent: Any = (0.0, 0.0)
    elif context.d_out is not None and isinstance(context.queryable, OdometerQueryable):
        odometer: Any = context.queryable
        allowed, spent = context.d_out, odometer.privacy_loss(d_in)
    else:
        return
    for most, used, more in zip(_pair(allowed), _pair(spent), asked, strict=True):
        if used + more > most + _ROUNDING * abs(most):
            raise Exceeded(
                f"OpenDP's budget for this query is {allowed}, of which {spent} is used, and the "
                f"query costs {asked}: nothing was asked or drawn"
            )


def _numbers(query: Any, d_in: Any) -> tuple[float, float] | None:
    """Return the loss of a query as two numbers that add up; None for a curve."""
    if str(query.output_measure.type) in CURVES:
        return None
    loss = loss_of(query, d_in)
    return loss.main, loss.delta


def _pair(loss: Any) -> tuple[float, float]:
    return (loss[0], loss[1]) if isinstance(loss, tuple | list) else (loss, 0.0)
