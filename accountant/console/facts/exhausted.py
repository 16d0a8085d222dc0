"""Every account that a refusal found exhausted, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from accountant.budget.exhausted import Exhausted
from accountant.budget.rules.scope import ALL
from accountant.reporting.words import groups_in_words, shortened

MOST_TEXT: Final = 200
"""Characters of the datasets of an entry, and of its cells."""


class Full(Struct, frozen=True):
    """Accounts of one limit with the same exhausted cells."""

    rule: str
    data: str
    cells: str


class ExhaustedFacts(Struct, frozen=True):
    """All accounts; ``shortened`` if some names are left out."""

    accounts: int
    entries: tuple[Full, ...]
    shortened: bool


def exhausted(found: Sequence[Exhausted]) -> ExhaustedFacts | None:
    """Return in words what the event of a refusal lists; None if that is nothing."""
    if not found:
        return None
    data = [", ".join("all together" if n == ALL else n for n in one.datasets) for one in found]
    entries = [
        Full(one.rule, shortened(text, MOST_TEXT), _cells(one))
        for one, text in zip(found, data, strict=True)
    ]
    cut = any(len(text) > MOST_TEXT for text in data)
    cut |= any(one.cells.endswith("…") for one in entries)
    cut |= any(one.size > MOST_TEXT for one in found)
    return ExhaustedFacts(sum(len(one.datasets) for one in found), tuple(entries), cut)


def _cells(one: Exhausted) -> str:
    if one.part:
        return "some groups, which the event had no room to name"
    if one.terms is None:
        return "all groups asked for"
    return groups_in_words(one.subjects) if one.size <= MOST_TEXT else groups_in_words(one.terms)
