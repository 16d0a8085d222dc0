"""API keys, as events of a ledger of their own, ``_service``, whose fold is ``ring.py``. Only
digests of keys are stored.

Once two keys of administrators or officers were made, a further one is only proposed: it is valid
when another person has confirmed it (budget/decide/proposing.py).

A key with an end is refused from that stamp on. The service's clock counts, and so does every stamp
that was decided by: a clock that goes back does not bring a key back.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from accountant.auth.ring import (
    CREATED,
    DECLINED,
    LEDGER,
    NEVER,
    PROPOSED,
    REVOKED,
    Key,
    KeyRing,
)
from accountant.budget.commands import STORED, Confirmation, Role
from accountant.budget.decide.proposing import CONFIRMS, check_digest, check_open, check_other
from accountant.budget.errors import Conflict, Invalid, NotFound, Problem
from accountant.budget.facts import SECOND
from accountant.budget.proposals import Proposal, in_order
from accountant.budget.sealing import SALT_BYTES, WHY_CONFIRMED, Opened
from accountant.ledger.events import Entry, Event, rfc3339
from accountant.ledger.merkle import Tree
from accountant.store.ledgers import Ledgers, StoreError, Text, Writing
from accountant.store.projection import Projection

__all__ = ["LEDGER", "PREFIX", "Credentials", "Key", "key_digest", "new_secret"]

PREFIX: Final = "acct_"
_FREE: Final = 2
"""Keys that may confirm which are made at once, so that there can be two people."""
Written = tuple[str, dict[str, Any]]
"""The type and the body of an event."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
_POPULATION: Final = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
MOST_DAYS: Final = 36_500
_MINUTE: Final = 60 * SECOND
MOST_POPULATIONS: Final = 1_000
EXPIRED: Final = (
    "the key of {} expired at {}: ask an operator for another (`accountant keys create`)"
)
ROTATED_OUT: Final = (
    "the key of {} was rotated, and this one expired at {}: use the new one, or ask an operator "
    "for another (`accountant keys renew`)"
)


def check_name(name: str) -> None:
    """Raise Invalid for what cannot be a name in events."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            "malformed-key-name",
            "a name has 1 to 64 letters, digits, dots, dashes, underscores or @, and begins with a "
            "letter or digit",
        )


def new_secret() -> str:
    """Return a fresh key of 256 random bits, for which one SHA-256 is enough protection at rest."""
    return PREFIX + secrets.token_urlsafe(32)


def key_digest(secret: str) -> str:
    """Return the digest of a key, which is what is stored."""
    return sha256(secret.encode()).hexdigest()


def bounds(days: int | None, populations: Collection[str], longest: int) -> dict[str, Any]:
    """Return what an event says of a key that is valid for ``days``, by default for as long as keys
    may be (``longest``, 0: without an end), and reaches ``populations``, by default all. Raise
    Invalid.
    """
    days = days if days is not None else longest or None
    most = longest or MOST_DAYS
    if days is not None and not 1 <= days <= most:
        why = " (ACCOUNTANT_KEY_DAYS)" if longest else ""
        raise Invalid("key-days", f"a key is valid for 1 to {most} days{why}, not for {days}")
    for name in populations:
        if not _POPULATION.fullmatch(name):
            raise Invalid("key-population", f"{name!r} cannot be the name of a population")
    if len(populations) > MOST_POPULATIONS:
        text = f"a key names at most {MOST_POPULATIONS} populations, not {len(populations)}"
        raise Invalid("key-population", text)
    said: dict[str, Any] = {} if days is None else {"days": days}
    return said | ({"populations": sorted(set(populations))} if populations else {})


def _order(key: Key) -> tuple[str, bool, int]:
    """Return by what keys are ordered: of a name the one that is not replaced comes last."""
    return key.name, not key.replaced, key.made


def takes_two(ring: KeyRing, role: Role) -> bool:
    """Return whether another person has to confirm a key or link of a role."""
    return role in CONFIRMS and len(ring.custodians) >= _FREE


def _sealed(text: str) -> Opened:
    """Return a text as it is kept beside the event that has its digest."""
    return Opened(secrets.token_bytes(SALT_BYTES), text)


def check_nobodys(ring: KeyRing, name: str) -> None:
    """Raise Conflict for the name of a person whom a provider signs in."""
    if ring.is_persons(name):
        raise Conflict(
            "key-exists",
            f"{name!r} is the name of a person whom the identity provider signs in: choose another",
        )


class Credentials:
    """The API keys of one database. Thread-safe. Every method may raise StoreError.

    A key that another process created or revoked counts at once: each lookup first reads the head
    of the ``_service`` ledger. For many keys, call ``refresh`` once, then ``remembered`` for each.
    """

    def __init__(
        self,
        ledgers: Ledgers,
        clock: Callable[[], int],
        longest: int = 0,
        latest: Callable[[], int] = lambda: 0,
    ) -> None:
        """``longest``: days that a new key may be valid, 0 for no bound; ``latest``: the latest
        stamp by which anything was decided, in microseconds.
        """
        self._ledgers, self._clock = ledgers, clock
        self.longest, self._latest = longest, latest
        self._used: set[str] = set()
        self._projection = Projection(LEDGER, KeyRing, KeyRing.follow)

    def create(
        self,
        name: str,
        role: Role,
        by: str,
        days: int | None = None,
        populations: Collection[str] = (),
    ) -> str:
        """Create a key, or propose it, and return it; it cannot be read again. It is valid for
        ``days`` from when it is made, and reaches ``populations`` (``bounds``). Raise Invalid for a
        malformed name, Conflict for one that is taken.
        """
        check_name(name)
        secret = new_secret()
        body = {"name": name, "role": role, "digest": key_digest(secret)}
        body |= bounds(days, populations, self.longest)

        def made(ring: KeyRing, now: int) -> Written:
            if ring.has_valid(name, now):
                raise Conflict("key-exists", f"a key named {name!r} exists; revoke it first")
            check_nobodys(ring, name)
            return PROPOSED if takes_two(ring, role) else CREATED, body

        self.record(by, made)
        return secret

    def revoke(self, name: str, by: str) -> None:
        """Revoke a key, and end the links and sessions of its name. Raise NotFound."""

        def revoked(ring: KeyRing, now: int) -> Written:
            held = [*ring.by_digest.values(), *(one.key for one in ring.links.values())]
            held += [one.key for one in ring.entered.values()]
            if not any(key.name == name for key in held):
                text = f"there is no valid key, and no link or session, of {name!r}"
                raise NotFound("unknown-key", text)
            return REVOKED, {"name": name}

        self.record(by, revoked)

    def confirm(
        self, number: int, digest: str, by: str, key: Key | None = None, reason: str | None = None
    ) -> Event:
        """Make the key or link that another person proposed, and return the event. ``key`` is that
        of whoever confirms, if there is one; a ``reason`` is kept beside the event, which has its
        digest. Raise Problem. Repeating it changes nothing.
        """
        why = None if reason is None else _sealed(reason)

        def confirmed(ring: KeyRing, now: int) -> Written | int:
            proposal = ring.known(number)
            check_digest(proposal, digest)
            if proposal.status == "confirmed" and proposal.closed_by == by and proposal.closed:
                return proposal.closed
            check_open(proposal, now)
            before = ring.last_named(proposal.by, proposal.time)
            facts = {"key": key, "proposed_with": before}
            told = {name: one.facts() for name, one in facts.items() if one is not None}
            check_other(proposal, by, told.get("key"), now, told.get("proposed_with"))
            kind, made = ring.asked[number]
            check_nobodys(ring, made["name"])
            if kind == CREATED and "rotates" in made:
                if ring.valid(made["rotates"], now) is None:
                    text = f"the key of {made['name']} that is rotated has ended: decline this"
                    raise Conflict("proposal-outdated", text)
            elif kind == CREATED and ring.has_valid(made["name"], now):
                raise Conflict("key-exists", f"a key named {made['name']!r} exists")
            said = {"proposal": number, "digest": digest, "proposer": proposal.by} | told
            said |= {"reason": {"sealed": why.digest}} if why else {}
            confirms = Confirmation.model_validate(said, context=STORED)
            return kind, {**made, "confirms": confirms.model_dump(exclude_none=True)}

        return self.record(by, confirmed, {WHY_CONFIRMED: why} if why else {})

    def decline(self, number: int, by: str, reason: str) -> Event:
        """Decline a key that was proposed, or withdraw the proposal; the reason is kept beside the
        event, which has its digest. Raise Problem.
        """
        text = _sealed(reason)

        def declined(ring: KeyRing, now: int) -> Written:
            check_open(ring.known(number), now)
            return DECLINED, {"proposal": number, "reason": {"sealed": text.digest}}

        return self.record(by, declined, {"reason": text})

    def proposals(self) -> tuple[list[Proposal], int]:
        """Return the keys that were proposed, those that can be confirmed first, then the latest;
        and the present stamp.
        """
        ring, now = self.ring()
        return in_order(ring.proposals.values(), now), now

    def proposal(self, number: int) -> tuple[Proposal, int]:
        """Return a key that was proposed, and the present stamp. Raise NotFound."""
        ring, now = self.ring()
        return ring.known(number), now

    def find(self, secret: str) -> Key | None:
        """Return the holder of a key."""
        self.refresh()
        return self.remembered(key_digest(secret))

    def valid(self, digest: str) -> Key:
        """Return the holder of the valid key of a digest. Raise Problem ("unauthenticated")."""
        self.refresh()
        if (key := self.remembered(digest)) is None:
            raise Problem("unauthenticated", self.why_not(digest))
        return key

    def all(self) -> list[Key]:
        """Return the holders of all valid keys, by name; of a name that was rotated the latest
        comes last.
        """
        now = self.now()
        return [key for key in self.held() if now < key.until]

    def held(self) -> list[Key]:
        """Return the holders of all keys that were not revoked, likewise."""
        self.refresh()
        found = self._projection.state.by_digest.values()
        return sorted(found, key=_order)

    def named(self, name: str) -> Key | None:
        """Return the holder of that name, if there is a valid key of it: of several, the last."""
        return next((key for key in reversed(self.all()) if key.name == name), None)

    def last_named(self, name: str, since: int | None = None) -> Key | None:
        """Return the holder of the last key or link of that name (``KeyRing.last_named``)."""
        self.refresh()
        return self._projection.state.last_named(name, since)

    def remembered(self, digest: str) -> Key | None:
        """Return the holder of a valid key without reading the database."""
        key = self._projection.state.by_digest.get(digest)
        if key is None or (key.until != NEVER and self.now() >= key.until):
            return None
        return key

    def expired(self, digest: str) -> Key | None:
        """Return the holder of a key that has expired, without reading the database."""
        key = self._projection.state.by_digest.get(digest)
        return key if key is not None and self.now() >= key.until else None

    def why_not(self, digest: str, what: str = "the key") -> str:
        """Return why a key is not valid: that it expired is told to whoever has it."""
        if (key := self.expired(digest)) is not None:
            return (ROTATED_OUT if key.replaced else EXPIRED).format(key.name, rfc3339(key.until))
        return f"{what} is not valid, or was revoked"

    def now(self) -> int:
        """Return the stamp at which keys are looked at: it never goes back behind one by which
        anything was decided.
        """
        return max(self._clock(), self._projection.state.time, self._latest())

    def use(self, digest: str) -> None:
        """Remember that a key is used; ``note_uses`` writes it down."""
        self._used.add(digest)

    def note_uses(self) -> int:
        """Write down which keys were used since the last call, to the minute; return how many."""
        used = set[str]()
        while self._used:
            used.add(self._used.pop())  # other threads go on adding
        if used:
            try:
                with self._ledgers.writing(LEDGER) as writing:
                    now = self.now()
                    digests = [bytes.fromhex(one) for one in used]
                    writing.note_key_uses(LEDGER, digests, now - now % _MINUTE)
                    writing.commit()
            except StoreError:
                self._used |= used
                raise
        return len(used)

    def listed(self) -> list[tuple[Key, int | None]]:
        """Return the holders of all keys that were not revoked, as ``held``, each with the minute
        in which the key was last used, if it was.
        """
        self.refresh()
        found, used = self._projection.state.by_digest.items(), self._ledgers.key_uses(LEDGER)
        rows = [(key, used.get(bytes.fromhex(digest))) for digest, key in found]
        return sorted(rows, key=lambda row: _order(row[0]))

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

    @property
    def ledgers(self) -> Ledgers:
        """The database."""
        return self._ledgers

    def ring(self) -> tuple[KeyRing, int]:
        """Return the fold, up to date, and the present stamp."""
        self.refresh()
        return self._projection.state, self.now()

    def record(
        self,
        by: str,
        decide: Callable[[KeyRing, int], Written | int],
        texts: Mapping[str, Opened] = MappingProxyType({}),
        beside: Callable[[Writing, Event], None] = lambda *_: None,
    ) -> Event:
        """Append what is decided, with the texts by field and what is written ``beside`` it in the
        same transaction, and return it; or the event of the past that a number names.
        """
        kept = self._projection
        with self._ledgers.writing(LEDGER) as writing, kept.lock:
            kept.follow(writing.head(LEDGER), lambda first: writing.read(LEDGER, first, 1000))
            ring = kept.state
            now = self.now()
            written = decide(ring, now)
            if isinstance(written, int):
                return Event.from_bytes(writing.read(LEDGER, written, 1)[0].body)
            event = Event(LEDGER, ring.sequence, written[0], now, by, written[1])
            opened = [Text(event.sequence, name, *one) for name, one in texts.items()]
            writing.append(LEDGER, [Entry.of(event)], opened)
            beside(writing, event)
            writing.commit()
        return event
