"""A ledger's custody: its signing keys, publication, versions of the bounds, recoveries.

The ledger holds the public halves of its keys: a reader with one key learns the later ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

FIRST_ENGINE: Final = 1
"""The version of the bounds that decides until an event adopts another."""


class SigningKey(NamedTuple):
    """A verifier key and the sequence of the event that adopted it."""

    sequence: int
    text: str

    @property
    def name(self) -> str:
        """The name that it signs under: the log's origin."""
        return self.text.partition("+")[0]


class AcceptedTime(NamedTuple):
    """The clock when an operator accepted it, and sequence and stamp of that event."""

    sequence: int
    clock: int
    time: int


@dataclass(frozen=True, slots=True)
class Custody:
    """``policies``: the sequences of all adoptions; ``engines``: the versions of the bounds, each
    with the sequence from which on it decides; ``stopped``: the sequence of the alarm that stopped
    publication; ``recovered``: that of the last recovery, after which the log has another origin;
    ``recoveries``: their number; ``accepted``: the last time that was accepted after a doubt.
    """

    keys: tuple[SigningKey, ...] = ()
    policies: tuple[int, ...] = ()
    engines: tuple[tuple[int, int], ...] = ((0, FIRST_ENGINE),)
    stopped: int | None = None
    recovered: int | None = None
    recoveries: int = 0
    accepted: AcceptedTime | None = None

    @property
    def engine(self) -> int:
        """The version of the bounds that decides now."""
        return self.engines[-1][1]

    def engine_at(self, sequence: int) -> int:
        """Return the version that decided the event at ``sequence``."""
        return next(version for first, version in reversed(self.engines) if first <= sequence)

    @property
    def key(self) -> SigningKey | None:
        """The key that signs now; None before the first, and after a recovery before the next."""
        if not self.keys or (self.recovered or -1) > self.keys[-1].sequence:
            return None
        return self.keys[-1]

    def signing(self, size: int, before: int) -> list[SigningKey]:
        """Return the keys that must sign a checkpoint of ``size`` after one of size ``before``: the
        key in force, and those of its name that were in force between, each vouching for the next.
        """
        adopted = [key for key in reversed(self.keys) if key.sequence < size]
        chain = [key for key in adopted if key.name == adopted[0].name]
        older = [old for new, old in pairwise(chain) if new.sequence >= before]
        return chain[:1] + older

    def log_of(self, size: int) -> str | None:
        """Return the origin of a checkpoint of ``size``."""
        return next((key.name for key in reversed(self.keys) if key.sequence < size), None)
