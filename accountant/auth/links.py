"""One-time links: whoever has the code signs in as a named person, once, within minutes.

A link is a credential like a key: whoever made it is its maker, and one of a role that confirms is
only proposed once there were two people who could (``keys.py``). A link of one's own key makes
nothing new: whoever comes in by it is the holder of that key, as long as the key is valid.
"""

from __future__ import annotations

import secrets
from base64 import b32encode
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from accountant.auth.keys import Credentials, Written, check_name, check_nobodys, takes_two
from accountant.auth.ring import LINK_PROPOSED, LINKED, KeyRing
from accountant.budget.commands import Role
from accountant.budget.errors import Forbidden, Invalid, Problem
from accountant.config.identity import PEOPLE
from accountant.ledger.events import Event

MINUTES: Final = 10
MOST_MINUTES: Final = 60
_BYTES: Final = 20
"""Of a code: 160 random bits, for which one SHA-256 is enough protection at rest."""


def new_code() -> str:
    """Return a fresh code: eight groups of four letters and digits, which can be typed."""
    text = b32encode(secrets.token_bytes(_BYTES)).decode().lower()
    return "-".join(text[place : place + 4] for place in range(0, len(text), 4))


def code_digest(code: str) -> str:
    """Return the digest of a code, however it is spaced and in which case it is typed."""
    plain = "".join(code.split()).replace("-", "").lower()
    return sha256(plain.encode()).hexdigest()


class Links:
    """The one-time links of one database. Every method may raise StoreError."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def create(self, name: str, role: Role, by: str, minutes: int = MINUTES) -> tuple[str, Event]:
        """Create a link for a person, or propose it; return its code, which cannot be read again,
        and the event. It is valid for ``minutes`` from when it is created. Raise Problem.
        """
        check_name(name)
        if role not in PEOPLE:
            text = f"nobody signs in as a {role}: choose {', '.join(PEOPLE)}"
            raise Invalid("unknown-role", text)

        def made(ring: KeyRing, now: int) -> str:
            check_nobodys(ring, name)
            return LINK_PROPOSED if takes_two(ring, role) else LINKED

        return self._create({"name": name, "role": role}, by, minutes, made)

    def create_own(self, key: str, minutes: int = MINUTES) -> tuple[str, Event]:
        """Create a link for the holder of the valid key of this digest. Raise Problem."""
        holder = self._credentials.valid(key)
        if holder.role not in PEOPLE:
            text = f"key {holder.name!r} has the role {holder.role}, with which nobody signs in"
            raise Forbidden("role-not-allowed", text)
        body = {"name": holder.name, "role": holder.role, "key": key}

        def made(ring: KeyRing, now: int) -> str:
            if ring.valid(key, now) is None:
                raise Problem("unauthenticated", f"the key of {holder.name} was revoked, or ended")
            return LINKED

        return self._create(body, holder.name, minutes, made)

    def _create(
        self, body: dict[str, Any], by: str, minutes: int, kind: Callable[[KeyRing, int], str]
    ) -> tuple[str, Event]:
        if not 1 <= minutes <= MOST_MINUTES:
            text = f"a link is valid for 1 to {MOST_MINUTES} minutes, not for {minutes}"
            raise Invalid("invalid-request", text)
        code = new_code()
        told = body | {"digest": code_digest(code), "minutes": minutes}

        def decided(ring: KeyRing, now: int) -> Written:
            return kind(ring, now), told

        return code, self._credentials.record(by, decided)
