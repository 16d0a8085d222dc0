"""The steps of a list that is fixed in advance, passed from mechanisms to ``composition``."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from accountant.privacy.losses import Loss


class NamedPair(NamedTuple):
    """The two output distributions that are hardest to tell apart, by the name that they have in
    ``composition.plan``, and their exact parameters.
    """

    name: str
    parameters: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """``count`` invocations, each of ``loss`` (None: unknown) and of that very ``pair``, if one is
    proved.
    """

    count: int
    loss: Loss | None
    pair: NamedPair | None
