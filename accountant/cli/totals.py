"""Totals of a list of mechanisms: under every filter and, for planning, fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from accountant.privacy.filters import FILTERS, Filter, Limit
from accountant.privacy.inverse import Total, least_epsilon, smallest_factor
from accountant.privacy.mechanisms import Mechanism, Relation, plain, price
from accountant.privacy.units import Charge, Currency, exact, show, total, units_up

if TYPE_CHECKING:
    from accountant.privacy.composition.plan import Tight

EPSILON, DELTA = Currency.EPSILON, Currency.DELTA
FIXED: Final = (
    "valid only if the whole list was fixed before any answer was seen; for planning, not a limit"
)
_TIGHTER: Final = [one for name, one in FILTERS.items() if name != "basic"]

Row = dict[str, Any]


def tight(mechanisms: Sequence[Mechanism], relation: Relation, delta: Decimal) -> Tight:
    """Return the tight totals at ``delta``; all None at 0."""
    from accountant.privacy.composition import plan  # noqa: PLC0415 (takes a second to load)

    return plan.tight(mechanisms, relation, Fraction(delta)) if delta else plan.Tight()


def charges(mechanisms: Sequence[Mechanism], relation: Relation) -> Total:
    """Return a function from Renyi orders to the total charge of ``mechanisms``."""

    def at(orders: tuple[int, ...]) -> Charge:
        return total(price(mechanism, relation, orders).charge for mechanism in mechanisms)

    return at


def gates_at_delta(total_at: Total, delta: Decimal) -> dict[str, Row]:
    """Return (epsilon, delta) of the smallest limit of each filter that admits the whole list, as
    decimal strings rounded up. Without one, epsilon is None and ``why`` gives the reason.
    """
    sure = total_at(())
    basic: Row = {"epsilon": sure.amount(EPSILON), "delta": sure.amount(DELTA)}
    own, path = sure.units(DELTA), sure.units(EPSILON)
    own_delta = None if own is None else Fraction(exact(own, DELTA))
    if own_delta is None or own_delta > delta:
        why = f"the mechanisms' own deltas add up to {sure.amount(DELTA)}, more than {delta:f}"
        return {name: {"epsilon": None, "why": why} for name in FILTERS}
    found = {"basic": basic}
    for gate in _TIGHTER:
        epsilon = None
        if own_delta < delta:
            epsilon = least_epsilon(gate, Fraction(delta), own_delta, total_at)
        units = None if epsilon is None else units_up(epsilon, EPSILON)
        if units is None or epsilon is None or (path is not None and path <= units):
            found[gate.name] = dict(basic)  # every filter also admits what basic admits
            continue
        row = {"epsilon": show(units, EPSILON), "delta": plain(delta)}
        found[gate.name] = row | _order(gate, Limit(epsilon, Fraction(delta), own_delta))
    return found


def gates_at_epsilon(total_at: Total, epsilon: Decimal) -> dict[str, Row]:
    """Return the smallest delta, own deltas included, at which a limit of ``epsilon`` under each
    filter admits the list; None if there is none.
    """
    sure = total_at(())
    own, path = sure.units(DELTA), sure.units(EPSILON)
    fits = path is not None and own is not None and path <= units_up(Fraction(epsilon), EPSILON)
    basic: Row = {"epsilon": plain(epsilon), "delta": sure.amount(DELTA) if fits else None}
    found = {name: dict(basic) for name in FILTERS}
    if fits or own is None:
        return found
    own_delta = Fraction(exact(own, DELTA))

    def limit(spare: Decimal) -> Limit:
        return Limit(Fraction(epsilon), own_delta + Fraction(spare), own_delta)

    for gate in _TIGHTER:
        spare = smallest_factor(_admits(gate, limit, total_at))
        if spare is not None and own_delta + Fraction(spare) < 1:
            found[gate.name]["delta"] = plain(exact(own, DELTA) + spare)
            found[gate.name] |= _order(gate, limit(spare))
    return found


def _admits(
    gate: Filter, limit: Callable[[Decimal], Limit], total_at: Total
) -> Callable[[Decimal], bool]:
    def admits(spare: Decimal) -> bool:
        wanted = limit(spare)
        if wanted.delta >= 1:
            return True
        currency, most = gate.currency(wanted), gate.capacity(wanted).second
        if currency is None or most is None:
            return False
        used = total_at((currency.order,) if currency.order else ()).units(currency)
        return used is not None and used <= most

    return admits


def _order(gate: Filter, limit: Limit) -> Row:
    currency = gate.currency(limit)
    return {"order": currency.order} if currency is not None and currency.order else {}


def reports_at_delta(
    mechanisms: Sequence[Mechanism], relation: Relation, delta: Decimal
) -> dict[str, Any]:
    """Return the epsilons at ``delta`` that only inform, rounded up; for pld also the lower end.
    None where a theorem does not cover this list.
    """
    found = tight(mechanisms, relation, delta)
    epsilons = {
        "pld": found.pld.upper if found.pld else None,
        "optimal": found.optimal,
        "closed_form": found.closed_form,
        "renyi_min": found.renyi,
        "gaussian": found.gaussian,
    }
    document: dict[str, Any] = {"precondition": FIXED}
    for name, epsilon in epsilons.items():
        document[name] = None if epsilon is None else {"epsilon": _printed(epsilon, ROUND_CEILING)}
    if found.pld:
        document["pld"]["lower"] = _printed(found.pld.lower, ROUND_FLOOR)
    return document


def reports_at_epsilon(
    mechanisms: Sequence[Mechanism], relation: Relation, epsilon: Decimal
) -> dict[str, Any]:
    """Return the smallest deltas at ``epsilon`` that only inform, rounded up; None without one."""

    def smallest(read: Callable[[Tight], float | None]) -> Row | None:
        def fits(delta: Decimal) -> bool:
            if delta >= 1:
                return True
            found = read(tight(mechanisms, relation, delta))
            return found is not None and found <= epsilon

        delta = smallest_factor(fits)
        return {"delta": plain(delta)} if delta is not None and delta < 1 else None

    return {
        "precondition": FIXED,
        "pld": smallest(lambda found: found.pld.upper if found.pld else None),
        "renyi_min": smallest(lambda found: found.renyi),
    }


def _printed(epsilon: float, rounding: str) -> str:
    """Write a float with nine decimals."""
    if epsilon == math.inf:
        return "infinite"
    return format(Decimal(epsilon).quantize(Decimal("1e-9"), rounding), "f")


def plan_of(mechanisms: Sequence[Mechanism], relation: Relation, delta: Decimal) -> Row | None:
    """Return the list as one mechanism of kind plan, ready for a request, at the epsilon that it
    needs; None if no bound is known.
    """
    epsilon = tight(mechanisms, relation, delta).upper
    if math.isinf(epsilon):
        return None
    stated = Decimal(epsilon * (1 + 1e-6)).quantize(Decimal("1e-6"), ROUND_CEILING)
    return {
        "kind": "plan",
        "mechanisms": [m.model_dump(mode="json", exclude_defaults=True) for m in mechanisms],
        "epsilon": plain(stated),
        "delta": plain(delta),
    }
