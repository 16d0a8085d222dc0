"""API keys, as events of a ledger of their own, ``_service``. Only digests of keys are stored.

Once two keys of administrators or officers were made, a further one is only proposed: it is valid
when another person has confirmed it (budget/decide/proposing.py).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from accountant.budget.commands import DAY, PROPOSAL_DAYS, Confirmation, KeyMade, Role
from accountant.budget.decide.proposing import CONFIRMS, check_digest, check_open, check_other
from accountant.budget.errors import Conflict, Invalid, NotFound
from accountant.budget.facts import SECOND
from accountant.budget.proposals import Proposal, Status, digest_of, in_order
from accountant.budget.sealing import SALT_BYTES, Opened
from accountant.ledger.events import Entry, Event, rfc3339
from accountant.ledger.merkle import Tree
from accountant.store.ledgers import Ledgers, Text
from accountant.store.projection import Projection

LEDGER: Final = "_service"
CREATED: Final = "key.created.v1"
REVOKED: Final = "key.revoked.v1"
PROPOSED: Final = "key.proposed.v1"
DECLINED: Final = "key.declined.v1"
PREFIX: Final = "acct_"
_FREE: Final = 2
"""Keys that may confirm which are made at once, so that there can be two people."""
Written = tuple[str, dict[str, Any]]
"""The type and the body of an event."""
CREATES: Final = "create_key"
"""What the proposal of a key is called, as commands are."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """The holder of an API key: the client's name in events, and its role; who made the key, all
    that had a part in it, and when (microseconds since 1970).
    """

    name: str
    role: Role
    makers: tuple[str, ...] = ()
    made: int = 0

    def facts(self) -> KeyMade:
        """Return what a confirmation records of the key."""
        return KeyMade(role=self.role, by=list(self.makers), time=rfc3339(self.made))


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
    custodians: set[str] = field(default_factory=set)
    """The names of all keys that ever could confirm."""
    by_name: dict[str, Key] = field(default_factory=dict)
    """The last key of each name, also of those that were revoked: revoking hides no maker."""
    proposals: dict[int, Proposal] = field(default_factory=dict)
    asked: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What each proposal would create, with the digest of the key."""

    def follow(self, data: bytes) -> None:
        """Fold in the bytes of the next event. Raise ValueError if they are not the next event."""
        event = Event.from_bytes(data)
        if event.sequence != self.sequence:
            raise ValueError(f"{LEDGER}/{event.sequence} does not follow {self.sequence - 1}")
        body, confirms = event.body, event.body.get("confirms")
        if event.type == CREATED:
            makers = (confirms["proposer"], event.by) if confirms else (event.by,)
            made = Key(body["name"], body["role"], makers, event.time)
            self.by_digest[body["digest"]] = self.by_name[body["name"]] = made
            if body["role"] in CONFIRMS:
                self.custodians.add(body["name"])
        elif event.type == REVOKED:
            self.by_digest = {d: k for d, k in self.by_digest.items() if k.name != body["name"]}
        elif event.type == PROPOSED:
            self.asked[event.sequence] = body
            self.proposals[event.sequence] = Proposal(
                sequence=event.sequence,
                by=event.by,
                time=event.time,
                expires=event.time + PROPOSAL_DAYS * DAY * SECOND,
                digest=digest_of(data),
                command={"type": CREATES, "name": body["name"], "role": body["role"]},
                effect={"key": [body["name"]], "role": body["role"]},
            )
        if confirms or event.type == DECLINED:
            number = (confirms or body)["proposal"]
            how: Status = "confirmed" if confirms else "declined"
            self.proposals[number] = replace(
                self.proposals[number], status=how, closed=event.sequence, closed_by=event.by
            )
        self.sequence, self.time = event.sequence + 1, event.time

    def known(self, number: int) -> Proposal:
        """Return a proposal. Raise NotFound."""
        if number not in self.proposals:
            raise NotFound("unknown-proposal", f"no key was proposed by event {number} of {LEDGER}")
        return self.proposals[number]


class Credentials:
    """The API keys of one database. Thread-safe. Every method may raise StoreError.

    A key that another process created or revoked counts at once: each lookup first reads the head
    of the ``_service`` ledger. For many keys, call ``refresh`` once, then ``remembered`` for each.
    """

    def __init__(self, ledgers: Ledgers, clock: Callable[[], int]) -> None:
        self._ledgers, self._clock = ledgers, clock
        self._projection = Projection(LEDGER, KeyRing, KeyRing.follow)

    def create(self, name: str, role: Role, by: str) -> str:
        """Create a key, or propose it, and return it; it cannot be read again. Raise Invalid for a
        malformed name, Conflict for one that is taken.
        """
        if not _NAME.fullmatch(name):
            raise Invalid(
                "malformed-key-name",
                "a key's name has 1 to 64 letters, digits, dots, dashes, underscores or @, and "
                "begins with a letter or digit",
            )
        secret = new_secret()
        body = {"name": name, "role": role, "digest": key_digest(secret)}

        def made(ring: KeyRing, now: int) -> Written:
            if any(key.name == name for key in ring.by_digest.values()):
                raise Conflict("key-exists", f"a key named {name!r} exists; revoke it first")
            alone = role in CONFIRMS and len(ring.custodians) >= _FREE
            return PROPOSED if alone else CREATED, body

        self._write(by, made)
        return secret

    def revoke(self, name: str, by: str) -> None:
        """Revoke a key. Raise NotFound."""

        def revoked(ring: KeyRing, now: int) -> Written:
            if not any(key.name == name for key in ring.by_digest.values()):
                raise NotFound("unknown-key", f"there is no valid key named {name!r}")
            return REVOKED, {"name": name}

        self._write(by, revoked)

    def confirm(self, number: int, digest: str, by: str, key: Key | None = None) -> Event:
        """Make the key that another person proposed, and return the event. ``key`` is that of
        whoever confirms, if there is one. Raise Problem. Repeating it changes nothing.
        """

        def confirmed(ring: KeyRing, now: int) -> Written | int:
            proposal = ring.known(number)
            check_digest(proposal, digest)
            if proposal.status == "confirmed" and proposal.closed_by == by and proposal.closed:
                return proposal.closed
            check_open(proposal, now)
            facts = key.facts() if key else None
            check_other(proposal, by, facts, now)
            made = ring.asked[number]
            if any(one.name == made["name"] for one in ring.by_digest.values()):
                raise Conflict("key-exists", f"a key named {made['name']!r} exists")
            said = {"proposal": number, "digest": digest, "proposer": proposal.by, "key": facts}
            confirms = Confirmation.model_validate(said).model_dump(exclude_none=True)
            return CREATED, {**made, "confirms": confirms}

        return self._write(by, confirmed)

    def decline(self, number: int, by: str, reason: str) -> Event:
        """Decline a key that was proposed, or withdraw the proposal; the reason is kept beside the
        event, which has its digest. Raise Problem.
        """
        text = Opened(secrets.token_bytes(SALT_BYTES), reason)

        def declined(ring: KeyRing, now: int) -> Written:
            check_open(ring.known(number), now)
            return DECLINED, {"proposal": number, "reason": {"sealed": text.digest}}

        return self._write(by, declined, {"reason": text})

    def proposals(self) -> tuple[list[Proposal], int]:
        """Return the keys that were proposed, those that can be confirmed first, then the latest;
        and the present stamp.
        """
        self.refresh()
        ring = self._projection.state
        now = max(self._clock(), ring.time)
        return in_order(ring.proposals.values(), now), now

    def proposal(self, number: int) -> tuple[Proposal, int]:
        """Return a key that was proposed, and the present stamp. Raise NotFound."""
        self.refresh()
        ring = self._projection.state
        return ring.known(number), max(self._clock(), ring.time)

    def find(self, secret: str) -> Key | None:
        """Return the holder of a key."""
        self.refresh()
        return self.remembered(key_digest(secret))

    def all(self) -> list[Key]:
        """Return the holders of all valid keys, by name."""
        self.refresh()
        return sorted(self._projection.state.by_digest.values(), key=lambda key: key.name)

    def named(self, name: str) -> Key | None:
        """Return the holder of that name, if there is a valid key of it."""
        return next((key for key in self.all() if key.name == name), None)

    def last_named(self, name: str) -> Key | None:
        """Return the holder of the last key of that name, which may have been revoked."""
        self.refresh()
        return self._projection.state.by_name.get(name)

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

    def _write(
        self,
        by: str,
        decide: Callable[[KeyRing, int], Written | int],
        texts: Mapping[str, Opened] = MappingProxyType({}),
    ) -> Event:
        """Append what is decided, with the texts by field, and return it; or the event of the past
        that a number names.
        """
        kept = self._projection
        with self._ledgers.writing(LEDGER) as writing, kept.lock:
            kept.follow(writing.head(LEDGER), lambda first: writing.read(LEDGER, first, 1000))
            ring = kept.state
            now = max(self._clock(), ring.time)
            written = decide(ring, now)
            if isinstance(written, int):
                return Event.from_bytes(writing.read(LEDGER, written, 1)[0].body)
            event = Event(LEDGER, ring.sequence, written[0], now, by, written[1])
            beside = [Text(event.sequence, name, *one) for name, one in texts.items()]
            writing.append(LEDGER, [Entry.of(event)], beside)
            writing.commit()
        return event
