"""What pays for questions that are asked one after the other.

``ByAnswer`` is a sparse vector session of the service: each answer is counted before it is shown,
and what was not used comes back. ``Whole`` is a grant that is charged whole once noise was drawn.
Both are context managers, and pay inside their block only: entering it refuses a reservation that
an earlier run may have got, and leaving it settles. Where nothing was drawn all is given back.

Both have a ``lock``. Who asks holds it from looking whether anything is left until the answer is
counted, and what settles the session takes it too: threads are answered one after the other.

After an exception, or an answer that could not be counted, the one stays open and expires, charged
in full; the other is committed if anything was drawn.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Final, Self, Unpack

from accountant.client.calls import Settles
from accountant.client.reservations import NOTHING
from accountant.client.results import Settlement
from accountant.queries.query import Charged, Receipt
from accountant.queries.sparse import SessionOver

if TYPE_CHECKING:
    from accountant.client.sync import Grant, Session


OUTSIDE: Final = 'a session answers inside its block only: "with session:"'


class ByAnswer:
    """A sparse vector session of the service."""

    def __init__(self, on: Charged, session: Session) -> None:
        self._on, self.session, self.lock = on, session, RLock()
        self._begun = self._used = self._owed = False
        self.settlement: Settlement | None = None
        """What was charged, once it is closed."""

    @property
    def receipt(self) -> Receipt:
        """Where the charge is in the ledger: of the whole session, or what is left when closed."""
        held = self.session
        charge = held.charge if self.settlement is None else self.settlement.charged
        return Receipt(held.id, held.sequence, charge, held.flags, self._on.ledger)

    def drawing(self) -> None:
        """Say that noise is about to be drawn. Raise SessionOver if nothing may be (any more)."""
        if self._owed:
            raise SessionOver("answers could not be counted: the session answers nothing more")
        if self.session.settled:
            raise SessionOver("the session is closed")
        if not self._begun:
            raise SessionOver(OUTSIDE)
        self._used = self._owed = True

    def count(self, positives: int, negatives: int) -> None:
        """Count the answers that were drawn before anybody sees them. If that fails nobody will."""
        self.session.count(positives=positives, negatives=negatives)
        self._owed = False

    def close(self, **more: Unpack[Settles]) -> Settlement:
        """End the session and return what is charged: nothing if no answer was given, for the noise
        on the threshold says nothing of the data. Raise SessionOver if an answer was drawn that was
        not counted.
        """
        with self.lock:
            if self._owed:
                raise SessionOver(
                    "an answer was drawn that could not be counted: the session is not closed, and "
                    "expires, charged in full"
                )
            if self._used:
                self.settlement = self.session.close(**more)
            else:
                self.settlement = self._on.ledger.release(self.session.id, NOTHING, **more)
                self.session.settled = True
            return self.settlement

    def __enter__(self) -> Self:
        self.session.__enter__()
        self._begun = True
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.lock:
            self._begun = False
            if error is None and not (self.session.settled or self._owed):
                self.close()


class Whole:
    """A grant that is charged whole."""

    def __init__(self, on: Charged, grant: Grant) -> None:
        self._on, self._grant, self.lock = on, grant, RLock()
        self._begun = self._used = False

    @property
    def receipt(self) -> Receipt:
        """Where the charge is in the ledger."""
        held = self._grant
        return Receipt(held.id, held.sequence, held.charge, held.flags, self._on.ledger)

    def drawing(self) -> None:
        """Say that noise is about to be drawn. Raise SessionOver if nothing may be (any more)."""
        if self._grant.settled:
            raise SessionOver("the session is closed")
        if not self._begun:
            raise SessionOver(OUTSIDE)
        if not self._used:
            self._grant.use()
            self._used = True

    def count(self, positives: int, negatives: int) -> None:
        """Nothing: all of it is charged."""

    def __enter__(self) -> Self:
        self._grant.__enter__()
        self._begun = True
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self.lock:
            self._begun = False
            self._grant.__exit__(kind, error, trace)
