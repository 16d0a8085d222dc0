"""What a list of mechanisms costs in all: under every gate, and, for planning, fixed in advance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from accountant.privacy.composition.searching import smallest_factor
from accountant.privacy.filters import FILTERS, Filter, Limit, Total, least_epsilon
from accountant.privacy.mechanisms import Mechanism, Relation, plain, price
from accountant.privacy.mechanisms.steps import steps_of
from accountant.privacy.units import Charge, Currency, exact, show, total, units_up

if TYPE_CHECKING:
    from accountant.privacy.composition.plan import Tight

EPSILON, DELTA = Currency.EPSILON, Currency.DELTA

FIXED: Final = (
    "true only if the whole list was fixed before any answer was seen; for planning, never a limit"
)

Row = dict[str, Any]


def tight(mechanisms: Sequence[Mechanism], relation: Relation, delta: Decimal) -> Tight:
    """The tight totals at ``delta``; all None at 0."""
    # What it loads takes a second, and most commands do without.
    from accountant.privacy.composition import plan  # noqa: PLC0415

    return plan.tight(steps_of(mechanisms, relation), Fraction(delta)) if delta else plan.Tight()


def charges(mechanisms: Sequence[Mechanism], relation: Relation) -> Total:
    """The total of ``mechanisms`` with whatever Renyi orders are asked for."""

    def at(orders: tuple[int, ...]) -> Charge:
        return total(price(mechanism, relation, orders).charge for mechanism in mechanisms)

    return at


def gates_at_delta(total_at: Total, delta: Decimal) -> dict[str, Row]:
    """(epsilon, delta) of the smallest limit of each gate that would admit the whole list, as
    decimal strings rounded up; epsilon None if there is none, with the reason.
    """
    sure = total_at(())
    basic: Row = {"epsilon": sure.amount(EPSILON), "delta": sure.amount(DELTA)}
    own = sure.units(DELTA)
    own_delta = None if own is None else Fraction(exact(own, DELTA))
    if own_delta is None or own_delta > delta:
        why = f"the mechanisms' own deltas add up to {sure.amount(DELTA)}, more than {delta:f}"
        return {name: {"epsilon": None, "why": why} for name in FILTERS}
    found = {"basic": basic}
    for gate in (gate for name, gate in FILTERS.items() if name != "basic"):
        epsilon = None
        if own_delta < delta:
            epsilon = least_epsilon(gate, Fraction(delta), own_delta, total_at)
        units, path = None if epsilon is None else units_up(epsilon, EPSILON), sure.units(EPSILON)
        if units is None or epsilon is None or (path is not None and path <= units):
            found[gate.name] = dict(basic)  # "basic or" is implied
            continue
        row = {"epsilon": show(units, EPSILON), "delta": plain(delta)}
        found[gate.name] = row | _order(gate, Limit(epsilon, Fraction(delta), own_delta))
    return found


def gates_at_epsilon(total_at: Total, epsilon: Decimal) -> dict[str, Row]:
    """The smallest delta at which a limit of ``epsilon`` under each gate would admit the list, own
    deltas included; None if there is none.
    """
    sure = total_at(())
    own, path = sure.units(DELTA), sure.units(EPSILON)
    fits = path is not None and own is not None and path <= units_up(Fraction(epsilon), EPSILON)
    basic: Row = {"epsilon": plain(epsilon), "delta": sure.amount(DELTA) if fits else None}
    found = {"basic": basic}
    for gate in (gate for name, gate in FILTERS.items() if name != "basic"):
        if fits or own is None:
            found[gate.name] = dict(basic)
            continue
        own_delta = Fraction(exact(own, DELTA))

        def limit(spare: Decimal, own_delta: Fraction = own_delta) -> Limit:
            return Limit(Fraction(epsilon), own_delta + Fraction(spare), own_delta)

        spare = smallest_factor(_admits(gate, limit, total_at))
        row: Row = {"epsilon": plain(epsilon), "delta": None}
        if spare is not None and own_delta + Fraction(spare) < 1:
            row["delta"] = plain(exact(own, DELTA) + spare)
            row |= _order(gate, limit(spare))
        found[gate.name] = row
    return found


def _admits(
    gate: Filter, limit: Callable[[Decimal], Limit], total_at: Total
) -> Callable[[Decimal], bool]:
    def admits(spare: Decimal) -> bool:
        wanted = limit(spare)
        if wanted.delta >= 1:
            return True
        currency = gate.currency(wanted)
        most = gate.capacity(wanted).second
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
    """What only informs: epsilons at ``delta``, rounded up; of pld the lower end as well. None
    where a theorem says nothing about this list.
    """
    found = tight(mechanisms, relation, delta)
    totals: dict[str, float | None] = {
        "pld": found.pld.upper if found.pld else None,
        "optimal": found.optimal,
        "closed_form": found.closed_form,
        "renyi_min": found.renyi,
        "gaussian": found.gaussian,
    }
    document: dict[str, Any] = {"precondition": FIXED} | {
        name: None if epsilon is None else {"epsilon": printed(epsilon)}
        for name, epsilon in totals.items()
    }
    if found.pld:
        document["pld"]["lower"] = printed(found.pld.lower, ROUND_FLOOR)
    return document


def reports_at_epsilon(
    mechanisms: Sequence[Mechanism], relation: Relation, epsilon: Decimal
) -> dict[str, Any]:
    """What only informs: the smallest delta at ``epsilon``, rounded up; None if there is none."""

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


def printed(epsilon: float, rounding: str = ROUND_CEILING) -> str:
    """A float as a decimal string of nine decimals."""
    if epsilon == math.inf:
        return "infinite"
    return format(Decimal(epsilon).quantize(Decimal("1e-9"), rounding), "f")


def plan_of(mechanisms: Sequence[Mechanism], relation: Relation, delta: Decimal) -> Row | None:
    """The list as one mechanism of kind plan, at the epsilon that it needs; None if nothing bounds
    it. It can be asked for as it stands.
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
