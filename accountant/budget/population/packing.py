"""Long lists of values are stored as positions instead of names.

A list of more than ``LONGEST`` bytes is held as a set: a retry with the same names in another order
is the same request. A shorter list stays as it was sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from accountant.budget.commands import Command
from accountant.budget.commands.plain import Listed, Term
from accountant.budget.errors import Invalid
from accountant.budget.population.population import Population
from accountant.budget.population.positions import CODES, read, spell
from accountant.budget.population.selection import Subjects
from accountant.ledger.events import canonical

LONGEST: Final = 4_096
"""Canonical bytes of a list of names."""
_MOST_OF_A_CHARACTER: Final = 6
"""Canonical bytes of a control character; no other takes as many."""


def packed(people: Population | None, command: Command) -> Command:
    """Return ``command`` with its long lists as positions, except those with an unknown name."""
    subjects: Subjects | None = getattr(command, "subjects", None)
    if people is None or not subjects:
        return command
    if isinstance(subjects, (Term, Listed)) and subjects.size <= LONGEST:
        return command
    terms = subjects if isinstance(subjects, list) else [subjects]
    if not any(_long(values) for term in terms for values in term.values()):
        return command

    def pack(dimension: str, values: Any) -> Any:
        if not _long(values):
            return values
        positions = np.unique(people.indices(people.axis(dimension), values))
        return spell(positions)

    try:
        return command.model_copy(update={"subjects": _each(subjects, pack)})
    except Invalid:
        return command


def packed_as(people: Population | None, command: Command, stored: Mapping[str, Any]) -> Command:
    """Return ``command`` as ``stored`` would hold it, which may be older than positions."""
    found = packed(people, command)
    return found if found.to_json().get("subjects") == stored.get("subjects") else command


def in_names(people: Population, command: dict[str, Any]) -> dict[str, Any]:
    """Return the command of an event with names instead of positions, for readers."""

    def unpack(dimension: str, values: Any) -> Any:
        if not (isinstance(values, dict) and values.keys() <= CODES):
            return values
        names = dict(people.dimensions)[dimension]
        return [names[position] for position in read(values).tolist()]

    subjects = command.get("subjects")
    return command | {"subjects": _each(subjects, unpack)} if subjects else command


def _each(subjects: Any, change: Callable[[str, Any], Any]) -> Any:
    """Change the values of every dimension, in one term or a list of terms."""
    if isinstance(subjects, list):
        return [_each(term, change) for term in subjects]
    return {name: change(name, values) for name, values in subjects.items()}


def _long(values: Any) -> bool:
    if not isinstance(values, list):
        return False
    most = sum(map(len, values)) * _MOST_OF_A_CHARACTER + 3 * len(values) + 2
    return most > LONGEST and len(canonical(values)) > LONGEST
