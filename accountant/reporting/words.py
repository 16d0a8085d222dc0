"""Groups, units, rules, formulas and (epsilon, delta) in words."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import Any, Final

import yaml

from accountant.budget.population.population import Population
from accountant.budget.population.positions import count
from accountant.budget.rules.base import Rule
from accountant.config import shipped
from accountant.privacy.filters import FILTERS
from accountant.privacy.odds import in_plain_words
from accountant.privacy.units import INFINITE

_ACTIONS: Final = {"block": "blocked", "flag": "let through and flagged"}


@cache
def prose() -> dict[str, Any]:
    """Return the prose of the report, from the file beside its templates."""
    text = (shipped("reports/templates") / "texts.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def formula(name: str) -> tuple[str, str, str]:
    """Return (name, formula, source) of a filter; the docstring of one that has no words here."""
    if found := prose()["formulas"].get(name):
        return found["name"], found["formula"], found["source"]
    return name, " ".join((type(FILTERS[name]).__doc__ or "").split()), ""


def about(text: str, people: Population) -> str:
    """Return a text with the privacy unit: "{unit}": "one person", "{bare}": "person"."""
    first, _, rest = people.privacy_unit.partition(" ")
    article = rest and first.lower() in ("a", "an", "one", "each")
    bare = rest if article else people.privacy_unit
    units = {"{unit}": f"one {bare}", "{bare}": bare}  # which may hold braces
    return re.sub(r"\{unit\}|\{bare\}", lambda found: units[found[0]], text)


def unit_of(people: Population) -> str:
    """Return the privacy unit with its article: "one person"."""
    return about("{unit}", people)


def meaning(epsilon: str, delta: str, unit: str) -> str:
    """Return the guarantee of (epsilon, delta) to one unit in words."""
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
