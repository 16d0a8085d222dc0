"""Who may come in, as the ledger ``_service`` says it: keys, one-time links, people who signed in.

Every credential is somebody's: a ``Key`` has the name that stands in events, a role, and who made
it, which is what rules about two people look at (budget/decide/proposing.py). A person who has
signed in acts as the key that their link, or their provider's word, amounts to.

A key may have an end, and a scope: the populations that it reaches. Neither ever changes; who is to
have more gets another key, which is proposed as keys are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from accountant.budget.commands import DAY, PROPOSAL_DAYS, KeyMade, Role
from accountant.budget.decide.proposing import CONFIRMS, NEW_KEY, same_person
from accountant.budget.errors import Forbidden, NotFound
from accountant.budget.facts import SECOND
from accountant.budget.proposals import Proposal, Status, digest_of
from accountant.ledger.events import Event, rfc3339

LEDGER: Final = "_service"
CREATED: Final = "key.created.v1"
ROTATED: Final = "key.rotated.v1"
REVOKED: Final = "key.revoked.v1"
PROPOSED: Final = "key.proposed.v1"
DECLINED: Final = "key.declined.v1"
LINKED: Final = "link.created.v1"
LINK_PROPOSED: Final = "link.proposed.v1"
SIGNED_IN: Final = "person.signed_in.v1"
SIGNED_OUT: Final = "person.signed_out.v1"
TURNED_AWAY: Final = "person.refused.v1"
TYPES: Final = frozenset(
    {CREATED, ROTATED, REVOKED, PROPOSED, DECLINED, LINKED, LINK_PROPOSED}
    | {SIGNED_IN, SIGNED_OUT, TURNED_AWAY}
)
CREATES: Final = {CREATED: "create_key", LINKED: "create_link"}
"""What a proposal of each is called, as commands are."""
RENEWS: Final = "renew_key"
"""What that of a key is called that takes the place of another one of its name."""
BOUNDS: Final[tuple[str, ...]] = ("days", "populations", "hours")
"""What an event that makes a key says of its end, its scope, and the end of those it replaces."""
_PROPOSES: Final = {PROPOSED: CREATED, LINK_PROPOSED: LINKED}
LONGEST: Final = 30 * DAY * SECOND
"""The longest session that a setting can allow: what began before is over."""
HOUR: Final = 3_600 * SECOND
NEVER: Final = 2**63
"""The end of a key that has none."""
Identity = tuple[str, str]
"""Issuer and subject: who somebody is for a provider."""


@dataclass(frozen=True, slots=True)
class Key:
    """The holder of an API key, or of what counts as one: the name in events, and the role; who
    made it, all that had a part in it, and when (microseconds since 1970); the stamp from which on
    it is refused; the populations that it reaches, None for all; and when another secret of the
    same name was made in its place, 0 if none was.
    """

    name: str
    role: Role
    makers: tuple[str, ...] = ()
    made: int = 0
    until: int = NEVER
    populations: frozenset[str] | None = None
    replaced: int = 0

    def reaches(self, population: str) -> bool:
        """Return whether a population is in the key's scope."""
        return self.populations is None or population in self.populations

    def check_scope(self, population: str | None) -> None:
        """Raise what an unknown population raises for one out of scope, be there one or not.
        Without a population the call is about all of them: Forbidden for a key that has a scope.
        """
        if self.populations is None:
            return
        if population is None:
            text = (
                f"key {self.name!r} is for {', '.join(sorted(self.populations))}; this call is "
                "about all populations"
            )
            raise Forbidden("outside-scope", text)
        if population not in self.populations:
            raise NotFound("unknown-population", f"no population is called {population!r}")

    def facts(self) -> KeyMade:
        """Return what a confirmation records of the key."""
        return KeyMade(role=self.role, by=list(self.makers), time=rfc3339(self.made))


def is_new(key: Key, now: int) -> bool:
    """Return whether a key was made so lately that it is no other person than its makers."""
    return bool(key.makers) and key.made > now - NEW_KEY


class Link(NamedTuple):
    """A one-time link that was not used: as which key it lets in, by which event, until when."""

    key: Key
    sequence: int
    until: int


class Entered(NamedTuple):
    """A sign-in that was not ended: as which key, when, and as whom a provider knows the person."""

    key: Key
    time: int
    identity: Identity | None


@dataclass(slots=True)
class KeyRing:
    """The fold of the ``_service`` ledger. Of keys and links it has digests only."""

    sequence: int = 0
    time: int = 0
    by_digest: dict[str, Key] = field(default_factory=dict)
    """The valid keys."""
    custodians: set[str] = field(default_factory=set)
    """The names of all that ever could confirm."""
    by_name: dict[str, list[Key]] = field(default_factory=dict)
    """All keys and links of each name, also those that ended: revoking hides no maker."""
    proposals: dict[int, Proposal] = field(default_factory=dict)
    asked: dict[int, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    """What each proposal would record: the type and the body, with the digest of the secret."""
    links: dict[str, Link] = field(default_factory=dict)
    """By digest."""
    entered: dict[int, Entered] = field(default_factory=dict)
    """By the event of the sign-in."""
    people: dict[Identity, str] = field(default_factory=dict)
    """The name that a provider's person got when they first came in, which they keep."""
    flows: dict[str, int] = field(default_factory=dict)
    """The sign-ins over a provider that were completed within a day, by digest, and when."""
    refused: dict[Identity, int] = field(default_factory=dict)
    """When a provider's person was last refused, of those within an hour of the last refusal."""
    arrivals: dict[Identity, list[int]] = field(default_factory=dict)
    """When a provider's person signed in, likewise."""

    def follow(self, data: bytes) -> None:
        """Fold in the bytes of the next event. Raise ValueError if they are not the next event."""
        event = Event.from_bytes(data)
        if event.sequence != self.sequence:
            raise ValueError(f"{LEDGER}/{event.sequence} does not follow {self.sequence - 1}")
        if event.type in _PROPOSES:
            self._propose(event, digest_of(data))
        elif event.type in _READERS:
            _READERS[event.type](self, event)
        self._close(event)
        self.sequence, self.time = event.sequence + 1, event.time

    def _propose(self, event: Event, digest: str) -> None:
        kind = _PROPOSES[event.type]
        self.asked[event.sequence] = kind, event.body
        name, role = event.body["name"], event.body["role"]
        bounds: dict[str, Any] = {one: event.body[one] for one in BOUNDS if one in event.body}
        what = "key" if kind == CREATED else "link"
        self.proposals[event.sequence] = Proposal(
            sequence=event.sequence,
            by=event.by,
            time=event.time,
            expires=event.time + PROPOSAL_DAYS * DAY * SECOND,
            digest=digest,
            command={
                "type": RENEWS if "rotates" in event.body else CREATES[kind],
                "name": name,
                "role": role,
                **bounds,
            },
            effect={what: [name], "role": role},
        )

    def _close(self, event: Event) -> None:
        confirms = event.body.get("confirms")
        if confirms or event.type == DECLINED:
            number = (confirms or event.body)["proposal"]
            how: Status = "confirmed" if confirms else "declined"
            self.proposals[number] = replace(
                self.proposals[number], status=how, closed=event.sequence, closed_by=event.by
            )

    def _new(self, event: Event) -> Key:
        """Return, and remember, the key that an event makes."""
        body = event.body
        confirms = body.get("confirms")
        makers = (confirms["proposer"], event.by) if confirms else (event.by,)
        if "rotates" in body:
            makers = (*makers, *self._made_lately(body["name"], event.time))
        key = Key(
            name=body["name"],
            role=body["role"],
            makers=tuple(dict.fromkeys(makers)),
            made=event.time,
            until=event.time + body["days"] * DAY * SECOND if "days" in body else NEVER,
            populations=frozenset(body["populations"]) if "populations" in body else None,
        )
        self.by_name.setdefault(key.name, []).append(key)
        if key.role in CONFIRMS:
            self.custodians.add(key.name)
        return key

    def _created(self, event: Event) -> None:
        """Make a key. One of its name that has ended is forgotten: its makers are not."""
        key, now = self._new(event), event.time
        kept = {d: k for d, k in self.by_digest.items() if k.name != key.name or now < k.until}
        self.by_digest = kept
        if "rotates" in event.body:
            self._end_later(event)
        self.by_digest = self.by_digest | {event.body["digest"]: key}

    def _rotated(self, event: Event) -> None:
        """Another secret in place of one, by its own holder: nobody had a part in making it who had
        none before, so its makers, when it was made and its end are those of the one.
        """
        key = self.by_digest[event.body["rotates"]]
        self._end_later(event)
        self.by_digest = self.by_digest | {event.body["digest"]: key}

    def _end_later(self, event: Event) -> None:
        """Let all keys of a name that is rotated go on for some hours only, and what is theirs."""
        name, until = event.body["name"], event.time + event.body["hours"] * HOUR

        def ending(key: Key) -> Key:
            if key.name != name:
                return key
            return replace(key, until=min(key.until, until), replaced=event.time)

        self.by_digest = {d: ending(key) for d, key in self.by_digest.items()}
        self.links = {d: one._replace(key=ending(one.key)) for d, one in self.links.items()}
        self.entered = {n: one._replace(key=ending(one.key)) for n, one in self.entered.items()}

    def _made_lately(self, name: str, now: int) -> Iterator[str]:
        """Return who had a part in making the keys of a name that are not yet old: to rotate one
        hides nobody.
        """
        for key in self.by_name.get(name, ()):
            if key.made > now - NEW_KEY:
                yield from key.makers

    def _linked(self, event: Event) -> None:
        body = event.body
        own = self.by_digest.get(body.get("key", ""))
        until = event.time + body["minutes"] * 60 * SECOND
        self.links = {d: one for d, one in self.links.items() if one.until > event.time}
        self.links[body["digest"]] = Link(own or self._new(event), event.sequence, until)

    def _revoked(self, event: Event) -> None:
        """End all that the name has: keys, links and sessions."""
        name = event.body["name"]
        self.by_digest = {d: key for d, key in self.by_digest.items() if key.name != name}
        self.links = {d: one for d, one in self.links.items() if one.key.name != name}
        self._end(lambda _, one: one.key.name == name)

    def _signed_in(self, event: Event) -> None:
        body, now = event.body, event.time
        self._end(lambda _, one: one.time <= now - LONGEST)
        if "link" in body:
            [key] = [one.key for one in self.links.values() if one.sequence == body["link"]]
            self.links = {d: one for d, one in self.links.items() if one.sequence != body["link"]}
            self.entered[event.sequence] = Entered(key, now, None)
            return
        who, key = (body["issuer"], body["subject"]), Key(event.by, body["role"], (), now)
        self.people.setdefault(who, event.by)
        self._end(lambda _, one: one.identity == who and one.key.role != key.role)
        self.flows = {d: at for d, at in self.flows.items() if at > now - DAY * SECOND}
        self.flows[body["flow"]] = now
        self.arrivals[who] = [*self.lately(who, now), now]
        if key.role in CONFIRMS:
            self.custodians.add(key.name)
        self.entered[event.sequence] = Entered(key, now, who)

    def _signed_out(self, event: Event) -> None:
        self.entered.pop(event.body["signed_in"], None)

    def _turned_away(self, event: Event) -> None:
        """A provider's person has no role any more: that ends their sessions."""
        who = event.body["issuer"], event.body["subject"]
        self.refused = self.refused_lately(event.time) | {who: event.time}
        self._end(lambda _, one: one.identity == who)

    def _end(self, ends: Callable[[int, Entered], bool]) -> None:
        self.entered = {n: one for n, one in self.entered.items() if not ends(n, one)}

    def valid(self, digest: str, now: int) -> Key | None:
        """Return the key of a digest, if it is valid at the stamp ``now``."""
        key = self.by_digest.get(digest)
        return key if key is not None and now < key.until else None

    def has_valid(self, name: str, now: int) -> bool:
        """Return whether there is a valid key of a name."""
        return any(key.name == name and now < key.until for key in self.by_digest.values())

    def new_by(self, name: str, now: int) -> list[Key]:
        """Return the valid keys, links and sessions that are new and that ``name`` had a part in
        making, the latest first: whoever holds them is no other person.
        """
        held = [*self.by_digest.values()]
        held += [one.key for one in self.links.values() if now < one.until]
        held += [one.key for one in self.entered.values()]
        found = [
            key
            for key in held
            if now < key.until
            and is_new(key, now)
            and any(same_person(maker, name) for maker in key.makers)
        ]
        named = {(key.name, key.role, key.made): key for key in found}
        return sorted(named.values(), key=lambda key: (-key.made, key.name))

    def current(self, name: str, now: int) -> tuple[str, Key] | None:
        """Return the valid key of a name that no other was made in place of, and its digest."""
        found = [
            (digest, key)
            for digest, key in self.by_digest.items()
            if key.name == name and now < key.until and not key.replaced
        ]
        return found[-1] if found else None

    def known(self, number: int) -> Proposal:
        """Return a proposal. Raise NotFound."""
        if number not in self.proposals:
            raise NotFound(
                "unknown-proposal", f"nothing was proposed by event {number} of {LEDGER}"
            )
        return self.proposals[number]

    def last_named(self, name: str, since: int | None = None) -> Key | None:
        """Return the last key or link of a name, which may have ended. Its makers are all that made
        one of that name within seven days before the stamp ``since``, or after: a later link hides
        no maker of an earlier one.
        """
        made = self.by_name.get(name)
        if not made:
            return None
        late = [key for key in made if since is not None and key.made > since - NEW_KEY]
        makers = tuple(dict.fromkeys(maker for key in late for maker in key.makers))
        return replace(made[-1], makers=makers) if makers else made[-1]

    def lately(self, who: Identity, now: int) -> list[int]:
        """Return when a person signed in within the last hour."""
        return [at for at in self.arrivals.get(who, ()) if at > now - HOUR]

    def refused_lately(self, now: int) -> dict[Identity, int]:
        """Return who was refused within the last hour, and when."""
        return {who: at for who, at in self.refused.items() if at > now - HOUR}

    def is_persons(self, name: str) -> bool:
        """Return whether a name is that of a provider's person: nobody else's key may bear it."""
        return any(same_person(name, other) for other in self.people.values())

    def is_taken(self, name: str) -> bool:
        """Return whether a key, a link or a person ever had the name."""
        return self.is_persons(name) or any(same_person(name, other) for other in self.by_name)


_READERS: Final[dict[str, Callable[[KeyRing, Event], None]]] = {
    CREATED: KeyRing._created,
    ROTATED: KeyRing._rotated,
    REVOKED: KeyRing._revoked,
    LINKED: KeyRing._linked,
    SIGNED_IN: KeyRing._signed_in,
    SIGNED_OUT: KeyRing._signed_out,
    TURNED_AWAY: KeyRing._turned_away,
}
