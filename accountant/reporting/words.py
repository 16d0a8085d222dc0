"""Groups, units, rules, formulas and (epsilon, delta) in words.

Floats are good enough for print; they are widened by a part in 1e12 and printed rounded outward.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from functools import cache
from typing import Any, Final

import yaml

from accountant.budget.population.population import Population
from accountant.budget.population.positions import read
from accountant.budget.rules.base import Rule
from accountant.config import shipped
from accountant.privacy.filters import FILTERS
from accountant.privacy.units import INFINITE, Currency, decimal_of

_ACTIONS: Final = {
    "block": "blocked",
    "approve": "held until a person approves it",
    "flag": "let through and flagged",
}
_WIDER: Final = 1e-12
_COUNTABLE: Final = Decimal("13.8")
"""Up to about ln(1,000,000) a factor is printed in full; a larger one "exceeds a million"."""


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


def sums_of(currency: Currency) -> str:
    """Return what adds up in a currency, in words."""
    if currency.order is not None:
        return f"Rényi divergences of order {decimal_of(currency.order)}"
    found: str = prose()["currencies"][currency]
    return found


def about(text: str, people: Population) -> str:
    """Return a text with the privacy unit: "{unit}": "one person", "{bare}": "person"."""
    unit = people.called()
    units = {"{unit}": unit, "{bare}": unit.removeprefix("one ")}  # which may hold braces
    return re.sub(r"\{unit\}|\{bare\}", lambda found: units[found[0]], text)


def meaning(epsilon: str, delta: str, unit: str) -> str:
    """Return the guarantee of (epsilon, delta) to one unit in words.

    From Bayes' rule: an observer of the releases can move the odds of any statement about one unit
    by at most a factor e^epsilon either way (Kasiviswanathan and Smith 2014).
    """
    if INFINITE in (epsilon, delta):
        return f"There is no bound: these releases may have revealed everything about {unit}."
    loss, failing = Decimal(epsilon), Decimal(delta)
    if not loss and not failing:
        return f"Nothing has been learned about {unit} yet."
    if loss > _COUNTABLE:
        bound = "may be more than a million times"
        belief = "may become all but certainty, either way"
    else:
        factor = math.exp(float(loss)) * (1 + _WIDER)
        times = f"{_ceil(factor, 3):.3f}" if factor < 100 else f"{math.ceil(factor):,}"
        bound = f"is at most {times} times"
        # As many digits as it takes for the bounds not to read 0 % and 100 %.
        digits = max(1, math.ceil(float(loss) / math.log(10)) - 1)
        high = _ceil(100 * (1 / (1 + math.exp(-float(loss))) * (1 + _WIDER)), digits)
        belief = f"stays between {100 - high:.{digits}f} % and {high:.{digits}f} %"
    failure = f", except with probability about {failing:g}" if failing else ""
    return (
        f"Anything that happens {bound} more or less likely because of the data of {unit}"
        f"{failure}. A belief held at 50 % {belief}."
    )


def _ceil(value: float, digits: int) -> float:
    return math.ceil(value * 10.0**digits) / 10.0**digits


def groups_in_words(subjects: Any) -> str:
    """Return a subject group of an event as words: "country: KR, JP", or "everyone"."""
    if not subjects or {} in (terms := subjects if isinstance(subjects, list) else [subjects]):
        return "everyone"
    named = ([f"{name}: {_values(term[name])}" for name in sorted(term)] for term in terms)
    return shortened(" or ".join(map("; ".join, named)), 200)


def _values(values: Any) -> str:
    if not isinstance(values, dict):
        return ", ".join(values)
    if "from" in values:
        return f"{values['from']} to {values['to']}"
    return f"{len(read(values))} values"


def shortened(text: str, most: int) -> str:
    """Return ``text``, cut to ``most`` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def rule_in_words(rule: Rule, people: Population | None) -> str:
    """Return a policy rule as a sentence, about the units of ``people``, persons if there are none
    yet.
    """
    further = getattr(rule, "unit", None)
    unit = people.called(further) if people else f"one {further or 'person'}"
    text = f"{rule.sentence(unit)} is {_ACTIONS[rule.action]}."
    if getattr(rule, "carry", "used") == "none":
        text += " Counting began at zero when this limit was adopted."
    return text
