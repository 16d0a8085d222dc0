"""Answers about grants, sessions, records and batches."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.fields import (
    Asked,
    Charge,
    ChargedTo,
    ChargePer,
    Client,
    Costs,
    DatasetIds,
    Flag,
    Stamped,
    Time,
)


class Judged(Stamped):
    """The fields of every answer to a request that was judged."""

    charge: Costs
    charge_per: NotRequired[ChargePer]
    flags: Annotated[list[Flag], "the rules that fired, the strictest first; mostly empty"]
    decision: Annotated[str, "the id of the decision, which /decisions/ shows in full"]


class Reservation(Judged):
    """Budget that is set aside until the grant is settled or expires."""

    id: Annotated[str, "the grant's id"]
    state: Annotated[str, "reserved"]
    expires: Annotated[Time, "from then on it is charged in full"]
    waited_as: NotRequired[Annotated[str, "the request that waited, and was admitted as this"]]
    count: NotRequired[Annotated[int, "of a request that waited: the count that was admitted"]]


class Waiting(Judged):
    """A request that waits for budget, and holds none."""

    id: Annotated[str, "its id: the grant that it is admitted as will have another"]
    state: Annotated[str, "waiting"]
    until: Annotated[Time, "from then on it is refused"]
    waits_for: Annotated[str, "budget, or approval: a person's"]
    asks: Annotated[list[str], "the rules that ask for a person's approval, if any do"]
    address: Annotated[str, "what to poll: it answers once the request waits no more"]


class Record(Judged):
    """Invocations that already ran, as booked."""

    overrun: Annotated[bool, "a limit that blocks was exceeded; it is charged nevertheless"]


class Settlement(Stamped):
    """How a grant ended. A commit after the expiry changes nothing and is only noted."""

    id: Annotated[str, "the grant's id"]
    state: Annotated[str, "committed, released or expired; cancelled or declined: it waits no more"]
    charged: NotRequired[Annotated[Charge, "the amount booked for good"]]
    note: NotRequired[Annotated[str, "why nothing changed"]]
    flags: NotRequired[Annotated[list[Flag], "the rules that fired on what is given back"]]


class Republished(Stamped):
    """An answer that is published again."""

    id: Annotated[str, "the grant under which it was made"]
    answer: Annotated[str, "its SHA-256, as it was stated"]
    charged: Annotated[Charge, "zero"]


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
    state: Annotated[
        str,
        "reserved; expired: its time has passed, and it will be charged; of a request that waits: "
        "waiting; timed_out, cancelled or declined once it waits no longer",
    ]
    client: Client
    dataset: DatasetIds
    opened: Annotated[Time, "when it was reserved"]
    expires: Annotated[Time, "when it expires, or would have"]
    reserved: Annotated[Charge, "the amount set aside"]
    sequence: Annotated[int, "the event that reserved it"]
    charged_to: NotRequired[ChargedTo]
    waited_as: NotRequired[Annotated[str, "the request that waited, and was admitted as this"]]
    waits_for: NotRequired[Annotated[str, "of a request that waits: budget, or approval"]]
    approved_by: NotRequired[Annotated[str, "the person who approved it, if one had to"]]
    positives: NotRequired[Annotated[int, "sessions: positive answers counted"]]
    negatives: NotRequired[Annotated[int, "sessions: negative answers counted"]]


class Grant(OpenGrant):
    """A grant as it stands: `state` is reserved, committed, released or expired; or of
    a request that waits: waiting, timed_out, cancelled or declined.
    """

    request: Asked
    charged: Annotated[Charge | None, "the amount booked for good; null while the grant is open"]


class OpenGrants(TypedDict):
    """A page of open grants."""

    grants: Annotated[list[OpenGrant], "in the order in which they were reserved"]
    last: Annotated[int, "send it as `after` for the next page"]
