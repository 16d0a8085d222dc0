"""A Polars query of OpenDP as mechanisms, one for each noise that its summary lists.

The summary names distribution and scale of each noise, but not what it protects. So the query is
made again with one aggregate at a time, and the privacy map of each such query gives the rest: the
sensitivity that explains it. The parts must add up to the map of the whole; if they do not, or a
query is of a form that cannot be taken apart, it is declared by the map of the whole.

Polars publishes keys whose noisy count is **more** than the threshold, which is what its map
charges: nothing is to be corrected here.
"""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import Any, Final, NamedTuple

from accountant.adapters.libraries import needs
from accountant.adapters.opendp import wrong
from accountant.adapters.opendp.losses import SMALLEST, Loss, declare, loss_of
from accountant.adapters.opendp.stating import Answer, gaussian_noise, laplace_noise, root, up
from accountant.client.amounts import Amount
from accountant.client.mechanisms import declared, mechanism

with needs("opendp"):
    from opendp.accuracy import summarize_polars_measurement
    from opendp.measurements import make_private_lazyframe
    from opendp.mod import OpenDPException

Body = dict[str, Any]
_LARGEST: Final = 2**24
"""The most bytes of a plan that is taken apart: one that holds data can be of any size."""
_LISTS: Final = {"Select": "expr", "GroupBy": "aggs"}
"""The steps of a plan that aggregate, and where each has its expressions."""
_CLOSE: Final = Fraction(1, 10**9)


class _Apart(ValueError):
    """The query is of a form that cannot be taken apart."""


class Part(NamedTuple):
    """What one aggregate costs, epsilon or rho, and the noises that it draws."""

    cost: Fraction
    noises: list[dict[str, Any]]


def mechanisms(measurement: Any, d_in: Any, delta: Amount | None) -> list[Body]:
    """Return the mechanisms of a query that ``make_private_lazyframe`` made."""
    loss = loss_of(measurement, d_in, delta)
    try:
        query = _Query(measurement, d_in)
        parts = query.parts(loss)
    except (_Apart, OpenDPException):
        return [declare(loss)]
    found = [body for part in parts for body in _stated(part, query.grouped, loss, delta)]
    keys = [declared(epsilon=0, delta=max(loss.delta, SMALLEST))] if loss.delta else []
    return found + keys


class _Query:
    """A query, its plan, and the list of its aggregates within the plan."""

    def __init__(self, measurement: Any, d_in: Any) -> None:
        fields = next(wrong.chained(measurement)).fields
        self._measurement, self._d_in, self._fields = measurement, d_in, fields
        self._plan = _tree(fields["lazyframe"])
        step, place = _aggregating(self._plan)
        self.grouped = step == "GroupBy"
        self._key, self._aggregates = _LISTS[step], place[_LISTS[step]]

    def parts(self, whole: Loss) -> list[Part]:
        """Return the parts. Raise _Apart if they do not add up to the ``whole``."""
        singles = [*chain.from_iterable(map(_expanded, self._aggregates))]
        guard = self._counts()
        first = self._made(guard)
        before, rows = (_cost(first, self._d_in), _rows(first)) if guard else (Fraction(0), [])
        found = [Part(before, rows)] if guard else []
        for single in singles:
            if single in guard:
                continue
            one = self._made([*guard, single])
            found.append(Part(_cost(one, self._d_in) - before, _rows(one)[len(rows) :]))
        total, wanted = sum((part.cost for part in found), Fraction(0)), Fraction(whole.main)
        if not found or abs(total - wanted) > _CLOSE * wanted:
            raise _Apart
        missing = max(wanted - total, Fraction(0))
        largest = max(found, key=lambda part: part.cost)
        return [
            part._replace(cost=part.cost + missing) if part is largest else part for part in found
        ]

    def _counts(self) -> list[Any]:
        """Return the count by which small groups are hidden, which every part has to keep."""
        names = [row["column"] for row in _rows(self._measurement) if row.get("threshold")]
        found = [each for each in self._aggregates if _name(each) in names]
        if len(found) != len(names):
            raise _Apart
        return found

    def _made(self, aggregates: list[Any]) -> Any:
        """Return the query with these aggregates alone."""
        if not aggregates:
            return None
        plan = deepcopy(self._plan)
        _, place = _aggregating(plan)
        place[self._key] = aggregates
        fields = {**self._fields, "lazyframe": _frame(plan, self._fields["lazyframe"])}
        return make_private_lazyframe(**fields)


def _cost(measurement: Any, d_in: Any) -> Fraction:
    return Fraction(loss_of(measurement, d_in).main)


def _rows(measurement: Any) -> list[dict[str, Any]]:
    return list(summarize_polars_measurement(measurement).to_dicts())


def _tree(plan: Any) -> Any:
    """Return a plan as JSON."""
    if len(plan.serialize()) > _LARGEST:
        raise _Apart
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the format may change: the parts have to add up
        return json.loads(plan.serialize(format="json"))


def _frame(tree: Any, like: Any) -> Any:
    """Return a plan from JSON."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return type(like).deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")


def _aggregating(tree: Any) -> tuple[str, dict[str, Any]]:
    """Return the first step of a plan that aggregates with noise, and its place."""
    for step, place in _walked(tree):
        if step in _LISTS and "FfiPlugin" in json.dumps(place.get(_LISTS[step])):
            return step, place
    raise _Apart


def _walked(tree: Any) -> Iterator[tuple[str, Any]]:
    """Yield all parts of a JSON document that have a name, from the outside in."""
    if isinstance(tree, dict):
        for name, value in tree.items():
            if isinstance(value, dict):
                yield name, value
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _walked(value)


def _name(aggregate: Any) -> str | None:
    """Return the column's name that an aggregate gives; ``len`` is that of a count of rows."""
    if "Alias" in aggregate:
        return str(aggregate["Alias"][1])
    return next(_columns(aggregate), "len")


def _columns(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        if isinstance(name := tree.get("Column"), str):
            yield name
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _columns(value)


def _expanded(aggregate: Any) -> list[Any]:
    """Return the noises of an aggregate one by one: a mean is a sum over a count."""
    inner = aggregate["Alias"][0] if "Alias" in aggregate else aggregate
    plugin = inner.get("Function", {}).get("function", {})
    if not isinstance(plugin, dict) or plugin.get("FfiPlugin", {}).get("symbol") != "dp_mean":
        return [aggregate]
    column, low, high, scale = inner["Function"]["input"]
    found = []
    for symbol, arguments in (("dp_sum", [column, low, high, scale]), ("dp_len", [column, scale])):
        one = deepcopy(inner)
        one["Function"]["input"] = arguments
        one["Function"]["function"]["FfiPlugin"]["symbol"] = symbol
        found.append({"Alias": [one, aggregate["Alias"][1]]} if inner is not aggregate else one)
    return found


def _stated(part: Part, grouped: bool, loss: Loss, delta: Amount | None) -> list[Body]:
    """Return the mechanisms of one part."""
    noises = [row for row in part.noises if row["distribution"] and row["scale"]]
    if not part.cost:
        return []
    alone = Loss(rho=_float(part.cost)) if loss.rho is not None else Loss(epsilon=_float(part.cost))
    if not noises or (len(noises) > 1 and alone.rho is None):
        return [declare(alone)]
    share = alone if alone.rho is None else Loss(rho=_float(part.cost / len(noises)))
    return [_noise(row, grouped, share, delta) for row in noises]


def _float(value: Fraction) -> float:
    """Return the next float that is not less."""
    found = float(value)
    return found if Fraction(found) >= value else math.nextafter(found, math.inf)


def _noise(row: dict[str, Any], grouped: bool, loss: Loss, delta: Amount | None) -> Body:
    """Return one noise of the summary, with the sensitivity that explains its ``loss``."""
    scale, kind = Fraction(row["scale"]), str(row["distribution"])
    answer = Answer(f"{'Vec<' * grouped}{'i64' if kind.startswith('Integer') else 'f64'}")
    if kind.endswith("Laplace"):
        width = _width(answer, Fraction(loss.main) * scale)
        return laplace_noise(answer, width, row["scale"], None, loss)
    if kind.endswith("Gaussian"):
        width = _width(answer, root(2 * Fraction(loss.main)) * scale)
        body = gaussian_noise(answer, width, row["scale"], None, loss)
        return mechanism(**body, delta=delta)
    if kind.startswith("Exponential"):
        width, claimed = up(Fraction(loss.main) * scale / 2), {"epsilon": loss.main}
        return mechanism("permute_and_flip", sensitivity=width, scale=row["scale"], claimed=claimed)
    if kind.startswith("Gumbel") and not grouped:
        width = up(root(8 * Fraction(loss.main)) * scale / 2)
        return mechanism("exponential", sensitivity=width, scale=row["scale"])
    return declare(replace(loss, delta=0.0))


def _width(answer: Answer, width: Fraction) -> Amount:
    """Return a sensitivity: of whole numbers the whole one, of which rounding has left a trace."""
    if answer.whole and abs(width - round(width)) <= _CLOSE * width:
        return round(width)
    return up(width) if not answer.whole else math.ceil(width)
