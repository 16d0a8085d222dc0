"""A request in words: who asks, on whom, by which mechanisms, for what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from accountant.budget.commands.base import LONGEST_TEXT
from accountant.budget.facts import mechanisms_of
from accountant.console.amounts import up
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.words import groups_in_words, shortened

MOST: Final = 12
"""Mechanisms that are told singly; the others are counted."""
_LONGEST: Final = 300
_FEW: Final = 5
_SKIPPED: Final = frozenset({"kind", "count", "sampler", "claimed"})


class Line(Struct, frozen=True):
    """A fact: its name, and what is said of it. ``quoted``: in somebody's own words."""

    name: str
    text: str
    quoted: bool = False


def asked(client: str, command: Mapping[str, Any]) -> tuple[Line, ...]:
    """Return the lines that tell a request, its texts opened and its groups named."""
    named = command["dataset"]
    lines = [
        Line("Client", client),
        Line("Data", named if isinstance(named, str) else ", ".join(named)),
        Line("About", groups_in_words(command.get("subjects"))),
    ]
    each = mechanisms_of(command)
    lines += [Line("Mechanism", mechanism(one)) for one in each[:MOST]]
    if len(each) > MOST:
        lines.append(Line("Mechanism", f"and {len(each) - MOST:,} more"))
    used = (one["sampler"] for one in each if one.get("sampler"))
    if samplers := sorted({f"{one['library']} {one['version']}" for one in used}):
        lines.append(Line("Sampler", shortened(", ".join(samplers), _LONGEST)))
    for name, title in (("purpose", "Purpose"), ("justification", "Justification")):
        if text := command.get(name):
            lines.append(Line(title, shortened(str(text), LONGEST_TEXT), quoted=True))
        elif name == "purpose":
            lines.append(Line(title, "none was stated"))
    if part := command.get("allotment"):
        lines.append(Line("Drawn from", str(part)))
    return tuple(lines)


def cost(charge: Charge, command: Mapping[str, Any], digits: int = 3) -> str:
    """Return what a request asks for: its epsilon; or what it runs, where that has no epsilon of
    its own, as training has none, but a bound in another currency.
    """
    epsilon = charge.amount(Currency.EPSILON)
    if epsilon != INFINITE:
        return up(epsilon, digits)
    if not charge.is_bounded:
        return "something without a bound"
    times: dict[str, int] = {}
    for one in mechanisms_of(command):
        times[one["kind"]] = times.get(one["kind"], 0) + one.get("count", 1)
    if len(times) > _FEW:
        return f"mechanisms of {len(times)} kinds"
    return " and ".join(
        kind.replace("_", " ") + (f" ({n:,} times)" if n > 1 else "") for kind, n in times.items()
    )


def mechanism(stated: Mapping[str, Any]) -> str:
    """Return a mechanism in words: its kind, its parameters, how often, and what was claimed."""
    parts = [f"{name.replace('_', ' ')} {_value(v)}" for name, v in _stated(stated)]
    text = ", ".join([stated["kind"].replace("_", " "), *parts, _times(stated.get("count", 1))])
    claim = stated.get("claimed")
    if isinstance(claim, Mapping):
        text += "; claimed: " + ", ".join(f"{name} {value}" for name, value in claim.items())
    elif claim is not None:
        text += f"; claimed: {claim}"
    return shortened(text, _LONGEST)


def _stated(stated: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(name, v) for name, v in stated.items() if name not in _SKIPPED and v is not None]


def _value(value: Any) -> str:
    if isinstance(value, list):
        kinds = [one["kind"] for one in value if isinstance(one, Mapping) and "kind" in one]
        if 0 < len(value) <= _FEW and not any(isinstance(one, Mapping | list) for one in value):
            return " and ".join(map(str, value))
        return f"of {len(value):,}" + (f" ({', '.join(dict.fromkeys(kinds))})" if kinds else "")
    if isinstance(value, Mapping):
        return mechanism(value) if "kind" in value else _named(value)
    return str(value)


def _named(value: Mapping[str, Any]) -> str:
    """Return values by name: "poisson 0.01", "truncated (rate 0.02, of 50000, at most 1056)"."""
    if len(value) > _FEW:
        return f"of {len(value):,}"
    each = [
        f"{name.replace('_', ' ')} " + (f"({_value(v)})" if isinstance(v, Mapping) else _value(v))
        for name, v in value.items()
        if v is not None
    ]
    return ", ".join(each)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
