"""Sessions of people: a random token in a browser's cookie, its digest beside the ledger.

Who somebody is and with which role, only the ledger ``_service`` says: a session is the event of a
sign-in that neither a sign-out nor a revocation has ended, and whose time has not passed. The table
beside it holds which token belongs to which event, and when it was last used. So all processes see
the same sessions, and who can only write to the table cannot raise anybody's role.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from accountant.auth.keys import Credentials, Written
from accountant.auth.links import code_digest
from accountant.auth.ring import LEDGER, LONGEST, SIGNED_IN, SIGNED_OUT, Key, KeyRing
from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.config.logs import logger
from accountant.ledger.events import Event
from accountant.store.ledgers import SessionRow, StoreError, Writing

_TOUCH: Final = 60 * SECOND
"""How old the note of the last use may become: not every page is worth a write."""
_BACK: Final = 60 * SECOND
"""How far the clock may go back behind a session's last use; beyond it the session is over."""
_log = logger()
INVALID_CODE: Final = (
    "this code is not valid: it was used, its time has passed, it was mistyped, or a second person "
    "has still to confirm it; ask whoever made it"
)


@dataclass(frozen=True, slots=True)
class Session:
    """A session that is valid: as whom it acts, its token for forms, and until when it lasts at
    most (microseconds since 1970).
    """

    key: Key
    csrf: str
    until: int
    sequence: int


class Sessions:
    """The sessions of one database. Times are in microseconds. Methods may raise StoreError."""

    def __init__(self, credentials: Credentials, idle: int, longest: int) -> None:
        if not 0 < idle <= longest <= LONGEST:
            raise ValueError("a session lasts at most 30 days, and is idle for no longer than that")
        self._credentials, self._idle, self.longest = credentials, idle, longest

    def enter_by_link(self, code: str) -> str:
        """Use up a one-time link, and return the token of a new session. Raise Problem
        ("unauthenticated") for a code that is not valid. Of two at once, one comes in.
        """
        digest = code_digest(code)
        ring, _ = self._credentials.ring()
        link = ring.links.get(digest)
        if link is None:
            raise Problem("unauthenticated", INVALID_CODE)

        def signed_in(ring: KeyRing, now: int) -> Written:
            valid = ring.links.get(digest)
            if valid is None or now >= min(valid.until, valid.key.until):
                raise Problem("unauthenticated", INVALID_CODE)
            return SIGNED_IN, {"link": valid.sequence, "role": valid.key.role}

        return self.begin(link.key.name, signed_in)

    def begin(self, by: str, signed_in: Callable[[KeyRing, int], Written]) -> str:
        """Record a sign-in, and return the token of its session: never one that a browser brought.
        Forget sessions that are over.
        """
        token = secrets.token_urlsafe(32)

        def beside(writing: Writing, event: Event) -> None:
            row = SessionRow(event.sequence, event.time)
            writing.end_sessions(LEDGER, b"", before=event.time - LONGEST)
            writing.keep_session(LEDGER, _digest(token), row)

        self._credentials.record(by, signed_in, beside=beside)
        return token

    def find(self, token: str) -> Session | None:
        """Return the session of a token, if it is valid, and note that it was used."""
        digest = _digest(token)
        row = self._credentials.ledgers.session(LEDGER, digest)
        ring, now = self._credentials.ring()
        entered = ring.entered.get(row.sequence) if row else None
        if row is None or entered is None:
            return None
        until = min(entered.time + self.longest, entered.key.until)
        if now >= until or now >= row.used + self._idle or now < row.used - _BACK:
            return None
        if now > row.used + min(_TOUCH, self._idle // 10):
            self._touch(digest, now)
        return Session(entered.key, _csrf(token), until, row.sequence)

    def _touch(self, digest: bytes, now: int) -> None:
        """Note the use of a session. A page is shown also where that cannot be written now."""
        try:
            with self._credentials.ledgers.writing(LEDGER) as writing:
                writing.use_session(LEDGER, digest, now)
                writing.commit()
        except StoreError as error:
            _log.warning("the use of a session was not noted", reason=str(error))

    def end(self, token: str) -> None:
        """End a session, if the token is that of a valid one."""
        if (session := self.find(token)) is None:
            return

        def signed_out(ring: KeyRing, now: int) -> Written | int:
            # Another request may have ended it first; then its sign-in is all there is to return.
            if session.sequence not in ring.entered:
                return session.sequence
            return SIGNED_OUT, {"signed_in": session.sequence}

        def beside(writing: Writing, event: Event) -> None:
            writing.end_sessions(LEDGER, _digest(token))

        self._credentials.record(session.key.name, signed_out, beside=beside)


def same_token(one: str, other: str) -> bool:
    """Return whether two tokens are the same, in a time that says nothing of where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _digest(token: str) -> bytes:
    return sha256(b"session:" + token.encode()).digest()


def _csrf(token: str) -> str:
    """Return the token that forms of a session carry: who sees a page cannot tell the cookie."""
    return hmac.new(token.encode(), b"form", sha256).hexdigest()
