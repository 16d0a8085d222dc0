"""Another secret in place of a key: by its holder, who can do no more than before, or renewed by an
operator, who then knows the secret and so had a part in making it.
"""

from __future__ import annotations

from typing import Final

from accountant.auth.keys import Credentials, Written, bounds, key_digest, new_secret, takes_two
from accountant.auth.ring import CREATED, NEVER, PROPOSED, ROTATED, Key, KeyRing
from accountant.budget.commands import DAY
from accountant.budget.errors import Conflict, Invalid, NotFound, Problem
from accountant.budget.facts import SECOND
from accountant.ledger.events import rfc3339

HOURS: Final = 24
MOST_HOURS: Final = 24 * 7
"""For how long a key goes on after another secret was made in its place: by default, at most."""


def check_hours(hours: int) -> None:
    """Raise Invalid for hours that no key may go on for after it was rotated."""
    if not 0 <= hours <= MOST_HOURS:
        text = f"a key goes on for 0 to {MOST_HOURS} hours after it was rotated, not for {hours}"
        raise Invalid("key-hours", text)


def _life(key: Key) -> int | None:
    """Return for how many days a key was made; None without an end."""
    return None if key.until == NEVER else max(1, (key.until - key.made) // (DAY * SECOND))


class Rotation:
    """Rotates the keys of one database. Every method may raise StoreError."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def renew(self, name: str, by: str, days: int | None = None, hours: int = HOURS) -> str:
        """Make another secret for the key of a name, of the same role and scope, or propose it as a
        new key is; return it. It is valid for ``days``, by default for as long as the old one was
        made for, and the old one for ``hours`` more. Whoever rotates it had a part in making it.
        Raise Problem.
        """
        check_hours(hours)
        secret = new_secret()

        def rotated(ring: KeyRing, now: int) -> Written:
            if (found := ring.current(name, now)) is None:
                raise NotFound("unknown-key", f"there is no valid key of {name!r} to rotate")
            digest, old = found
            life = _life(old) if days is None else days
            if days is None and life is not None and self._credentials.longest:
                life = min(life, self._credentials.longest)
            body = {"name": name, "role": old.role, "digest": key_digest(secret)}
            body |= bounds(life, old.populations or (), self._credentials.longest)
            kind = PROPOSED if takes_two(ring, old.role) else CREATED
            return kind, body | {"rotates": digest, "hours": hours}

        self._credentials.record(by, rotated)
        return secret

    def rotate(self, digest: str, hours: int = HOURS) -> tuple[str, Key, Key]:
        """Make another secret for the holder of the valid key of this digest, and return it, with
        the new key and the old one. It has the same end: a key prolongs no life. A key is rotated
        once, so whoever finds an old secret cannot have a new one of it. Raise Problem.
        """
        check_hours(hours)
        secret, name = new_secret(), self._credentials.valid(digest).name

        def rotated(ring: KeyRing, now: int) -> Written:
            if (key := ring.valid(digest, now)) is None:
                raise Problem("unauthenticated", "the key is not valid, or was revoked")
            if key.replaced:
                raise Conflict(
                    "key-rotated",
                    f"the key of {name} was rotated at {rfc3339(key.replaced)}, and this one goes "
                    f"on until {rfc3339(key.until)}: use the new one; if it was lost, an operator "
                    "rotates the key (`accountant keys renew`)",
                )
            told = {"name": name, "digest": key_digest(secret)}
            return ROTATED, told | {"rotates": digest, "hours": hours}

        self._credentials.record(name, rotated)
        ring, _ = self._credentials.ring()
        return secret, ring.by_digest[key_digest(secret)], ring.by_digest[digest]
