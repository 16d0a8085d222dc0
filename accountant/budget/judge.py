"""Judging a request: every rule is evaluated, the strictest that fires decides.

A decision names each rule with both sides of its comparisons, at the cell where it is tightest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np

from accountant.budget.accounts import Account, Integers, charge_from, room
from accountant.budget.policy import (
    LimitRule,
    MechanismRule,
    PurposeRule,
    RequireRule,
    ThresholdRule,
)
from accountant.budget.population import Membership, Population
from accountant.budget.selection import Selection
from accountant.budget.state import AccountKey, State, matches
from accountant.ledger.events import canonical
from accountant.privacy.gates import Capacity
from accountant.privacy.mechanisms import Mechanism, Priced, Relation, Verdict, price
from accountant.privacy.units import LARGEST, NOTHING, Charge, Currency, show

Outcome = Literal["allow", "flag", "block"]
_STRICTNESS: Final[dict[str, int]] = {"allow": 0, "flag": 1, "block": 2}
MAX_DETAIL: Final = 24_000
"""Bytes of a decision; an event has 65,535 in all."""

_UNBOUNDED: Final = (
    "something asked for has no finite epsilon (Gaussian noise has one only at a delta: name it)"
)
BUILT_IN: Final = "built-in:"
"""Prefix of rules that no policy states. (No policy's rule id contains a colon.)"""


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's word. ``code`` says what it would refuse the request for."""

    rule: str
    action: str
    fired: bool
    code: str
    text: str
    numbers: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """As it stands in a decision."""
        return {
            "rule": self.rule,
            "action": self.action,
            "fired": self.fired,
            "code": self.code,
            "text": self.text,
        } | self.numbers


@dataclass(frozen=True, slots=True)
class Request:
    """What is judged, priced: by whom, on which cells of which dataset, at what cost."""

    by: str
    dataset: str
    selection: Selection
    mechanisms: tuple[Mechanism, ...]
    priced: tuple[Priced, ...]
    purpose: str | None
    justification: str | None
    unplaced: tuple[str, ...] = ()
    """Kinds that may not charge a part of this population (see ``unplaced``)."""

    @property
    def total(self) -> Charge:
        """The sum of all mechanisms' charges."""
        return sum((p.charge for p in self.priced), start=NOTHING).saturated()


@dataclass(frozen=True, slots=True)
class Decision:
    """All findings; the outcome is the strictest action that fired."""

    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """allow, flag or block."""
        fired: list[Outcome] = ["allow"]
        fired += [f.action for f in self.findings if f.fired]  # type: ignore[misc]
        return max(fired, key=_STRICTNESS.__getitem__)

    def to_json(self) -> dict[str, Any]:
        """As an event holds it: fired rules first, among them the strictest first, and what is
        wrong with the request itself before what is used up.

        What would not fit into an event is named without its numbers, the least important first.
        """
        ordered = sorted(
            self.findings,
            key=lambda f: (not f.fired, -_STRICTNESS[f.action], f.code == "budget-exceeded"),
        )
        rules, size = [], 0
        for finding in ordered:
            whole = finding.to_json()
            size += len(canonical(whole))
            short = {k: whole[k] for k in ("rule", "action", "fired", "code")}
            rules.append(whole if size <= MAX_DETAIL else short | {"text": "details left out"})
        return {"outcome": self.outcome, "rules": rules}


def judge(state: State, request: Request) -> Decision:
    """Evaluates every rule that applies to ``request``; changes nothing."""
    findings = [*_claims(request), *_membership(request)]
    if state.adopted is None:
        text = (
            "no policy is adopted, so nothing says how much may be spent; "
            f"adopt one with PUT /v1/populations/{state.ledger}/policy"
        )
        findings.append(_built_in("no-policy", "block", "no-policy", text))
        return Decision(tuple(findings))
    limits = state.limits_on(request.dataset, request.by)
    if not any(rule.action == "block" and rule.per is None for rule, _ in limits):
        text = (
            f"no limit of policy {state.adopted.policy.policy!r} covers dataset "
            f"{request.dataset!r}; add a rule with a limit that does"
        )
        findings.append(_built_in("no-limit", "block", "no-limit", text))
    for rule in state.adopted.policy.rules:
        match rule:
            case LimitRule():
                findings += [_limit(state, request, rule, key) for r, key in limits if r is rule]
            case ThresholdRule():
                findings += [
                    _threshold(state, request, rule, of, key)
                    for of, key in limits
                    if of.id == rule.of
                ]
            case _ if matches(rule.datasets, request.dataset):
                findings.append(_terms(request, rule))
    return Decision(tuple(findings))


def _built_in(rule: str, action: str, code: str, text: str) -> Finding:
    return Finding(BUILT_IN + rule, action, True, code, text, {})


def _claims(request: Request) -> list[Finding]:
    """What stands against the stated mechanisms themselves."""
    findings = []
    for mechanism, priced in zip(request.mechanisms, request.priced, strict=True):
        findings += [_built_in(o.code, "block", o.code, o.text) for o in priced.objections]
        if priced.verdict is Verdict.UNVERIFIABLE:
            text = (
                f"the loss of {mechanism.kind} is the client's word; "
                "nothing that was stated lets it be derived"
            )
            findings.append(_built_in("unverifiable-claim", "flag", "unverifiable-claim", text))
    return findings


def unplaced(
    people: Population, selection: Selection, mechanisms: Iterable[Mechanism]
) -> tuple[str, ...]:
    """The kinds that may not charge ``selection``. Under replace-one with private membership a
    person may move between cells, so only mechanisms proved under add-or-remove may charge a part
    of the population (population.py says why the largest cell is then still the bound).
    """
    private = people.membership is Membership.PRIVATE and people.relation is Relation.REPLACE_ONE
    if not private or selection.everyone:
        return ()
    return tuple(m.kind for m in mechanisms if m.neighbouring is not Relation.ADD_OR_REMOVE_ONE)


def _membership(request: Request) -> list[Finding]:
    text = (
        "membership in groups is private here, so {} stated under replace_one can only charge "
        "everyone; state it under add_or_remove_one, or ask for everyone"
    )
    code = "private-membership"
    return [_built_in(code, "block", code, text.format(kind)) for kind in request.unplaced]


def _terms(request: Request, rule: MechanismRule | RequireRule | PurposeRule) -> Finding:
    match rule:
        case MechanismRule():
            used = [m.kind for m in request.mechanisms if m.kind in rule.mechanisms]
            text = f"denied kinds: {', '.join(rule.mechanisms)}; asked: {', '.join(used) or 'none'}"
            return Finding(rule.id, rule.action, bool(used), "mechanism-denied", text, {})
        case RequireRule():
            missing = [name for name in rule.require if not getattr(request, name)]
            text = f"required: {', '.join(rule.require)}; missing: {', '.join(missing) or 'none'}"
            return Finding(rule.id, rule.action, bool(missing), "reason-required", text, {})
        case PurposeRule():
            fired = request.purpose not in rule.purposes
            text = f"purpose {request.purpose!r}; accepted: " + ", ".join(rule.purposes)
            return Finding(rule.id, rule.action, fired, "purpose-denied", text, {})


def _limit(state: State, request: Request, rule: LimitRule, key: AccountKey) -> Finding:
    fired, numbers = _compare(state, request, rule, key, rule.capacity)
    text = (
        f"{numbers['scope']}: epsilon {numbers['spent_after']} of {rule.limit.epsilon} "
        f"would be spent ({numbers['spent_before']} before)"
    )
    if any(p.derived and p.derived.epsilon is None for p in request.priced):
        text += f"; {_UNBOUNDED}"
    return Finding(rule.id, rule.action, fired, "budget-exceeded", text, numbers)


def _threshold(
    state: State, request: Request, rule: ThresholdRule, of: LimitRule, key: AccountKey
) -> Finding:
    capacity = of.filter.capacity(of.promise, rule.share)
    fired, numbers = _compare(state, request, of, key, capacity)
    [own] = [c for c in numbers["comparisons"] if c["currency"] == Currency.DELTA.value]
    text = (
        f"{numbers['scope']}: epsilon {numbers['spent_after']} of {of.limit.epsilon} would be "
        f"spent, own deltas {own['used']} + {own['charge']}: "
        f"{'above' if fired else 'within'} {rule.at} of what rule {of.id} allows"
    )
    return Finding(rule.id, rule.action, fired, "threshold-passed", text, numbers)


def _compare(
    state: State, request: Request, rule: LimitRule, key: AccountKey, capacity: Capacity
) -> tuple[bool, dict[str, Any]]:
    """Whether some selected cell cannot take the charge, and the numbers at the tightest cell."""
    account, charge = state.account(key), request.total
    cell, used, fits = tightest(account, request.selection, charge, capacity)
    after = used + charge
    numbers: dict[str, Any] = {
        "scope": scope_name(key),
        "group": state.people().describe(cell) if cell is not None else {},
        "limit": {"epsilon": _plain(rule.limit.epsilon), "delta": _plain(rule.limit.delta)},
        "gate": rule.filter.name,
        "spent_before": spent(rule, used),
        "spent_after": spent(rule, after),
        "comparisons": [
            _comparison(currency, used, charge, most)
            for currency, most in (
                (Currency.EPSILON, capacity.epsilon),
                (Currency.DELTA, capacity.own_delta),
                (capacity.second_currency, capacity.second),
            )
            if currency is not None and most is not None
        ],
    }
    return not fits, numbers


def _comparison(currency: Currency, used: Charge, charge: Charge, most: int) -> dict[str, Any]:
    unbounded = used.is_infinite(currency) or charge.is_infinite(currency)
    return {
        "currency": currency.value,
        "used": amount(used, currency),
        "charge": amount(charge, currency),
        "capacity": show(most, currency),
        "holds": not unbounded and used[currency] <= most - charge[currency],
    }


def tightest(
    account: Account, selection: Selection, charge: Charge, capacity: Capacity
) -> tuple[tuple[int, ...] | None, Charge, bool]:
    """(cell, sums used there, whether all selected cells fit): the cell with the largest epsilon
    among those that do not fit, or among all. The cell is None where everyone has the same.
    """
    candidates = []
    parts = account.used.parts(selection)
    for box, part in enumerate(parts):
        fit = room(capacity, part, charge)
        fits = bool(fit.all())
        infinite, epsilon = part[len(charge.finite)], part[0]
        order = np.lexsort((epsilon, infinite, ~fit))
        at = int(order[-1])
        candidates.append(((not fits, int(infinite[at]), int(epsilon[at])), -box, at, part))
    _, minus_box, at, part = max(candidates, key=lambda c: (c[0], c[1]))
    fits = not any(c[0][0] for c in candidates)
    return _cell(account, selection, -minus_box, at, part), charge_from(part[:, at]), fits


def _cell(
    account: Account, selection: Selection, box: int, at: int, part: Integers
) -> tuple[int, ...] | None:
    shape = account.used.shape
    if selection.everyone:
        whole = part.shape[1] == int(np.prod(shape)) and shape
        return tuple(int(i) for i in np.unravel_index(at, shape)) if whole else None
    sides = [sorted(side) for side in selection.boxes[box]]
    if part.shape[1] == 1:
        return tuple(side[0] for side in sides)
    position = np.unravel_index(at, tuple(len(side) for side in sides))
    return tuple(side[int(i)] for side, i in zip(sides, position, strict=True))


def how_many(state: State, request: Request) -> int | None:
    """How many more requests like this one the blocking limits would admit; None: no end."""
    most: int | None = None
    charge = request.total
    for rule, key in state.limits_on(request.dataset, request.by):
        if rule.action != "block":
            continue
        for part in state.account(key).used.parts(request.selection):
            fit = int(_times(part, charge, rule.capacity).min())
            most = fit if most is None else min(most, fit)
    return most


def _times(used: Integers, charge: Charge, capacity: Capacity) -> Integers:
    """How many times ``charge`` fits on each cell."""

    def times(currency: Currency, most: int) -> Integers:
        i = list(Currency).index(currency)
        one = charge.finite[i]
        left = np.where(used[len(Currency) + i] > 0, -1, min(most, LARGEST) - used[i])
        if charge.infinite[i]:
            return np.zeros_like(left)
        return np.where(left < 0, 0, left // one if one else np.iinfo(np.int64).max)

    basic = times(Currency.EPSILON, capacity.epsilon)
    if capacity.second_currency is not None and capacity.second is not None:
        basic = np.maximum(basic, times(capacity.second_currency, capacity.second))
    return np.minimum(basic, times(Currency.DELTA, capacity.own_delta))


def amount(charge: Charge, currency: Currency) -> str:
    """A sum for people: a decimal, or "infinite"."""
    return "infinite" if charge.is_infinite(currency) else show(charge[currency], currency)


def spent(rule: LimitRule, used: Charge) -> str:
    """Epsilon spent under the rule's gate, as a decimal string rounded up, or "infinite"."""
    if used.is_infinite(Currency.EPSILON):
        return "infinite"
    second = None if used.is_infinite(Currency.EPSILON_SQUARED) else used[Currency.EPSILON_SQUARED]
    return show(rule.filter.spent(rule.promise, used[Currency.EPSILON], second), Currency.EPSILON)


def scope_name(key: AccountKey) -> str:
    """What an account is about, in words."""
    data = "a person's total over datasets" if key.dataset == "*" else f"dataset {key.dataset}"
    return f"{data}, client {key.client}" if key.client else data


def price_all(mechanisms: Sequence[Mechanism], relation: Relation) -> tuple[Priced, ...]:
    """The price of each mechanism in a population with ``relation``."""
    return tuple(price(mechanism, relation) for mechanism in mechanisms)


def _plain(value: Fraction | Any) -> str:
    return format(value, "f")
