"""What was priced before. A new mechanism takes a millisecond, a plan many; whoever asks is priced
before any lock is taken, and who asks for what was priced need not wait for that. What is priced
here decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import orjson

from accountant.budget.commands import Asked
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.ledger.events import to_keep
from accountant.privacy.mechanisms import Relation

_REMEMBERED: Final = 1_024
"""Commands on the same terms."""
_TERMS: Final = 64


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
        self._done: dict[Terms, set[bytes]] = {}
        """By terms: commands as a whole, which is found fastest, and their mechanisms alone."""

    def left(self, terms: Terms, commands: Sequence[Asked]) -> list[Asked]:
        """Those that are to be priced."""
        done = self._done.get(terms, frozenset[bytes]())
        new = [asked for asked in commands if asked.canonical not in done and has_price(asked)]
        return [asked for asked in new if asked.items or _mechanisms(asked) not in done]

    def price(self, terms: Terms, asked: Asked) -> None:
        """Prices what is asked, so that doing it again costs nothing."""
        for command in asked.items or (asked.command,):
            price_all(getattr(command, "mechanisms", None) or (), *terms)
        if terms not in self._done and len(self._done) >= _TERMS:
            self._done.clear()
        done = self._done.setdefault(terms, set())
        if len(done) >= _REMEMBERED:
            done.clear()
        done |= {asked.canonical} if asked.items else {asked.canonical, to_keep(_mechanisms(asked))}


def _mechanisms(asked: Asked) -> bytes:
    return orjson.dumps(asked.document["mechanisms"])
