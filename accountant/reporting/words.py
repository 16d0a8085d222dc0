"""Groups, units, rules, formulas and (epsilon, delta) in words."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from accountant.budget.population.population import Membership, Population
from accountant.budget.population.positions import count
from accountant.budget.rules.base import Rule
from accountant.privacy.filters import FILTERS
from accountant.privacy.mechanisms import Relation
from accountant.privacy.odds import in_plain_words
from accountant.privacy.units import INFINITE

_ACTIONS: Final = {"block": "blocked", "flag": "let through and flagged"}

_RELATIONS: Final = {
    Relation.ADD_OR_REMOVE_ONE: (
        "All losses compare the data as they are with the same data after adding or removing all "
        "that belongs to {unit}. Even whether {unit} is in the data at all is protected."
    ),
    Relation.REPLACE_ONE: (
        "All losses compare the data as they are with the same data after exchanging all that "
        "belongs to {unit} for anything else. How many records there are is not protected."
    ),
}

_MEMBERSHIPS: Final = {
    Membership.PUBLIC: "Who belongs to which subject group is treated as public knowledge.",
    Membership.PRIVATE: "Who belongs to which subject group is itself protected.",
}

_ADAPTIVE: Final = (
    " Valid however each step is chosen after seeing the earlier answers, and whenever one stops."
)
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
        "ICML 2023. δ′ is the part of the limit’s delta that is not kept for mechanisms."
        + _ADAPTIVE,
    ),
    "zcdp": (
        "The smaller of the sum of epsilons and zero-concentrated privacy",
        "spent = min( ε₁ + ε₂ + … , a·(ρ₁ + ρ₂ + …) + c ), c = ln(1 − 1/a) − ln(a·δ′)/(a − 1), "
        "with the order a fixed when the limit was adopted",
        "Feldman and Zrnic, “Individual privacy accounting via a Rényi filter”, NeurIPS 2021; "
        "Canonne, Kamath and Steinke, “The discrete Gaussian for differential privacy”, 2020."
        + _ADAPTIVE,
    ),
    "renyi": (
        "The smaller of the sum of epsilons and Rényi privacy at one fixed order",
        "spent = min( ε₁ + ε₂ + … , τ₁ + τ₂ + … + c ), τ the Rényi divergences at the order a that "
        "was fixed when the limit was adopted, c = ln(1 − 1/a) − ln(a·δ′)/(a − 1)",
        "Feldman and Zrnic, “Individual privacy accounting via a Rényi filter”, NeurIPS 2021, "
        "Theorem 4.3; Canonne, Kamath and Steinke, “The discrete Gaussian for differential "
        "privacy”, 2020." + _ADAPTIVE,
    ),
    "gdp": (
        "The smallest of the sum of epsilons, Gaussian privacy, and the limit while it holds",
        "spent = min( ε₁ + ε₂ + … , a·(μ₁² + μ₂² + …)/2 + c ), c as under “zcdp” at a tenth of δ′; "
        "no more than the limit while μ₁² + μ₂² + … is within what the limit allows",
        "Smith and Thakurta, “Fully adaptive composition for Gaussian differential privacy”, 2022; "
        "Balle and Wang, “Improving the Gaussian mechanism for differential privacy”, ICML 2018."
        + _ADAPTIVE,
    ),
}


def formula(name: str) -> tuple[str, str, str]:
    """Return (name, formula, source) of a filter; the docstring of one that has no words here."""
    if name in _FORMULAS:
        return _FORMULAS[name]
    return name, " ".join((type(FILTERS[name]).__doc__ or "").split()), ""


def unit_of(people: Population) -> str:
    """Return the privacy unit with its article: "one person"."""
    return f"one {bare_unit(people.privacy_unit)}"


def bare_unit(privacy_unit: str) -> str:
    """Return the privacy unit without its article: "person"."""
    first, _, rest = privacy_unit.partition(" ")
    return rest if rest and first.lower() in ("a", "an", "one", "each") else privacy_unit


def relation_in_words(people: Population) -> str:
    """Return what the neighbouring relation protects."""
    return _RELATIONS[people.relation].format(unit=unit_of(people))


def membership_in_words(people: Population) -> str:
    """Return whether it is public who is in which group; empty if there are no groups."""
    return _MEMBERSHIPS[people.membership] if people.dimensions else ""


def meaning(epsilon: str, delta: str, unit: str) -> str:
    """Return what (epsilon, delta) guarantees to one unit."""
    if INFINITE in (epsilon, delta):
        return in_plain_words(None, Decimal(0), unit)
    if Decimal(epsilon) == 0 and Decimal(delta) == 0:
        return f"Nothing has been learned about {unit} yet."
    return in_plain_words(Decimal(epsilon), Decimal(delta), unit)


def groups_in_words(subjects: Any) -> str:
    """Return a subject group of an event as words: "country: KR, JP", or "everyone"."""
    if not subjects or {} in (terms := subjects if isinstance(subjects, list) else [subjects]):
        return "everyone"
    return shortened(" or ".join(_term(term) for term in terms), 200)


def _term(term: dict[str, Any]) -> str:
    return "; ".join(f"{name}: " + _values(values) for name, values in sorted(term.items()))


def _values(values: Any) -> str:
    if not isinstance(values, dict):
        return ", ".join(values)
    return f"{values['from']} to {values['to']}" if "from" in values else f"{count(values)} values"


def shortened(text: str, most: int) -> str:
    """Return ``text``, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def rule_in_words(rule: Rule, unit: str) -> str:
    """Return a policy rule as a sentence."""
    text = f"{rule.sentence(unit)} is {_ACTIONS[rule.action]}."
    if getattr(rule, "carry", "used") == "none":
        text += " Counting began at zero when this limit was adopted."
    return text
