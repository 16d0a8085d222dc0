"""Prices slow commands before any lock is taken. The prices are remembered where ``decide`` looks.

Most mechanisms take less time to price than to hand to another thread. Compound and sampled
mechanisms, and plans, may take from a millisecond to seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from accountant.budget.commands import Envelope
from accountant.budget.request import Terms, price_all
from accountant.ledger.events import to_keep
from accountant.privacy.mechanisms import Mechanism
from accountant.privacy.mechanisms.compound import Compound

_REMEMBERED: Final = 16_384  # Commands that are remembered
_MANY: Final = 20  # Mechanisms in one command that together take long


def takes_long(asked: Envelope) -> bool:
    """Return whether pricing may take longer than all the rest of a command."""
    found = _mechanisms(asked)
    for one in found:
        if one.sampling is not None or isinstance(one, Compound):
            return True
    return len(found) > _MANY


def _mechanisms(asked: Envelope) -> Sequence[Mechanism]:
    if not asked.items:
        return getattr(asked.command, "mechanisms", None) or ()
    return [one for each in asked.items for one in getattr(each, "mechanisms", None) or ()]


class Pricing:
    """Remembers which slow commands were priced, and on which terms. Thread-safe."""

    def __init__(self) -> None:
        self._done: set[tuple[Terms, bytes]] = set()

    def left(self, terms: Terms, commands: Sequence[Envelope]) -> list[Envelope]:
        """Return the commands that are still to be priced ahead."""
        slow = [asked for asked in commands if takes_long(asked)]
        return [asked for asked in slow if (terms, _key(asked)) not in self._done]

    def price(self, terms: Terms, asked: Envelope) -> None:
        """Price a command, so that pricing it again costs nothing."""
        price_all(_mechanisms(asked), *terms)
        if len(self._done) >= _REMEMBERED:
            self._done.clear()
        self._done.add((terms, _key(asked)))


def _key(asked: Envelope) -> bytes:
    """Return the part of a command that its price depends on; of a batch, all of it."""
    if asked.items:
        return asked.canonical
    return to_keep(orjson.dumps(asked.document["mechanisms"]))
