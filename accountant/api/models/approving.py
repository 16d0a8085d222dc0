"""Answers about requests that wait for a person."""

from __future__ import annotations

from typing import Annotated, NotRequired

from typing_extensions import TypedDict

from accountant.api.models.fields import (
    Asked,
    Client,
    Costs,
    Loss,
    RuleCode,
    RuleId,
    Stamped,
    Time,
)
from accountant.api.models.keys import NewKeys


class Said(TypedDict):
    """A rule that fired, and its comparison in words."""

    rule: RuleId
    code: RuleCode
    text: Annotated[str, "both sides"]


class Effect(TypedDict):
    """What a request would do to one account of a limit, at the peak of the cells asked for."""

    rule: RuleId
    action: Annotated[str, "what the rule does when it fires"]
    scope: Annotated[str, "the account, in words"]
    limit: Annotated[Loss, "its epsilon"]
    spent_before: Annotated[Loss, "spent or reserved now"]
    spent_after: Annotated[Loss, "with the request"]
    percent_before: Annotated[str, "the same in per cent of the limit, rounded up to a tenth"]
    percent_after: Annotated[str, "with the request"]
    runs_out_before: NotRequired[
        Annotated[str, "the date on which nothing is left, at the average pace so far"]
    ]
    runs_out_after: NotRequired[Annotated[str, "the same with the request"]]
    text: Annotated[str, "the same in words"]


class Approval(Stamped):
    """A request that waits for a person."""

    id: Annotated[str, "its id"]
    digest: Annotated[str, "SHA-256 of its event's bytes, in hex; whoever decides names it"]
    client: Client
    request: Asked
    charge: Costs
    asks: Annotated[list[Said], "the rules that ask for approval"]
    blocked_by: Annotated[list[Said], "the rules that block it now, whoever approves"]
    effect: Annotated[list[Effect], "what it would do to each account of a limit; informs only"]
    new_keys: NotRequired[NewKeys]
    until: Annotated[Time, "from then on it is refused"]
    next: Annotated[str, "what to do"]


class Approvals(TypedDict):
    """The requests of a population that wait for a person."""

    approvals: Annotated[list[Approval], "in the order in which they came"]
