"""The steps of a list that is fixed in advance, as mechanisms name them and ``composition`` takes
them.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from accountant.privacy.losses import Loss


class NamedPair(NamedTuple):
    """The two output distributions that are hardest to tell apart, by the name that
    ``composition.plan`` knows them by, and their exact parameters.
    """

    name: str
    parameters: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """``count`` invocations, each of ``loss`` (None: nothing is known) and of that very ``pair``,
    where one is proved.
    """

    count: int
    loss: Loss | None
    pair: NamedPair | None
