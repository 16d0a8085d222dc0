"""Dimensions that look like times of events, of which one person has many.

A dimension has to be an unchanging attribute of the privacy unit. The week of an event is none: a
person with events in two weeks would lie in two cells, and what is charged to both would not add
up. The week in which a person joined is one, and whoever registers it says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Final

LOOKED_AT: Final = 100
"""Values of a dimension that tell what it is."""
_PERIODS: Final = frozenset({"hour", "day", "week", "month", "quarter", "year"})
_NAMES: Final = _PERIODS | {"date", "time", "timestamp"}
_DAY: Final = r"\d{4}-\d\d-\d\d"
_CLOCK: Final = r"([01]\d|2[0-4]):[0-5]\d(:[0-5]\d(\.\d+)?)?"
_TIME: Final = re.compile(
    rf"{_DAY}([T ]({_CLOCK}|[0-2]\d))?(Z|[+-]\d\d:?\d\d)?"  # a date, with a time or without
    r"|\d{4}-(0[1-9]|1[0-2])"  # a month
    r"|\d{4}-?[WQ]\d{1,2}(-[1-7])?"  # a week, a day in it, a quarter
    rf"|T?{_CLOCK}|T[0-2]\d|[0-2]?\dh",  # an hour
    re.ASCII,
)


def periodic(privacy_unit: str) -> bool:
    """Return whether a privacy unit names a period itself, as a person-day does."""
    return not _PERIODS.isdisjoint(_words(privacy_unit))


def looks_like_times(dimension: str, values: Sequence[str]) -> str:
    """Return why a dimension looks like times of events; empty if it does not."""
    if named := [word for word in _words(dimension) if word in _NAMES]:
        return f"its name says {named[0]}"
    if values and beginning(values) == list(values[:LOOKED_AT]):
        return f"values such as {values[0]!r} are times"
    return ""


def beginning(values: Sequence[str]) -> list[str]:
    """Return the times that ``values`` begin with, as far as they are looked at."""
    return list(takewhile(_TIME.fullmatch, values[:LOOKED_AT]))


def unexplained(
    privacy_unit: str, dimensions: Mapping[str, Sequence[str]], fixed: Mapping[str, str]
) -> dict[str, str]:
    """Return the dimensions, with why, that look like times of events in a population of
    ``privacy_unit`` and of which ``fixed`` does not say why they never change.
    """
    if periodic(privacy_unit):
        return {}
    found = {name: looks_like_times(name, values) for name, values in dimensions.items()}
    return {name: why for name, why in found.items() if why and name not in fixed}


def _words(text: str) -> list[str]:
    """Return the words of a name, in the singular and without digits."""
    found = re.findall(r"[a-z]+", text.lower())
    return [word[:-1] if word.endswith("s") and word[:-1] in _NAMES else word for word in found]
