"""Tell a comparison of a limit: its numbers, and both sides in words."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import TYPE_CHECKING, Any

from accountant.budget.accounts.peak import deciding
from accountant.budget.rules.base import Told
from accountant.budget.rules.scope import ALL
from accountant.privacy.units import INFINITE, Currency, amount, show

if TYPE_CHECKING:
    from accountant.budget.accounts.epochs import Epoch
    from accountant.budget.rules.comparing import Kept
    from accountant.budget.rules.limit import LimitRule
    from accountant.privacy.filters import Capacity


def quoted(
    rule: LimitRule, epoch: Epoch, capacity: Capacity, seen: Kept, told: Told
) -> dict[str, Any]:
    """Return the numbers of a finding on a limit, by what the event kept of an account."""
    used = [None if text == INFINITE else int(text) for text in seen["used"]]
    kept = list(map(int, seen.get("kept", ())))
    beside = list(map(_plus, used, kept)) if kept else used
    cell = seen.get("cell")
    charge = told.cost(rule.unit).on(epoch.axis)
    covered = (one.id for one in told.datasets if rule.scope.holds(one))
    purpose = told.adopted.named(told.command.get("purpose"))
    dataset, client, purpose = place = rule.place(
        seen.get("dataset") or next(covered), told.event.by, purpose
    )
    asked = [charge.units(currency) for currency, _ in capacity.sides]
    with_it = list(map(_plus, used, asked))
    before = rule.filter.spent(epoch.limit, used[0], used[2:])
    line = deciding(rule.filter, epoch.limit, used[0], used[2:])
    after = rule.filter.spent(epoch.limit, with_it[0], with_it[2:])
    comparisons = [
        {
            "currency": str(currency),
            "used": amount(held, currency),
            "charge": charge.amount(currency),
            "capacity": show(max(most, 0), currency),  # a line may begin above the limit
            "holds": _holds(held, charge.units(currency), most),
        }
        for held, (currency, most) in zip(beside, capacity.sides, strict=True)
    ]
    for one, mine, units in zip(comparisons, used, kept, strict=False):
        currency = Currency(one["currency"])
        one |= {"used": amount(mine, currency), "kept": amount(units, currency)}
    epsilon, own, *along = (one["holds"] for one in comparisons)
    decides = Currency.EPSILON if line is None else line.currency
    if not own and (epsilon or any(along)):
        decides = Currency.DELTA
    return {
        "scope": rule.seen_by(told.event.by).place_in_words(place, told.people),
        "dataset": dataset,
        "client": client,
        **({"purpose": purpose} if rule.per == "purpose" else {}),
        "group": told.people.describe(cell) if cell is not None else {},
        "limit": {"epsilon": f"{rule.limit.epsilon:f}", "delta": f"{rule.limit.delta:f}"},
        "gate": rule.filter.name,
        "of": rule.id,
        "decided_by": str(decides),
        "spent_before": amount(before, Currency.EPSILON),
        "spent_after": amount(after, Currency.EPSILON),
        "comparisons": comparisons,
    }


def sides_in_words(numbers: dict[str, Any], most: str, keeps: str, fired: bool) -> str:
    """Both sides of what ``quoted`` gives: of the comparisons that failed, if the rule fired.
    ``most`` names the most epsilon that the rule admits, ``keeps`` where {} is the own delta.
    """
    epsilon, own, *along = numbers["comparisons"]
    after, basic = numbers["spent_after"], sides_of("epsilon", epsilon)
    added = _sum(epsilon["used"], epsilon["charge"])
    if after != added or numbers["spent_before"] != epsilon["used"]:
        before = numbers["spent_before"]
        basic = (
            f"epsilon {after} with this request, {before} before it, under gate {numbers['gate']}"
        )
    place = f"({numbers['scope']}{where_of(numbers)})"
    if not fired:
        return f"{basic} is within {most} {place}"
    failed = []
    if not any(one["holds"] for one in (epsilon, *along)):
        failed.append(f"{basic} is more than {most}")
        failed += map(_beyond, along if after == INFINITE else ())
    if own["holds"]:
        return f"{' and '.join(failed)} {place}"
    failed.append(
        f"{sides_of('own delta', own)} is more than {keeps.format(own['capacity'])} for it"
    )
    used = own["capacity"] if own["used"] == INFINITE else own["used"]
    left = Decimal(own["capacity"]) - Decimal(used) - Decimal(own.get("kept", 0))
    left = max(left, Decimal(0)).normalize()
    return f"{' and '.join(failed)} {place}; {left:f} of the own delta is left"


def _beyond(one: dict[str, str]) -> str:
    """Tell the comparison of a gate's own currency that fails: by a charge without a bound in it,
    or by what was booked before.
    """
    short = {name: _billionths(one[name], ROUND_CEILING) for name in ("used", "charge")}
    most = _billionths(one["capacity"], ROUND_FLOOR)
    if one["charge"] == INFINITE and one["used"] != INFINITE:
        return f"it has no bound in {one['currency']}, of which {short['used']} of {most} is used"
    return f"{sides_of(one['currency'], one | short)} is more than {most}"


def _billionths(amount: str, rounding: str) -> str:
    """Return an amount in billionths, as epsilons are."""
    if amount == INFINITE:
        return amount
    rounded = Decimal(amount).quantize(Decimal("1e-9"), rounding)
    return format(rounded.normalize(), "f")


def where_of(numbers: dict[str, Any]) -> str:
    """Return the cell that is quoted, in words; empty where all are alike."""
    where = ", ".join(f"{name} {value}" for name, value in numbers["group"].items())
    return f"; {where}" if where else ""


def sides_of(name: str, one: dict[str, str]) -> str:
    """Return both sides of one comparison, in words."""
    used, charge, kept = one["used"], one["charge"], one.get("kept", "0")
    beside = f" + {kept} kept for allotments" if kept != "0" else ""
    return f"{name} {used} used{beside} + {charge} asked = {_sum(used, charge, kept)}"


def _sum(*amounts: str) -> str:
    if INFINITE in amounts:
        return INFINITE
    return format(sum(map(Decimal, amounts), Decimal(0)).normalize(), "f")


def scope_name(dataset: str, client: str) -> str:
    """Describe the scope of an account."""
    data = "a person's total over datasets" if dataset == ALL else f"dataset {dataset}"
    return f"{data}, client {client}" if client else data


def _holds(used: int | None, charge: int | None, most: int) -> bool:
    return used is not None and charge is not None and used + charge <= most


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right
