"""A change that loosens takes two people, each in a request of their own.

A decider that finds that its command loosens calls ``second``. ``decide`` then records a proposal
in place of the change, and nothing else changes. Another person confirms it by its digest, and the
same command is decided again, at that moment: it must do the same as when it was proposed. The
event of the change holds the command with a ``confirms``, from which replay checks all of this.

Who two people are is known by names. Names that differ only in case or spacing are one, and so are
a user of this machine and a key of that name. An API key that one of the two made within seven days
before the proposal, or since, does not make the other a second person.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from accountant.budget import commands as ask
from accountant.budget.changes import NOTHING
from accountant.budget.commands import Change, Confirmation, Envelope, command_from_json
from accountant.budget.errors import Conflict, Forbidden, Invalid, NotFound
from accountant.budget.facts import SECOND
from accountant.budget.outcome import DECLINED, PROPOSED, Body, Outcome, Repeated, outcome
from accountant.budget.proposals import Proposal
from accountant.budget.sealing import FIELDS
from accountant.budget.state import State
from accountant.ledger.events import canonical, microseconds, rfc3339

CONFIRMS: Final[tuple[ask.Role, ...]] = ("admin", "officer")
"""The roles that may confirm and decline."""
NEW_KEY: Final = 7 * ask.DAY * SECOND
"""How long a key is no other person than who made it, in microseconds."""
OPERATOR: Final = "operator:"
"""Goes before the name of a user of the machine."""
MOST_OPEN: Final = 1_000
"""Open proposals of a ledger, but for recoveries: nobody can keep it from being put right."""
_GROWS: Final = ("owed", "open")
"""What of an effect is told, and may be more by the time that somebody confirms."""


class SecondNeeded(Exception):
    """A command takes a second person: ``effect`` says in numbers and ids for what. What is to be
    proposed is what was ``asked``, or the part of it that takes one.
    """

    def __init__(self, asked: Envelope, effect: Body) -> None:
        super().__init__(why(effect))
        self.asked, self.effect = asked, effect

    def alone(self) -> Forbidden:
        """Return the error of a batch: its items happen together, and a proposal waits."""
        text = f"{self}: a second person has to confirm it, so send it in a request of its own"
        return Forbidden("approval-needed", text, **self.effect)


def second(asked: Envelope, effect: Body) -> None:
    """Pass if a second person confirmed the command. Raises SecondNeeded."""
    if confirmation(asked) is None:
        raise SecondNeeded(asked, effect)


def confirmation(asked: Envelope) -> Confirmation | None:
    """Return what the command confirms, if it was proposed."""
    return asked.command.confirms if isinstance(asked.command, Change) else None


def client_of(asked: Envelope) -> str:
    """Return whose command it is: of a confirmed one, the proposer's."""
    confirms = confirmation(asked)
    return asked.by if confirms is None else confirms.proposer


def same_person(one: str, other: str) -> bool:
    """Return whether two names are alike but for case, spacing, compatible spellings, and whether
    the name is that of a key or of a user of the machine.
    """
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    plain = normalize("NFKC", normalize("NFKC", name).casefold())
    return "".join(plain.split()).removeprefix(OPERATOR)


def propose(state: State, needed: SecondNeeded, now: int) -> list[Outcome] | Repeated:
    """Propose the command; a retry without an idempotency key finds the open proposal."""
    asked, command = needed.asked, needed.asked.command
    if not isinstance(command, Change):
        raise TypeError(f"{command.command} cannot be proposed")
    still = [one for one in state.proposals.values() if one.is_open(now)]
    if asked.key is None:
        for one in still:
            if one.by == asked.by and _said(one.command) == _said(asked.document):
                return Repeated(one.sequence)
    if len(still) >= MOST_OPEN and not isinstance(command, ask.Recover):
        raise Conflict(
            "too-many-proposals",
            f"{len(still)} proposals wait for a second person, the most is {MOST_OPEN}: confirm or "
            "decline some",
        )
    expires = rfc3339(now + command.proposal_days * ask.DAY * SECOND)
    body = {"effect": needed.effect, "expires": expires}
    return [outcome(state, asked, PROPOSED, now, body, NOTHING)]


def _said(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return a command without its free texts, each of whose digests has a salt of its own."""
    return {name: value for name, value in command.items() if name not in FIELDS}


def expanded(
    state: State, asked: Envelope, command: ask.ConfirmChange, now: int
) -> Envelope | Repeated:
    """Return the change that a confirmation makes, or where this person has confirmed it."""
    proposal = _found(state, command.proposal, command.digest)
    if proposal.status == "confirmed" and proposal.closed_by == asked.by and proposal.closed:
        return Repeated(proposal.closed)
    check_open(proposal, _passed(state, proposal, now))
    if (command.clock is None) == _about_time(proposal):
        number = proposal.sequence
        text = f"proposal {number} is about no clock: leave out what one shows"
        if command.clock is None:
            text = (
                f"proposal {number} accepts a clock, confirmed beside the database, at the "
                f"machine: accountant accept-time -p {state.ledger} --confirm {number}"
            )
        raise Conflict("clock-beside-database", text)
    fields = {
        "proposal": proposal.sequence,
        "digest": proposal.digest,
        "proposer": proposal.by,
        "key": command.key,
        "proposed_with": command.proposed_with,
        "shown": command.clock,
        "reason": command.reason,
    }
    confirms = Confirmation.model_validate(fields, context=ask.STORED)
    document = {**proposal.command, "confirms": confirms.model_dump(exclude_none=True)}
    return Envelope(asked.by, command_from_json(document), asked.key)


def check(state: State, asked: Envelope, confirms: Confirmation, now: int) -> Proposal:
    """Return the proposal that a command confirms. Raises Problem unless another person than the
    proposer confirms, in time, exactly what was proposed.
    """
    proposal = _found(state, confirms.proposal, confirms.digest)
    check_open(proposal, _passed(state, proposal, now))
    stated = {name: value for name, value in asked.document.items() if name != "confirms"}
    if confirms.proposer != proposal.by or canonical(stated) != canonical(proposal.command):
        raise Invalid("proposal-differs", f"this is not what proposal {proposal.sequence} proposes")
    check_other(proposal, asked.by, confirms.key, now, confirms.proposed_with)
    return proposal


def _about_time(proposal: Proposal) -> bool:
    return bool(proposal.command.get("type") == ask.AcceptTime.command)


def _passed(state: State, proposal: Proposal, now: int) -> int:
    """Return the stamp that a proposal has to be open at. A clock that is in doubt ends none."""
    return state.time if _about_time(proposal) else now


def check_same(proposal: Proposal, effect: Body) -> None:
    """Raise Conflict unless the change would still do what it would have done when proposed."""
    if _lasting(effect) != _lasting(proposal.effect):
        now = why(effect) if effect else "it no longer takes a second person"
        raise Conflict(
            "proposal-outdated",
            f"what proposal {proposal.sequence} would do has changed since: {now}; it was: "
            f"{why(proposal.effect)}. Decline it, and send the change again",
            effect=effect,
            proposed=dict(proposal.effect),
        )


def _lasting(effect: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in effect.items() if name not in _GROWS}


def decline(state: State, asked: Envelope, command: ask.DeclineChange, now: int) -> list[Outcome]:
    """Decline an open proposal, or withdraw one's own. Raises Conflict if it is closed."""
    proposal = known(state, command.proposal)
    check_open(proposal, now)
    return [outcome(state, asked, DECLINED, now, {}, NOTHING)]


def known(state: State, number: int) -> Proposal:
    """Return a proposal. Raises NotFound."""
    if (proposal := state.proposals.get(number)) is None:
        raise NotFound("unknown-proposal", f"{state.ledger} has no proposal {number}")
    return proposal


def _found(state: State, number: int, digest: str) -> Proposal:
    check_digest(proposal := known(state, number), digest)
    return proposal


def check_digest(proposal: Proposal, digest: str) -> None:
    """Raise Conflict unless a proposal has this digest."""
    if proposal.digest != digest:
        raise Conflict(
            "proposal-digest",
            f"proposal {proposal.sequence} has the digest {proposal.digest}, not {digest}: read "
            "it, and confirm by the digest of what you read",
            digest=proposal.digest,
        )


def check_open(proposal: Proposal, now: int) -> None:
    """Raise Conflict if a proposal is closed, or its time has passed."""
    if proposal.status != "open":
        raise Conflict(
            "proposal-closed",
            f"proposal {proposal.sequence} was {proposal.status} by {proposal.closed_by} (event "
            f"{proposal.closed}); to make the change after all, send it again",
            state=proposal.status,
            closed=proposal.closed,
        )
    if proposal.expired(now):
        raise Conflict(
            "proposal-expired",
            f"proposal {proposal.sequence} expired at {rfc3339(proposal.expires)}: send the change "
            "again",
            expires=rfc3339(proposal.expires),
        )


def check_other(
    proposal: Proposal,
    by: str,
    key: ask.KeyMade | None,
    now: int,
    proposed_with: ask.KeyMade | None = None,
) -> None:
    """Raise Forbidden unless ``by``, with the ``key``, is another person than the proposer, with
    the key ``proposed_with``, as far as is known.
    """
    check_person(First(proposal.by, proposal.time, proposed_with, *_PROPOSED), by, key, now)


_PROPOSED: Final = "proposed", "confirm it; whoever proposed it can decline it"


class First(NamedTuple):
    """The first of two people: who, since which stamp, with which key if that counts; and in words
    what they did, and what another one has to do.
    """

    by: str
    since: int
    key: ask.KeyMade | None
    did: str
    does: str


def check_person(first: First, by: str, key: ask.KeyMade | None, now: int) -> None:
    """Raise Forbidden unless ``by``, with the ``key``, is another person, as far as is known."""
    if same_person(by, first.by):
        raise Forbidden(
            "same-person",
            f"{first.by} {first.did} this, so another admin or officer has to {first.does}",
        )
    if key is not None and key.role not in CONFIRMS:
        raise Forbidden("role-not-allowed", f"{by} has the role {key.role}: an admin or officer")
    for holder, its, other in ((by, key, first.by), (first.by, first.key, by)):
        if its is not None:
            _check_made(first, holder, its, other, now)


def _check_made(first: First, holder: str, key: ask.KeyMade, other: str, now: int) -> None:
    """Raise Forbidden if the key of one of the two was made by the other one lately."""
    made = microseconds(key.time)
    if made > now:
        text = f"the key of {holder} would be made at {key.time}, after this"
        raise Invalid("key-from-later", text)
    mine = any(same_person(maker, other) for maker in key.by)
    if mine and made > first.since - NEW_KEY:
        raise Forbidden(
            "key-too-new",
            f"{other} made the key of {holder} at {key.time}, less than seven days before "
            f"{first.by} {first.did} this at {rfc3339(first.since)}, so it is not taken for "
            f"another person's: another admin or officer has to {first.does}",
            made=key.time,
        )


def why(effect: Mapping[str, Any]) -> str:
    """Return in words what of a change takes a second person. A first policy has none before it
    that it could loosen.
    """
    names = [name for name in _WHY if effect.get(name)]
    names = [name for name in names if name != "loosens" or "first" not in effect]
    return "; ".join(_WHY[name].format(_listed(effect[name])) for name in names)


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(_entry(name, one) for name, one in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)


def _entry(name: str, value: Any) -> str:
    """Return values of a dimension, or the epsilon that was charged on a dataset, in words."""
    if isinstance(value, dict):
        return f"{value['count']} of {name} ({value['first']} to {value['last']})"
    return f"{value} on {'all data' if name == '*' else name}"


_WHY: Final = {
    "first": "the population has no policy yet, and {} would be its first",
    "loosens": "the policy loosens the one in force: {}",
    "also": "the same data have a budget in {} already, and would have a second one here",
    "lost": "charges would no longer count on {}, which it was made from",
    "unnamed": "what was used would not count on {}, which it was made from, once that is "
    "registered",
    "leaves": "the dataset would go out of the scope of {}, which would no longer block",
    "back": "epsilon {} would be given back on one client's word",
    "rules": "that is more than is taken by {}",
    "replaces": "it replaces the policy of event {}",
    "attested": "the members of new values would owe nothing of what was charged before: {}",
    "key": "a key named {} could confirm changes",
    "link": "a link would let somebody in as {}, who could confirm changes",
    "recovers": "the log would go on under another name, for this was lost: {}",
    "open": "open grants would be charged: {}",
    "owed": "what counts as charged: epsilon {}",
    "accepts": "time would go on by the clock, which shows {}: windows pass, limits refresh and "
    "unlock, and open grants expire",
}
