"""What comes out of a run: a row a kind of query, what was booked for it, claims, and pictures.

What is booked is read back from the service, grant by grant, and not assumed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from accountant.client import Client, Failed
from accountant.queries import Answer, Dataset, Error, Receipt
from accountant.queries.query import Asking
from examples.queries.service import Ledgers

ASKING: Final[Asking] = {"purpose": "examples"}
"""Both policies require a purpose."""
RECEIPTS: Final = "receipts"
PROOF: Final = ".tlog-proof"
_PATIENCE: Final = 30.0
"""Seconds until what was booked last is in a published checkpoint."""


@dataclass(frozen=True)
class Row:
    """One kind of query, as it was run."""

    source: str
    system: str
    true: str
    answer: str
    off: float | None
    """How far the answer is from the truth, in units of the error."""
    error: float | None
    """The error at 95 %; None where nothing was drawn."""
    unit: str
    currency: str
    asked: Decimal | None
    booked: Decimal
    """What the service says that it charged for the grant."""
    receipt: str
    note: str = ""


@dataclass(frozen=True)
class Claim:
    """A statement that is reproduced, or not, with its numbers."""

    text: str
    measured: str
    holds: bool
    chance: str
    """The probability at most with which it fails although all is right."""


@dataclass(frozen=True)
class Booked:
    """A grant, as the service has booked it."""

    ledger: Client = field(repr=False)
    population: str
    dataset: str
    grant: str
    sequence: int
    charged: dict[str, Decimal]


@dataclass
class Results:
    """What the families of examples add to."""

    ledgers: Ledgers
    output: Path
    tell: Callable[[str], None]
    """Prints a line."""
    source: str = ""
    """The family that runs."""
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    booked: list[Booked] = field(default_factory=list)
    accounts: list[dict[str, Any]] = field(default_factory=list)
    """The service's accounts at the end, as ``closing`` reads them."""

    def paid(self, data: Dataset, receipt: Receipt) -> Booked:
        """Read back what the service has charged for a grant of a dataset, and keep it."""
        state = data.ledger.grant_state(receipt.grant)
        if state.charged is None:
            raise ValueError(f"grant {receipt.grant} is {state.state}, and not settled")
        found = Booked(
            data.ledger, data.people.name, str(state.dataset), state.id, receipt.sequence,
            state.charged,
        )  # fmt: skip
        self.booked.append(found)
        return found

    def row(
        self,
        data: Dataset | Sequence[Dataset],
        system: str,
        answer: Answer | tuple[Error, Receipt | Sequence[Receipt]],
        *,
        asked: str,
        true: Any,
        value: Any = None,
        off: float | None = None,
        currency: str = "epsilon",
        note: str = "",
    ) -> None:
        """Add an answer of ``data``, or its error and its receipt: if it is made of several grants,
        their receipts, with the dataset that each was asked of.

        ``asked``: in units of ``currency``. ``value``: what is shown of the answer, by default all
        of it. ``off``: its distance from the truth in units of its error, by default the
        difference.
        """
        if isinstance(answer, Answer):
            error, receipts = answer.error, [answer.receipt]
            value = answer.value if value is None else value
        else:
            error, some = answer
            receipts = [some] if isinstance(some, Receipt) else list(some)
        several = [data] if isinstance(data, Dataset) else data
        booked = [self.paid(one, receipt) for one, receipt in zip(several, receipts, strict=True)]
        if off is None:
            off = abs(float(value) - float(true))
        charged = sum((each.charged[currency] for each in booked), Decimal(0))
        grants = f"{booked[0].population}/{'+'.join(each.grant for each in booked)}"
        self._add(
            Row(
                self.source, system, text(true), text(value), off, error.amount, error.unit,
                currency, Decimal(asked), charged, grants, note,
            )
        )  # fmt: skip

    def free(self, system: str, *, true: Any, answer: Any, note: str = "") -> None:
        """Add a row that draws nothing, and costs nothing."""
        none = Decimal(0)
        self._add(
            Row(self.source, system, text(true), text(answer), None, None, "", "", None, none, "",
                note)
        )  # fmt: skip

    def claim(self, text: str, measured: str, *, holds: bool, chance: str) -> None:
        """Add a statement with what was measured. ``chance``: with what probability it can fail."""
        found = Claim(text, measured, bool(holds), chance)
        self.claims.append(found)
        self.tell(f"    {'holds' if found.holds else 'DOES NOT HOLD'}: {text}: {measured}")

    def picture(self, name: str, svg: str) -> None:
        """Write a picture."""
        (self.output / name).write_text(svg, encoding="utf-8")

    def keep_receipts(self) -> None:
        """Write the proof that each charge is in the ledger; wait until the last is published."""
        folder, until = self.output / RECEIPTS, time.monotonic() + _PATIENCE
        folder.mkdir(exist_ok=True)
        for each in self.booked:
            proof = _proof(each, until)
            (folder / f"{each.population}-{each.grant}{PROOF}").write_bytes(proof)

    def _add(self, row: Row) -> None:
        self.rows.append(row)
        error = "" if row.error is None else f", ± {text(row.error)} {row.unit}"
        cost = "costs nothing" if row.asked is None else f"{row.currency} {row.booked} booked"
        self.tell(f"  {row.system}: {row.answer} (truth: {row.true}){error}; {cost}")


def _proof(booked: Booked, until: float) -> bytes:
    while True:
        try:
            return booked.ledger.receipt(booked.sequence)
        except Failed:  # not yet under a published checkpoint
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def text(value: Any) -> str:
    """Return a number with four digits that count; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e6):
        return f"{int(value):,}"
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"
