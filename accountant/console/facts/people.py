"""Who could be the second person, and whose keys were made lately."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from msgspec import Struct

from accountant.auth.keys import Key
from accountant.budget.commands import DAY, KeyMade
from accountant.budget.decide.proposing import CONFIRMS, same_person
from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.ledger.events import rfc3339

LATELY: Final = 14 * DAY * SECOND
"""How young a key is that whoever decides is shown, in microseconds."""
Check = Callable[[str, KeyMade | None], None]
"""Raises Problem if a name, with what is known of its key, is no second person."""


class Person(Struct, frozen=True, kw_only=True):
    """The holder of a key, a link or a session that may confirm, or of one that was made lately.
    ``why``: for what reason they cannot decide this; empty if they can. ``by_first``: whoever
    proposed or asked had a part in making the key.
    """

    name: str
    role: str
    makers: str
    made: str
    lately: bool
    by_first: bool
    confirms: bool
    why: str


def people(keys: Iterable[Key], first: str, check: Check, now: int) -> tuple[Person, ...]:
    """Return those who could decide what ``first`` proposed or asked for, and the keys that were
    made lately, the latest first.
    """
    found = []
    for key in keys:
        confirms, lately = key.role in CONFIRMS, key.made > now - LATELY
        if not (confirms or lately):
            continue
        why = ""
        try:
            check(key.name, key.facts())
        except Problem as problem:
            why = _REASONS.get(problem.code, problem.detail)
        person = Person(
            name=key.name,
            role=key.role,
            makers=" and ".join(key.makers),
            made=rfc3339(key.made),
            lately=lately,
            by_first=any(same_person(maker, first) for maker in key.makers),
            confirms=confirms,
            why=why,
        )
        found.append((-key.made, key.name, person))
    return tuple(person for *_, person in sorted(found, key=lambda row: row[:2]))


_REASONS: Final = {
    "same-person": "it is theirs",
    "role-not-allowed": "their role decides nothing",
    "key-too-new": "the key was made by the other one within seven days",
}
