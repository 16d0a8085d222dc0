"""Answers to grants, settlements, invocations and batches."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.values import (
    Asked,
    Charge,
    Client,
    Costs,
    DatasetId,
    RuleCode,
    RuleId,
    Time,
)


class Stamped(TypedDict):
    """The fields of every answer to a command."""

    sequence: Annotated[int, "the event that answers this request"]
    time: Annotated[Time, "when the service stamped that event"]


class Flag(TypedDict):
    """A rule that fired."""

    rule: RuleId
    code: RuleCode


class Judged(Stamped):
    """The fields of every answer to a request that was judged."""

    charge: Costs
    flags: Annotated[list[Flag], "the rules that fired, the strictest first; mostly empty"]
    decision: Annotated[str, "the id of the decision, which /decisions/ shows in full"]


class Reservation(Judged):
    """Budget that is set aside until the grant is settled or expires."""

    id: Annotated[str, "the grant's id"]
    state: Annotated[str, "reserved"]
    expires: Annotated[Time, "from then on it is charged in full"]


class Record(Judged):
    """Invocations that already ran, as booked."""

    overrun: Annotated[bool, "a limit that blocks was exceeded; it is charged nevertheless"]


class Settlement(Stamped):
    """How a grant ended. A commit after the expiry changes nothing and is only noted."""

    id: Annotated[str, "the grant's id"]
    state: Annotated[str, "committed, released or expired"]
    charged: NotRequired[Annotated[Charge, "the amount booked for good"]]
    note: NotRequired[Annotated[str, "why nothing changed"]]


class Counted(Stamped):
    """A session's answers so far."""

    id: Annotated[str, "the session's grant id"]
    state: Annotated[str, "reserved"]
    positives: Annotated[int, "positive answers in all"]
    negatives: Annotated[int, "negative answers in all"]


class BatchAnswer(TypedDict):
    """The answers to the items of a batch."""

    sequence: Annotated[int, "the event that opens the batch; the items' events follow it"]
    items: Annotated[
        list[Reservation | Record | Settlement], "the answer to each item, in the order listed"
    ]


class OpenGrant(TypedDict):
    """A grant that is not settled yet."""

    id: Annotated[str, "its id"]
    state: Annotated[str, "reserved; expired: its time has passed, and it will be charged"]
    client: Client
    dataset: DatasetId
    opened: Annotated[Time, "when it was reserved"]
    expires: Annotated[Time, "when it expires, or would have"]
    reserved: Annotated[Charge, "the amount set aside"]
    sequence: Annotated[int, "the event that reserved it"]
    positives: NotRequired[Annotated[int, "sessions: positive answers counted"]]
    negatives: NotRequired[Annotated[int, "sessions: negative answers counted"]]


class Grant(OpenGrant):
    """A grant as it stands: `state` is reserved, committed, released or expired."""

    request: Asked
    charged: Annotated[Charge | None, "the amount booked for good; null while the grant is open"]


class OpenGrants(TypedDict):
    """A page of open grants."""

    grants: Annotated[list[OpenGrant], "in the order in which they were reserved"]
    last: Annotated[int, "send it as `after` for the next page"]
