"""What was priced before. A new mechanism takes a millisecond, a plan many; whoever asks is priced
before any lock is taken, and who asks for what was priced need not wait for that. What is priced
here decides nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import orjson

from accountant.budget.commands import Asked
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.privacy.mechanisms import Relation

_REMEMBERED: Final = 1_024


class Terms(NamedTuple):
    """What prices depend on beside the mechanism: neighbours, Renyi orders, the bounds' version."""

    relation: Relation
    orders: tuple[int, ...]
    engine: int


def terms_of(state: State) -> Terms | None:
    """The terms in force; None before the population is registered."""
    if state.population is None:
        return None
    return Terms(state.population.relation, state.orders, state.custody.engine)


def has_price(asked: Asked) -> bool:
    """There are mechanisms in what is asked."""
    return any(getattr(one, "mechanisms", None) for one in asked.items or (asked.command,))


class Pricing:
    """Remembers what was priced, and on which terms. Thread-safe."""

    def __init__(self) -> None:
        self._done: set[tuple[Terms, bytes]] = set()

    def done(self, terms: Terms, asked: Asked) -> bool:
        """Nothing is left to price."""
        found = _place(terms, asked)
        return not asked.items and (found is None or found in self._done)

    def price(self, terms: Terms, asked: Asked) -> None:
        """Prices what is asked, so that doing it again costs nothing."""
        for command in asked.items or (asked.command,):
            price_all(getattr(command, "mechanisms", None) or (), *terms)
        if (place := _place(terms, asked)) is not None:
            if len(self._done) >= _REMEMBERED:
                self._done.clear()
            self._done.add(place)


def _place(terms: Terms, asked: Asked) -> tuple[Terms, bytes] | None:
    mechanisms: Any = asked.document.get("mechanisms")
    return None if mechanisms is None else (terms, orjson.dumps(mechanisms))
