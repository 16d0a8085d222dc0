"""Reservations in the hands of a pipeline. Whatever is forgotten is charged, never given back."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from accountant.client.errors import AccountantError, MayHaveRun
from accountant.client.requests import Mechanism
from accountant.client.transport import Reply, Transport


class _Reservation:
    """What grants and sessions share: the service's answer."""

    def __init__(self, transport: Transport, path: str, reply: Reply, *, named: bool) -> None:
        self._transport = transport
        self.answer: dict[str, Any] = reply.body
        self.repeated = reply.repeated
        """True if this request had been answered before: it was a retry, and is charged once."""
        # A key of our own making is known to nobody else: then only a retry of ours can repeat.
        self._earlier_run = reply.repeated and named
        self.id: str = self.answer["id"]
        self._path = f"{path}/{self.id}"
        self._receipts = f"{path.rpartition('/')[0]}/receipts"
        self.settled = False

    @property
    def outcome(self) -> str:
        """``allow``, or ``flag``: given, but a rule wants somebody to know."""
        return "flag" if self.answer["flags"] else "allow"

    @property
    def flags(self) -> tuple[str, ...]:
        """The ids of the rules that flag it."""
        return tuple(flag["rule"] for flag in self.answer["flags"])

    @property
    def decision_id(self) -> str:
        """The id under which the whole decision can be read (``Accountant.decision``)."""
        return str(self.answer["decision"])

    @property
    def charge(self) -> dict[str, str]:
        """What is reserved, in every currency that is kept."""
        return dict(self.answer["charge"])

    @property
    def epsilon(self) -> Decimal:
        """The epsilon that is reserved (possibly infinite)."""
        return epsilon_of(self.charge)

    def receipt(self) -> bytes:
        """Proof that the reservation stands in the ledger (C2SP tlog-proof), to keep."""
        return self._transport.fetch(f"{self._receipts}/{self.answer['sequence']}")

    def __enter__(self) -> Self:
        if self._earlier_run:
            raise MayHaveRun(self.id)
        return self

    def _settle(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.post(f"{self._path}/{call}", body).body
        self.settled = True
        return answer


class Grant(_Reservation):
    """Leave to run what was asked for, until it expires.

    As a context manager it commits when the block ends, **also when the block ends with an
    exception**: once noise may have been drawn from the data, whether the answer was published or
    not, the privacy is spent. The exception goes on as it is. Only who knows that nothing at all
    was executed on the data may say so, with ``release``, before the block ends.

    A grant that an earlier run may have got under the same named key cannot be entered
    (MayHaveRun).
    """

    def commit(self, mechanisms: Sequence[Mechanism] | None = None) -> dict[str, Any]:
        """Says what was executed: everything, or only the listed mechanisms."""
        return self._settle("commit", {} if mechanisms is None else {"mechanisms": mechanisms})

    def release(self, reason: str) -> dict[str, Any]:
        """Attests that none of it was executed on the data; the budget comes back."""
        return self._settle("release", {"reason": reason})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled:
            return
        try:
            self.commit()
        except AccountantError as failure:
            if error is None:  # do not publish: the service does not know yet that it ran
                raise
            error.add_note(f"grant {self.id} was not committed and will be charged: {failure}")


class Session(_Reservation):
    """An open sparse vector session: count the answers as they are given, then close it.

    As a context manager it closes when the block ends well, and epsilon for unused positives comes
    back. After an exception it stays open on purpose: answers may have been given that were not
    counted, so it expires and is charged whole.
    """

    positives = 0
    negatives = 0

    def count(self, *, positives: int = 0, negatives: int = 0) -> dict[str, Any]:
        """Counts answers given since the last count, before anybody else sees them."""
        body = {"positives": positives, "negatives": negatives}
        answer: dict[str, Any] = self._transport.post(f"{self._path}/answers", body).body
        self.positives, self.negatives = answer["positives"], answer["negatives"]
        return answer

    def close(self) -> dict[str, Any]:
        """Ends the session; says what is charged."""
        return self._settle("close", {})

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and not self.settled:
            self.close()


def epsilon_of(charge: dict[str, str]) -> Decimal:
    """The epsilon of a charge as the service spells it."""
    text = charge["epsilon"]
    return Decimal("Infinity") if text == "infinite" else Decimal(text)
