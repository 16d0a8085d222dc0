"""API keys, as events of a ledger of their own, ``_service``. Only digests of keys are stored."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from accountant.budget.commands import Role
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import Tree
from accountant.store.ledgers import Ledgers
from accountant.store.projection import Projection

LEDGER: Final = "_service"
CREATED: Final = "key.created.v1"
REVOKED: Final = "key.revoked.v1"
PREFIX: Final = "acct_"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """The holder of an API key: the client's name in events, and its role."""

    name: str
    role: Role


def new_secret() -> str:
    """Return a fresh key of 256 random bits, for which one SHA-256 is enough protection at rest."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(secret: str) -> str:
    """Return the digest of a key, which is what is stored."""
    return sha256(secret.encode()).hexdigest()


@dataclass(slots=True)
class KeyRing:
    """The valid keys by digest: the fold of the ``_service`` ledger."""

    sequence: int = 0
    time: int = 0
    by_digest: dict[str, Key] = field(default_factory=dict)

    def follow(self, data: bytes) -> None:
        """Fold in the bytes of the next event. Raise ValueError if they are not the next event."""
        event = Event.from_bytes(data)
        if event.sequence != self.sequence:
            raise ValueError(f"{LEDGER}/{event.sequence} does not follow {self.sequence - 1}")
        body = event.body
        if event.type == CREATED:
            self.by_digest[body["digest"]] = Key(body["name"], body["role"])
        elif event.type == REVOKED:
            self.by_digest = {d: k for d, k in self.by_digest.items() if k.name != body["name"]}
        self.sequence, self.time = event.sequence + 1, event.time


class Credentials:
    """The API keys of one database. Thread-safe. Every method may raise StoreError.

    A key that another process created or revoked counts at once: each lookup first reads the head
    of the ``_service`` ledger. For many keys, call ``refresh`` once, then ``remembered`` for each.
    """

    def __init__(self, ledgers: Ledgers, clock: Callable[[], int]) -> None:
        self._ledgers, self._clock = ledgers, clock
        self._projection = Projection(LEDGER, KeyRing, KeyRing.follow)

    def create(self, name: str, role: Role, by: str) -> str:
        """Create a key and return it; it cannot be read again. Raise Invalid for a malformed name,
        Conflict for one that is taken.
        """
        if not _NAME.fullmatch(name):
            raise Invalid(
                "malformed-key-name",
                "a key's name has 1 to 64 letters, digits, dots, dashes, underscores or @, and "
                "begins with a letter or digit",
            )
        secret = new_secret()
        self._write(CREATED, by, {"name": name, "role": role, "digest": key_digest(secret)})
        return secret

    def revoke(self, name: str, by: str) -> None:
        """Revoke a key. Raise NotFound."""
        self._write(REVOKED, by, {"name": name})

    def find(self, secret: str) -> Key | None:
        """Return the holder of a key."""
        self.refresh()
        return self.remembered(key_digest(secret))

    def all(self) -> list[Key]:
        """Return the holders of all valid keys, by name."""
        self.refresh()
        return sorted(self._projection.state.by_digest.values(), key=lambda key: key.name)

    def remembered(self, digest: str) -> Key | None:
        """Return the holder of a key without reading the database."""
        return self._projection.state.by_digest.get(digest)

    @property
    def seen(self) -> Tree:
        """The head of the ``_service`` ledger when it was last read."""
        return self._projection.seen

    def refresh(self, head: Tree | None = None) -> None:
        """Read the events of other processes. ``head``: the ledger's head, if it is known."""
        head, kept = head or self._ledgers.head(LEDGER), self._projection
        if head != kept.seen or head != kept.tree:
            with kept.lock:
                head = self._ledgers.head(LEDGER)  # again: another thread may have read further
                kept.follow(head, lambda first: self._ledgers.read(LEDGER, first))

    def _write(self, kind: str, by: str, body: dict[str, str]) -> None:
        kept = self._projection
        with self._ledgers.writing(LEDGER) as writing, kept.lock:
            kept.follow(writing.head(LEDGER), lambda first: writing.read(LEDGER, first, 1000))
            ring, name = kept.state, body["name"]
            exists = any(key.name == name for key in ring.by_digest.values())
            if exists and kind == CREATED:
                raise Conflict("key-exists", f"a key named {name!r} exists; revoke it first")
            if not exists and kind == REVOKED:
                raise NotFound("unknown-key", f"there is no valid key named {name!r}")
            now = max(self._clock(), ring.time)
            writing.append(LEDGER, [Entry.of(Event(LEDGER, ring.sequence, kind, now, by, body))])
            writing.commit()
