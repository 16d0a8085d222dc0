"""A query: steps that are charged and run, and what is made of their draws.

Everything that can go wrong goes wrong before the budget is asked for: the exact values are worked
out, and every sampler is made ready. Then the grant is asked for, each draw is announced and made,
the grant is committed, and only then is there an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from accountant.client.calls import Datasets, Group
from accountant.client.mechanisms import Mechanism
from accountant.client.results import Amounts, Preview
from accountant.queries.arguments import MOST_RECORDS, whole_number
from accountant.queries.arguments import confidence as sensible
from accountant.queries.steps import Step

if TYPE_CHECKING:
    from accountant.client.sync import Client

CONFIDENCE: Final = 0.95
"""The confidence of the error that comes with an answer."""


class Reasons(TypedDict, total=False):
    """What a policy may ask for."""

    purpose: str | None
    justification: str | None


class Asking(Reasons, total=False):
    """Also of a release: the seconds until its grant expires, and its idempotency key."""

    ttl_seconds: int | None
    idempotency_key: str | None


@dataclass(frozen=True, slots=True)
class Error:
    """A bound on how far noise has moved an answer, which holds with a probability of
    ``confidence``, where it has a ``condition`` only if that is met. Nothing but the data that are
    counted is compared: a sample of people has a sampling error besides. As a text it says all
    this.
    """

    amount: float
    confidence: float
    unit: str
    """What the amount counts: units of the answer, ranks, records, units of the score."""
    how: str
    """Where the bound comes from."""
    condition: str | None = None
    """What nobody has checked, and without which the bound may not hold. None: it holds anyway."""

    def __str__(self) -> str:
        told = f"within {self.amount:.6g} {self.unit} with a confidence of {self.confidence}"
        if self.condition is not None:
            told += f" if {self.condition}, which is not checked"
        return f"{told} ({self.how})"

    def __float__(self) -> float:
        return float(self.amount)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Where the charge of an answer is in the ledger."""

    grant: str
    sequence: int
    """The event that reserved it."""
    charge: Amounts
    """What was charged, in every currency."""
    flags: tuple[str, ...]
    """The rules that flag it."""
    _client: Client = field(repr=False, compare=False)

    def proof(self) -> bytes:
        """Return a proof, to keep, that the charge is in the ledger (C2SP tlog-proof)."""
        return self._client.receipt(self.sequence)


@dataclass(frozen=True, slots=True)
class Answer:
    """A released answer, with what it cost."""

    value: Any
    error: Error
    mechanisms: tuple[Mechanism, ...]
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Charged:
    """Whose budget pays: a ledger's, for datasets, for everyone or for a group."""

    ledger: Client
    dataset: Datasets
    subjects: Group | None


Bounds = Callable[[float, Sequence[Any] | None, int | None], Error]
"""Makes the error from a confidence, the draws if there are any yet, and a number of records if the
caller states one. It never looks at the data."""


@dataclass(frozen=True, slots=True)
class Query:
    """What will run, and what it costs; nothing is drawn and nothing spent before ``release``.

    ``steps`` run in order, each on its exact value of ``values``. ``finish`` makes the answer from
    their draws and nothing else. ``bounds`` states the error.
    """

    kind: str
    on: Charged
    steps: tuple[Step, ...]
    values: Callable[[], Sequence[Any]] = field(repr=False)
    finish: Callable[[Sequence[Any]], Any] = field(repr=False)
    bounds: Bounds = field(repr=False)
    notes: tuple[str, ...] = ()
    """What the caller should know about who is charged."""

    @property
    def mechanisms(self) -> tuple[Mechanism, ...]:
        """What will run, as the service will be told."""
        return tuple(step.mechanism for step in self.steps)

    def error(self, confidence: float = CONFIDENCE, *, records: int | None = None) -> Error:
        """Return a bound on the error that holds with this ``confidence``, whatever the data are.
        Where it depends on how many records there are, and that is private, state for how many
        ``records``; otherwise ValueError says so.
        """
        stated = None if records is None else whole_number("records", records, 1, MOST_RECORDS)
        return self.bounds(sensible(confidence), None, stated)

    def cost(self, **reasons: Unpack[Reasons]) -> Preview:
        """Return what the ledger would decide now, the charge, and how many such queries fit."""
        on = self.on
        return on.ledger.preview(on.dataset, self.mechanisms, subjects=on.subjects, **reasons)

    def release(self, **asking: Unpack[Asking]) -> Answer:
        """Ask for the grant, draw, commit, and return the answer. Raise Refused if the ledger does
        not grant it, and what the client raises if it cannot be reached; nothing is shown then.

        Before the grant is asked for nothing is spent, whatever fails. Between the grant and its
        commit every draw is announced first: what was drawn is charged, and a grant of which
        nothing was drawn is released.
        """
        draws = [step.ready(value) for step, value in zip(self.steps, self.values(), strict=True)]
        told, on, drawn = self.mechanisms, self.on, []
        with on.ledger.grant(
            on.dataset, told, tracked=True, subjects=on.subjects, **asking
        ) as grant:
            for mechanism, draw in zip(told, draws, strict=True):
                grant.use(mechanism, mechanism.get("count", 1))
                drawn.append(draw())
        receipt = Receipt(grant.id, grant.sequence, grant.charge, grant.flags, on.ledger)
        error = self.bounds(CONFIDENCE, drawn, None)
        return Answer(self.finish(drawn), error, told, receipt)
