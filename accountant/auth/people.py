"""People whom an identity provider signs in: their names here, and what is recorded of them.

Somebody is who the provider says: issuer and subject. The name that stands in events is made when
they first come in, of what they are called there and a tag of issuer and subject, and stays. So
nobody becomes somebody else by another name at the provider, and none is the name of a key.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import Final
from unicodedata import normalize

from accountant.auth.keys import Credentials, Written
from accountant.auth.oidc import Person, no_role
from accountant.auth.ring import SIGNED_IN, TURNED_AWAY, Identity, KeyRing
from accountant.auth.sessions import Sessions
from accountant.budget.errors import Conflict, Problem
from accountant.config.logs import logger

MOST_AN_HOUR: Final = 20
"""Sign-ins of one person within an hour that are recorded; one more is refused."""
MOST_REFUSALS: Final = 100
"""Refusals of all people within an hour that are recorded, one of each."""
_TAG: Final = 10
"""Characters of the tag: 50 bits."""
_WISH: Final = 40
_log = logger()


class TooOften(Problem):
    """A person has signed in too often within an hour."""


def enter(credentials: Credentials, sessions: Sessions, person: Person) -> str:
    """Record the sign-in of a person, and return the token of their session; or record that they
    were refused. Raise Problem. A visit to the provider lets in once.
    """
    ring, _ = credentials.ring()
    name = name_of(ring, person)
    if person.role is None:
        _turn_away(credentials, person, name)
        raise no_role()
    role, (issuer, subject) = person.role, person.identity

    def signed_in(ring: KeyRing, now: int) -> Written:
        if person.flow in ring.flows:
            raise Problem("unauthenticated", "this visit to the identity provider was used already")
        if person.identity not in ring.people and ring.is_taken(name):
            raise Conflict(
                "key-exists",
                f"you would be called {name}, and a key has that name: ask the operator to tell "
                "your identity provider another name for you",
            )
        if len(ring.lately(person.identity, now)) >= MOST_AN_HOUR:
            raise TooOften(
                "too-many-sign-ins", f"you have signed in {MOST_AN_HOUR} times within an hour"
            )
        return SIGNED_IN, {"role": role, "issuer": issuer, "subject": subject, "flow": person.flow}

    return sessions.begin(name, signed_in)


def name_of(ring: KeyRing, person: Person) -> str:
    """Return the name that a person has here, or gets when they first come in."""
    if known := ring.people.get(person.identity):
        return known
    plain = normalize("NFKD", person.wish.partition("@")[0]).encode("ascii", "ignore").decode()
    wish = re.sub(r"[^a-z0-9_-]+", "-", plain.lower())[:_WISH].strip("-_") or "person"
    return f"{wish}.{_tag(person.identity)}"


def _tag(identity: Identity) -> str:
    digest = sha256("\0".join(identity).encode()).digest()
    return b32encode(digest).decode().lower()[:_TAG]


def _turn_away(credentials: Credentials, person: Person, name: str) -> None:
    """Record that somebody has no role here, unless enough is recorded: they can come again as
    often as they like.
    """

    def turned_away(ring: KeyRing, now: int) -> Written:
        late = ring.refused_lately(now)
        if person.identity in late or len(late) >= MOST_REFUSALS:
            raise _Enough
        issuer, subject = person.identity
        return TURNED_AWAY, {"issuer": issuer, "subject": subject}

    _log.warning("a person has no role here", name=name)
    try:
        credentials.record(name, turned_away)
    except _Enough:
        return


class _Enough(Exception):
    """Nothing more is to be recorded."""
