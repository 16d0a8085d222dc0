"""What came back, or began at zero, on somebody's word that nothing in the ledger can verify."""

from __future__ import annotations

from typing import Final

from msgspec import Struct, field

from accountant.privacy.units import Charge, Currency, amount
from accountant.reporting.schema import TrustedFacts

RELEASED: Final = "grant.released.v1"
CLOSED: Final = "sparse_vector.closed.v1"


class Word(Struct):
    """Epsilon given back in some way, in units; ``unbounded`` counts charges without an epsilon."""

    count: int = 0
    epsilon: int = 0
    unbounded: int = 0

    def add(self, back: Charge) -> None:
        """Add what was given back."""
        self.count += 1
        units = back.units(Currency.EPSILON)
        self.epsilon += units or 0
        self.unbounded += units is None

    @property
    def shown(self) -> str:
        """The sum, or "infinite"."""
        return amount(None if self.unbounded else self.epsilon, Currency.EPSILON)


class Trust(Struct):
    """What one client has attested."""

    released: Word = field(default_factory=Word)
    not_run: Word = field(default_factory=Word)
    positives: Word = field(default_factory=Word)
    all: Word = field(default_factory=Word)
    cells: int = 0

    def gave_back(self, kind: str, back: Charge) -> None:
        """Take what was given back when an event of type ``kind`` settled a grant."""
        word = {RELEASED: self.released, CLOSED: self.positives}.get(kind, self.not_run)
        word.add(back)
        self.all.add(back)

    def facts(self, client: str) -> TrustedFacts:
        """Return the row of the report."""
        return TrustedFacts(
            client=client,
            released=self.released.count,
            released_epsilon=self.released.shown,
            in_part=self.not_run.count,
            in_part_epsilon=self.not_run.shown,
            sessions=self.positives.count,
            sessions_epsilon=self.positives.shown,
            epsilon=self.all.shown,
            unbounded=self.all.unbounded,
            attested_cells=self.cells,
        )
