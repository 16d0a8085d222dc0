"""A pipeline's reservations: grants and sparse vector sessions. One that is never settled expires
and is charged in full.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Self

from accountant.client.transport import AccountantError, Connection, Reply

Mechanism = Mapping[str, Any]
"""A mechanism as the service's OpenAPI document describes it; amounts are decimal strings."""


class MayHaveRun(AccountantError):
    """The grant was given before, under the same idempotency key, to an earlier run.

    That run may have drawn its noise. Drawing again would be a second answer for one charge: commit
    this grant, and ask for the new run under a new key.
    """

    def __init__(self, grant: str) -> None:
        super().__init__(f"grant {grant} was given to an earlier run, which may have used it")


class _Reservation:
    """The base of grants and sessions: the service's answer and its settlement."""

    def __init__(self, connection: Connection, path: str, reply: Reply, *, named: bool) -> None:
        self._connection = connection
        self.answer = reply.body
        self.repeated = reply.repeated  # The request was answered before; it is charged once
        # Only a key that the caller chose can have been used by an earlier run.
        self._earlier_run = reply.repeated and named
        self.id: str = self.answer["id"]
        self._path = f"{path}/{self.id}"
        self.settled = False

    @property
    def outcome(self) -> str:
        """``allow``, or ``flag`` if the request was granted but a rule flags it."""
        return "flag" if self.answer["flags"] else "allow"

    @property
    def flags(self) -> tuple[str, ...]:
        """The ids of the rules that flag it."""
        return tuple(flag["rule"] for flag in self.answer["flags"])

    @property
    def decision_id(self) -> str:
        """The id of the whole decision, for ``Accountant.decision``."""
        return str(self.answer["decision"])

    @property
    def charge(self) -> dict[str, str]:
        """The charge that is reserved, in every currency."""
        return dict(self.answer["charge"])

    @property
    def epsilon(self) -> Decimal:
        """The epsilon that is reserved (possibly infinite)."""
        return Decimal(self.charge["epsilon"].replace("infinite", "Infinity"))

    def receipt(self) -> bytes:
        """Return a proof, to keep, that the reservation is in the ledger (C2SP tlog-proof)."""
        return self._connection._fetch(f"/receipts/{self.answer['sequence']}")

    def __enter__(self) -> Self:
        if self._earlier_run:
            raise MayHaveRun(self.id)
        return self

    def _settle(self, call: str, **body: Any) -> dict[str, Any]:
        answer = self._connection._post(f"{self._path}/{call}", **body).body
        self.settled = True
        return answer


class Grant(_Reservation):
    """Permission to run the mechanisms of one request, until it expires.

    As a context manager it commits when the block ends, **also when the block ends with an
    exception**: once noise may have been drawn from the data, the privacy is spent, whether or not
    the answer was published. The exception propagates. If nothing was executed on the data, call
    ``release`` before the block ends.

    Entering raises MayHaveRun if an earlier run may have got this grant under the same named key.
    """

    def commit(self, mechanisms: Sequence[Mechanism] | None = None) -> dict[str, Any]:
        """Report what was executed: everything, or only the listed mechanisms."""
        return self._settle("commit", mechanisms=mechanisms)

    def release(self, reason: str) -> dict[str, Any]:
        """Attest that nothing was executed on the data; the budget is given back."""
        return self._settle("release", reason=reason)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.settled:
            return
        try:
            self.commit()
        except AccountantError as failure:
            if error is None:  # nothing may be published: the service has not recorded the run
                raise
            error.add_note(f"grant {self.id} was not committed and will be charged: {failure}")


class Session(_Reservation):
    """An open sparse vector session: count the answers as they are given, then close it.

    As a context manager it closes when the block ends without an exception, and the epsilon of
    unused positives is given back. After an exception it stays open: uncounted answers may have
    been given, so the session expires and is charged in full.
    """

    positives = 0
    negatives = 0

    def count(self, *, positives: int = 0, negatives: int = 0) -> dict[str, Any]:
        """Count the answers given since the last count, before they are shown."""
        path = f"{self._path}/answers"
        answer = self._connection._post(path, positives=positives, negatives=negatives).body
        self.positives, self.negatives = answer["positives"], answer["negatives"]
        return answer

    def close(self) -> dict[str, Any]:
        """End the session. Return what is charged."""
        return self._settle("close")

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and not self.settled:
            self.close()
