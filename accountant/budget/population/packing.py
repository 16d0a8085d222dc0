"""Long lists of values are stored as positions instead of names.

A list of more than ``LONGEST`` bytes is held as a set: its order and what it names twice are gone,
so a retry with the same names in another order is the same request. A shorter one stays as it was
sent, as every list did before there were positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from accountant.budget.commands import STORED, Command
from accountant.budget.errors import Invalid
from accountant.budget.population.population import Population
from accountant.budget.population.positions import read, spell, spelled
from accountant.budget.population.selection import Positions, Subjects, Term
from accountant.ledger.events import canonical

LONGEST: Final = 4_096
"""Canonical bytes of a list of names."""
_MOST_OF_A_CHARACTER: Final = 6
"""Canonical bytes of a control character; no other takes as many."""


def packed(people: Population | None, command: Command) -> Command:
    """``command`` with its long lists as positions. A list with an unknown name stays as it is."""
    subjects: Subjects | None = getattr(command, "subjects", None)
    if people is None or not subjects:
        return command
    terms = subjects if isinstance(subjects, list) else [subjects]
    if not any(_long(values) for term in terms for values in term.values()):
        return command
    try:
        found = [_term(people, term) for term in terms]
    except Invalid:
        return command  # whoever decides says what is wrong
    return command.model_copy(
        update={"subjects": found if isinstance(subjects, list) else found[0]}
    )


def packed_as(people: Population | None, command: Command, stored: Mapping[str, Any]) -> Command:
    """``command`` as ``stored``, which was recorded before, would hold it: a list of names may be
    older than positions.
    """
    found = packed(people, command)
    return found if found.to_json().get("subjects") == stored.get("subjects") else command


def in_names(people: Population, command: dict[str, Any]) -> dict[str, Any]:
    """The command of an event with names instead of positions, for readers."""
    subjects = command.get("subjects")
    if not subjects:
        return command
    terms = subjects if isinstance(subjects, list) else [subjects]
    named = [{name: _names(people, name, values) for name, values in t.items()} for t in terms]
    return command | {"subjects": named if isinstance(subjects, list) else named[0]}


def _long(values: Any) -> bool:
    if not isinstance(values, list):
        return False
    most = sum(map(len, values)) * _MOST_OF_A_CHARACTER + 3 * len(values) + 2
    return most > LONGEST and len(canonical(values)) > LONGEST


def _term(people: Population, term: Term) -> Term:
    return {
        name: _positions(people, name, values)
        if isinstance(values, list) and _long(values)
        else values
        for name, values in term.items()
    }


def _positions(people: Population, dimension: str, names: list[str]) -> Positions:
    code, text = spell(np.unique(people.indices(people.axis(dimension), names)))
    return Positions.model_validate({code: text}, context=STORED)


def _names(people: Population, dimension: str, values: Any) -> Any:
    if not (isinstance(values, dict) and values.keys() <= {"bits", "gaps"}):
        return values
    names = dict(people.dimensions)[dimension]
    return [names[position] for position in read(spelled(values)).tolist()]
