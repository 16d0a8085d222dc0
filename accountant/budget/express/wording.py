"""Documents with slots: all that events of one form have in common is written once.

A slot is a text that stands for itself while the document is made, by the same functions that make
any event, and is cut out of its canonical bytes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

from accountant.ledger.events import canonical

_SLOT: Final = re.compile(rb'"\\u0001([0-9]+)\\u0002"|\\u0001([0-9]+)\\u0001')


def slot(number: int) -> str:
    """What stands for the value ``number`` within a string."""
    return f"\x01{number}\x01"


def bare(number: int) -> str:
    """What stands for the value ``number``, its quotes included: a whole number, or a word."""
    return f"\x01{number}\x02"


class Wording:
    """Bytes with slots."""

    __slots__ = ("_common", "_pick")

    def __init__(self, document: Any) -> None:
        pieces = _SLOT.split(canonical(document))
        numbers = [int(a or b) for a, b in zip(pieces[1::3], pieces[2::3], strict=True)]
        self._common = b"%b".join(piece.replace(b"%", b"%%") for piece in pieces[::3])
        self._pick: Callable[[Sequence[bytes]], Any] = (
            itemgetter(*numbers) if len(numbers) > 1 else _picked(numbers)
        )

    def filled(self, values: Sequence[bytes]) -> bytes:
        """The bytes with ``values`` in their slots."""
        filled: bytes = self._common % self._pick(values)
        return filled


def _picked(numbers: list[int]) -> Callable[[Sequence[bytes]], tuple[bytes, ...]]:
    return lambda values: tuple(values[number] for number in numbers)
