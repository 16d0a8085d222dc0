"""Many requests one after another, none of which is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Envelope
from accountant.budget.decide.spending import ask_grant
from accountant.budget.errors import Problem
from accountant.budget.outcome import REFUSED, RESERVED, WAITING
from accountant.budget.rules.base import Ruling
from accountant.budget.state import State
from accountant.ledger.events import Entry, Event


class Foreseen(NamedTuple):
    """What a request would get: the event that would answer it, which is never written."""

    entry: Entry
    outcome: Ruling
    """``approve``: it would wait for a person."""

    @property
    def granted(self) -> bool:
        """Whether it would be granted."""
        return self.entry.type == RESERVED


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
        if one.entry.type == RESERVED:
            apply(state, one)
        yield Foreseen(one.entry, ruling_of(state, one.event()))


def ruling_of(state: State, event: Event) -> Ruling:
    """Return what a request was told by ``event``, under the policy in force. One that waits for
    budget is blocked for now.
    """
    fired = [rule for rule, _ in event.body.get("fired", ())]
    if event.type in (REFUSED, WAITING):
        rules = state.adopted.policy.rules if state.adopted else ()
        actions = {rule.id: rule.action for rule in rules}
        return "approve" if fired and actions.get(fired[0]) == "approve" else "block"
    return "flag" if fired else "allow"
