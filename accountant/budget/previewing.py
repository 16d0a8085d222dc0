"""Many requests one after another, none of which is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Envelope
from accountant.budget.decide.spending import ask_grant
from accountant.budget.errors import Problem
from accountant.budget.outcome import REFUSED
from accountant.budget.state import State
from accountant.ledger.events import Entry


class Foreseen(NamedTuple):
    """What a request would get: the event that would answer it, which is never written."""

    entry: Entry

    @property
    def granted(self) -> bool:
        """Whether it would be granted."""
        return self.entry.type != REFUSED


def foresee(state: State, by: str, asked: Iterable[AskGrant], now: int) -> Iterator[Foreseen]:
    """Yield what each request of ``by`` would get at stamp ``now``, after those before it that
    would be granted. ``state`` is thrown away. Raises the Problem of the first request that cannot
    be answered, with its place.
    """
    for place, command in enumerate(asked):
        try:
            [one] = ask_grant(state, Envelope(by, command), command, now)
        except Problem as problem:
            problem.numbers["item"] = place
            raise
        if one.entry.type != REFUSED:
            apply(state, one)
        yield Foreseen(one.entry)
