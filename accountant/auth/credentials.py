"""API keys as the service knows them: made, revoked, and looked up.

A key that another process has made or revoked counts at once: whoever looks one up reads the head
of the ``_service`` ledger before. Who has a whole batch to answer does that once for all of it
(``refresh``, then ``remembered``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from accountant.auth.keys import CREATED, LEDGER, REVOKED, Key, KeyRing, key_digest, new_secret
from accountant.budget.commands import Role
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.ledger.events import Entry, Event
from accountant.ledger.merkle import Tree
from accountant.store.ledgers import Ledgers
from accountant.store.projection import Projection

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Credentials:
    """The keys of one database. Thread-safe. Every method may raise StoreError."""

    def __init__(self, ledgers: Ledgers, clock: Callable[[], int]) -> None:
        self._ledgers, self._clock = ledgers, clock
        self._book = Projection(LEDGER, KeyRing)

    def create(self, name: str, role: Role, by: str) -> str:
        """Creates a key and returns it, the only time that it is ever shown. Raises Invalid for a
        name that is no name, Conflict for one that is taken.
        """
        if not _NAME.fullmatch(name):
            raise Invalid(
                "malformed-key-name",
                "a key's name has 1 to 64 letters, digits, dots, dashes, underscores or @, and "
                "begins with a letter or digit",
            )
        secret = new_secret()
        self._write(
            CREATED, by, {"name": name, "role": role, "digest": key_digest(secret)}, exists=False
        )
        return secret

    def revoke(self, name: str, by: str) -> None:
        """Ends a key's life. Raises NotFound."""
        self._write(REVOKED, by, {"name": name}, exists=True)

    def find(self, secret: str) -> Key | None:
        """Whose key this is."""
        self.refresh()
        return self.remembered(key_digest(secret))

    def all(self) -> list[Key]:
        """All valid keys."""
        self.refresh()
        return sorted(self._book.fold.by_digest.values(), key=lambda key: key.name)

    def remembered(self, digest: str) -> Key | None:
        """Whose key that is, as far as this process has read: without looking at the database."""
        return self._book.fold.by_digest.get(digest)

    @property
    def seen(self) -> Tree:
        """Where the keys' ledger was last seen to end."""
        return self._book.seen

    def refresh(self, head: Tree | None = None) -> None:
        """Reads what other processes have made and revoked. ``head`` is where the keys' ledger
        ends, if that is known.
        """
        head = self._ledgers.head(LEDGER) if head is None else head
        if head != self._book.seen or head != self._book.tree:
            with self._book.lock:
                head = self._ledgers.head(LEDGER)  # of now: another thread may have gone on
                self._book.follow(head, lambda first: self._ledgers.read(LEDGER, first))

    def _write(self, kind: str, by: str, body: dict[str, str], *, exists: bool) -> None:
        with self._ledgers.writing(LEDGER) as writing, self._book.lock:
            self._book.follow(writing.head(LEDGER), lambda first: writing.read(LEDGER, first, 1000))
            ring = self._book.fold
            there = ring.named(body["name"])
            if there and not exists:
                raise Conflict("key-exists", f"a key is called {body['name']!r}; revoke it first")
            if exists and not there:
                raise NotFound("unknown-key", f"no valid key is called {body['name']!r}")
            now = max(self._clock(), ring.time)
            event = Event(LEDGER, ring.sequence, kind, now, by, dict(body))
            writing.append(LEDGER, [Entry.of(event)])
            writing.commit()
