"""What a report says in words: groups, units, rules, formulas, what an epsilon means."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from accountant.budget.population.population import Membership, Population
from accountant.budget.population.positions import count
from accountant.budget.rules.base import Rule
from accountant.privacy.mechanisms import Relation
from accountant.privacy.odds import in_plain_words

_ACTIONS: Final = {
    "block": "blocked",
    "approve": "held until a second person approves",
    "flag": "let through and flagged",
}

_RELATIONS: Final = {
    Relation.ADD_OR_REMOVE_ONE: (
        "add or remove one",
        "All losses compare the data as they are with the same data after adding or removing all "
        "that belongs to {unit}. Even whether {unit} is in the data at all is protected.",
    ),
    Relation.REPLACE_ONE: (
        "replace one",
        "All losses compare the data as they are with the same data after exchanging all that "
        "belongs to {unit} for anything else. How many records there are is not protected.",
    ),
}

_MEMBERSHIPS: Final = {
    Membership.PUBLIC: "Who belongs to which subject group is treated as public knowledge.",
    Membership.PRIVATE: "Who belongs to which subject group is itself protected.",
}

_FORMULAS: Final = {
    "basic": (
        "Sum of epsilons (basic composition)",
        "spent = ε₁ + ε₂ + …",
        "Rogers, Roth, Ullman and Vadhan, “Privacy odometers and filters”, NeurIPS 2016. Valid "
        "however each step is chosen after seeing the earlier answers.",
    ),
    "advanced": (
        "The smaller of the sum of epsilons and fully adaptive advanced composition",
        "spent = min( ε₁ + ε₂ + … , a·S/2 + ln(1/δ′)/(a − 1) ), S = ε₁² + ε₂² + …, with the order "
        "a fixed when the limit was adopted",
        "Whitehouse, Ramdas, Rogers and Wu, “Fully adaptive composition in differential privacy”, "
        "ICML 2023. δ′ is the part of the limit’s delta that is not kept for mechanisms. Valid "
        "however each step is chosen after seeing the earlier answers, and whenever one stops.",
    ),
    "zcdp": (
        "The smaller of the sum of epsilons and zero-concentrated privacy",
        "spent = min( ε₁ + ε₂ + … , a·(ρ₁ + ρ₂ + …) + c ), c = ln(1 − 1/a) − ln(a·δ′)/(a − 1), "
        "with the order a fixed when the limit was adopted",
        "Feldman and Zrnic, “Individual privacy accounting via a Rényi filter”, NeurIPS 2021; "
        "Canonne, Kamath and Steinke, “The discrete Gaussian for differential privacy”, 2020. "
        "Valid however each step is chosen after seeing the earlier answers, and whenever one "
        "stops.",
    ),
    "renyi": (
        "The smaller of the sum of epsilons and Rényi privacy at one fixed order",
        "spent = min( ε₁ + ε₂ + … , τ₁ + τ₂ + … + c ), τ the Rényi divergences at the order a that "
        "was fixed when the limit was adopted, c = ln(1 − 1/a) − ln(a·δ′)/(a − 1)",
        "Feldman and Zrnic, “Individual privacy accounting via a Rényi filter”, NeurIPS 2021, "
        "Theorem 4.3; Canonne, Kamath and Steinke, “The discrete Gaussian for differential "
        "privacy”, 2020. Valid however each step is chosen after seeing the earlier answers, and "
        "whenever one stops.",
    ),
    "gdp": (
        "The smallest of the sum of epsilons, Gaussian privacy, and the limit while it holds",
        "spent = min( ε₁ + ε₂ + … , a·(μ₁² + μ₂² + …)/2 + c ), c as under “zcdp” at a tenth of δ′; "
        "no more than the limit while μ₁² + μ₂² + … is within what the limit allows",
        "Smith and Thakurta, “Fully adaptive composition for Gaussian differential privacy”, 2022; "
        "Balle and Wang, “Improving the Gaussian mechanism for differential privacy”, ICML 2018. "
        "Valid however each step is chosen after seeing the earlier answers, and whenever one "
        "stops.",
    ),
}


def formula(gate: str, explanation: str | None) -> tuple[str, str, str]:
    """(name, formula, source) of a gate; ``explanation`` speaks for one that is not known here."""
    return _FORMULAS.get(gate, (gate, " ".join((explanation or "").split()), ""))


def unit_of(people: Population) -> str:
    """The privacy unit with its article: "one person"."""
    return f"one {bare_unit(people.privacy_unit)}"


def bare_unit(privacy_unit: str) -> str:
    """The privacy unit without its article: "person"."""
    first, _, rest = privacy_unit.partition(" ")
    return rest if rest and first.lower() in ("a", "an", "one", "each") else privacy_unit


def relation_in_words(people: Population) -> tuple[str, str]:
    """(name, what it means)."""
    name, text = _RELATIONS[people.relation]
    return name, text.format(unit=unit_of(people))


def membership_in_words(people: Population) -> str:
    """What is assumed about who is in which group."""
    return _MEMBERSHIPS[people.membership] if people.dimensions else ""


def meaning(epsilon: str, delta: str, unit: str) -> str:
    """What (epsilon, delta), as a report states them, says about one unit."""
    if delta == "infinite":
        epsilon = delta
    if epsilon == "infinite":
        return in_plain_words(None, Decimal(0), unit)
    if Decimal(epsilon) == 0 and Decimal(delta) == 0:
        return f"Nothing has been learned about {unit} yet."
    return in_plain_words(Decimal(epsilon), Decimal(delta), unit)


def groups_in_words(subjects: Any) -> str:
    """A subject group as an event holds it: "country: KR, JP"; "everyone" if there is none."""
    if not subjects or {} in (terms := subjects if isinstance(subjects, list) else [subjects]):
        return "everyone"
    text = " or ".join(_term(term) for term in terms)
    return text if len(text) <= 200 else text[:199] + "…"


def _term(term: dict[str, Any]) -> str:
    return "; ".join(f"{name}: " + _values(values) for name, values in sorted(term.items()))


def _values(values: Any) -> str:
    if not isinstance(values, dict):
        return ", ".join(values)
    return f"{values['from']} to {values['to']}" if "from" in values else f"{count(values)} values"


def rule_in_words(rule: Rule, unit: str) -> str:
    """A policy rule as a sentence."""
    text = f"{rule.sentence(unit)} is {_ACTIONS.get(rule.action, rule.action)}."
    if getattr(rule, "carry", "used") == "none":
        text += " Counting was started afresh when this limit was adopted."
    return text
