"""API keys: events in a ledger of their own, ``_service``. Only digests are ever written down."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from accountant.budget.commands import Role
from accountant.ledger.events import Event

LEDGER: Final = "_service"
CREATED: Final = "key.created.v1"
REVOKED: Final = "key.revoked.v1"
PREFIX: Final = "acct_"


@dataclass(frozen=True, slots=True)
class Key:
    """Who holds a key. Its name is the client's name in events."""

    name: str
    role: Role


def new_secret() -> str:
    """A fresh key: 256 random bits, so that one SHA-256 is protection enough at rest."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(secret: str) -> str:
    """What is kept of a key."""
    return sha256(secret.encode()).hexdigest()


@dataclass(slots=True)
class KeyRing:
    """The keys that are valid, by digest: the fold of the ``_service`` ledger."""

    sequence: int = 0
    time: int = 0
    by_digest: dict[str, Key] = field(default_factory=dict)

    def apply(self, event: Event) -> None:
        """Folds one event in. Raises ValueError if it is out of order."""
        if event.sequence != self.sequence:
            raise ValueError(f"{LEDGER}/{event.sequence} does not follow {self.sequence - 1}")
        body = event.body
        if event.type == CREATED:
            self.by_digest[body["digest"]] = Key(body["name"], body["role"])
        elif event.type == REVOKED:
            self.by_digest = {d: k for d, k in self.by_digest.items() if k.name != body["name"]}
        self.sequence, self.time = event.sequence + 1, event.time

    def follow(self, data: bytes) -> None:
        """Folds in the next event. Raises ValueError if it is not."""
        self.apply(Event.from_bytes(data))

    def named(self, name: str) -> Key | None:
        """The valid key of that name."""
        return next((k for k in self.by_digest.values() if k.name == name), None)
