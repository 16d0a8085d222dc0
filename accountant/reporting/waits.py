"""Who waits for budget or a person, and what only a relaxed limit let in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from accountant.budget.errors import Problem
from accountant.budget.evaluate import evaluate
from accountant.budget.explain import in_words
from accountant.budget.request import waited
from accountant.budget.rules.relaxed import RELAXED
from accountant.budget.state import State
from accountant.budget.waiting.asked import Waiting
from accountant.ledger.events import rfc3339
from accountant.privacy.units import INFINITE, Charge, Currency
from accountant.reporting.schema import RelaxedFacts, WaitFacts, WaitsFacts
from accountant.reporting.texts import Texts
from accountant.reporting.trust import Word
from accountant.reporting.words import groups_in_words, shortened

MOST_WAITS: Final = 50
"""Requests that wait and are listed, those that came first; all are counted."""
MOST_RELAXED: Final = 200
"""Clients that are listed with what a context let in; the others are added up in one row."""
_LONGEST: Final = 300
_NOT_LOOKED_AT: Final = "nothing: it is admitted with the next event"


def waits(state: State, texts: Texts) -> WaitsFacts:
    """Return the requests that wait after the last event, and what holds each of them up then."""
    found = state.waiting.in_order()
    listed = tuple(_wait(state, one, texts) for one in found[:MOST_WAITS])
    return WaitsFacts(len(found), listed)


def _wait(state: State, one: Waiting, texts: Texts) -> WaitFacts:
    command = texts.open(one.sequence, one.document)
    epsilon, rules, text = _held_up(state, one)
    return WaitFacts(
        request=one.id,
        client=one.by,
        dataset=", ".join(one.on.named),
        subjects=groups_in_words(command.get("subjects")),
        purpose=command.get("purpose") or "",
        epsilon=epsilon,
        since=rfc3339(one.opened),
        until=rfc3339(one.expires),
        rules=rules,
        held_up_by=shortened(text, _LONGEST),
    )


def _held_up(state: State, one: Waiting) -> tuple[str, tuple[str, ...], str]:
    """Return what the request costs, and which rules, in words, hold it up for now: they block it,
    or leave it to a person.
    """
    asks = one.asks()
    try:
        request = waited(state, one.by, asks, state.time)
    except Problem as problem:  # as its dataset or group is now, it cannot be judged
        return INFINITE, (), problem.detail
    epsilon = request.total.amount(Currency.EPSILON)
    decision = in_words(state, request, evaluate(state, request), asks.to_json())
    said = "; ".join(
        f"a person has to approve: {each.text}" if each.action == "approve" else each.text
        for each in decision.holding
    )
    return epsilon, tuple(each.rule for each in decision.holding), said or _NOT_LOOKED_AT


@dataclass(slots=True)
class Relaxing:
    """What limits let in only because of a context, by rule and client."""

    _words: dict[tuple[str, str], Word] = field(default_factory=dict)

    def take(self, fired: Iterable[tuple[str, str]], client: str, total: Charge) -> None:
        """Take a request that was granted, or had run, and on which rules ``fired``, given as
        (rule, code).
        """
        for rule in (rule for rule, code in fired if code == RELAXED):
            place = (rule, client)
            if place not in self._words and len(self._words) >= MOST_RELAXED:
                place = (rule, "")
            self._words.setdefault(place, Word()).add(total)

    def kept(self) -> list[tuple[str, str, Word]]:
        """Return what was taken, to write it down."""
        return [(*place, word) for place, word in self._words.items()]

    @classmethod
    def begun(cls, kept: Iterable[tuple[str, str, Word]]) -> Relaxing:
        """Return what goes on from there."""
        return cls({(rule, client): word for rule, client, word in kept})

    def facts(self) -> tuple[RelaxedFacts, ...]:
        """Return a row for each rule and client, by name; without a client those of all others."""
        return tuple(
            RelaxedFacts(rule, client, word.count, word.shown)
            for (rule, client), word in sorted(self._words.items())
        )
