"""Answers about proposals, and what they tell of a policy."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.fields import (
    RuleId,
    Stamped,
    Time,
)
from accountant.api.models.keys import NewKeys


class Bound(TypedDict):
    """How much of a limit what a rule counts can use up at most, as shares of its epsilon."""

    rule: Annotated[str, "the limit that divides, all quotas together, or the common part"]
    of: RuleId
    accounts: Annotated[int | None, "of how many clients or purposes; null: of any number"]
    each: Annotated[str, "one of them, as a fraction"]
    together: Annotated[str, "all of them"]
    left: Annotated[str, "what stays for all others, whatever they do"]
    text: Annotated[str, "the same in words"]


Depletion = Annotated[list[Bound], "of a policy: how much of a limit others can use up"]
Relaxations = Annotated[list[str], "of a policy: who may bring a limit to more, in words"]


class Proposal(Stamped):
    """A change that waits for a second person, and changes nothing until it is confirmed."""

    proposal: Annotated[int, "its number"]
    digest: Annotated[str, "SHA-256 of its event's bytes, in hex; a confirmation names it"]
    state: Annotated[str, "proposed, confirmed, declined or expired"]
    by: Annotated[str, "who proposed it"]
    change: Annotated[dict[str, Any], "the command; free texts stand as digests"]
    effect: Annotated[dict[str, Any], "what of it takes a second person, as computed then"]
    why: Annotated[str, "the same in words"]
    owed: NotRequired[
        Annotated[dict[str, str], "what is charged by now, where the effect says what was"]
    ]
    depletion: NotRequired[Depletion]
    relaxed: NotRequired[Relaxations]
    new_keys: NotRequired[NewKeys]
    expires: Annotated[Time, "from when on it cannot be confirmed"]
    next: NotRequired[Annotated[str, "what to do"]]
    closed: NotRequired[Annotated[int, "the event that confirmed or declined it"]]
    closed_by: NotRequired[Annotated[str, "who did"]]


class Proposals(TypedDict):
    """The proposals of a population, those that can be confirmed first, then the latest."""

    proposals: Annotated[list[Proposal], "the proposals"]


class Closed(Stamped):
    """The end of a proposal."""

    proposal: Annotated[int, "its number"]
    state: Annotated[str, "confirmed or declined"]
    event: Annotated[str, "the type of the event: that of the change, if it was confirmed"]
