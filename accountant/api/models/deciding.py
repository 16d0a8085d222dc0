"""Answers about decisions: findings, problems, advice, previews, and what used a budget up."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from accountant.api.models.fields import (
    Asked,
    Charge,
    ChargedTo,
    ChargePer,
    Client,
    Costs,
    CountedIn,
    DatasetIds,
    Flag,
    Loss,
    RuleCode,
    RuleId,
    Stamped,
    Time,
)


class Limit(TypedDict):
    """A limit (epsilon, delta)."""

    epsilon: Annotated[Loss, "at most this epsilon"]
    delta: Annotated[Loss, "except with about this probability"]
    own_delta: NotRequired[Annotated[Loss, "the part of delta kept for mechanisms' own deltas"]]


class Comparison(TypedDict):
    """One inequality: used + charge <= capacity."""

    currency: Annotated[str, "the currency that is compared"]
    used: Annotated[Loss, "already spent or reserved at the peak cell"]
    charge: Annotated[Loss, "the amount that this request would add"]
    capacity: Annotated[Loss, "the most that the rule admits"]
    holds: Annotated[bool, "whether it fits"]


class AlsoExhausted(TypedDict):
    """Another account of a limit in which the charge does not fit."""

    scope: Annotated[str, "the account, in words"]
    dataset: Annotated[str, "the account's dataset"]
    group: Annotated[dict[str, str], "the peak cell; empty if all cells are alike"]
    decided_by: Annotated[str, "the currency whose sum decides"]
    spent_before: Annotated[Loss, "epsilon before this request"]
    spent_after: Annotated[Loss, "epsilon if it were admitted"]
    comparisons: Annotated[list[Comparison], "both sides"]


class PeriodLeft(TypedDict):
    """A period of the calendar, and what a request found in it."""

    start: Annotated[Time, "when it began"]
    end: Annotated[Time, "when the limit refreshes"]
    left: Annotated[Loss, "the epsilon that was left in it"]


class Relaxation(TypedDict):
    """A context of a request, with the amount that all its contexts together give it."""

    epsilon: Annotated[Loss, "the largest epsilon"]
    delta: Annotated[Loss, "the largest delta"]
    why: Annotated[str, "the reason that the policy states"]


class LimitFinding(TypedDict, total=False):
    """The part of a finding that only limit rules have."""

    scope: Annotated[str, "limit rules: the account, in words"]
    dataset: Annotated[str, "limit rules: the account's dataset, or * for all together"]
    client: Annotated[str, "limit rules: the client of a sub-limit, or empty"]
    purpose: Annotated[str, "limits for each purpose: the listed one; empty for all others"]
    relaxed: Annotated[list[Relaxation], "limits that are relaxed for this request: how far, why"]
    group: Annotated[dict[str, str], "limit rules: the peak cell; empty if all cells are alike"]
    limit: Annotated[Limit, "limit rules: the limit"]
    gate: Annotated[str, "limit rules: how losses are added up"]
    of: Annotated[RuleId, "limit rules: the limit whose account is compared"]
    decided_by: Annotated[
        str,
        "limit rules: the currency whose sum decides what was spent before, or what does not fit",
    ]
    spent_before: Annotated[Loss, "limit rules: epsilon before this request"]
    unlocked: Annotated[
        Loss, "limits that unlock gradually, while a part is locked: the epsilon that is not"
    ]
    period: Annotated[
        PeriodLeft, "limits that count in a period of the calendar: when, and what was left"
    ]
    spent_after: Annotated[Loss, "limit rules: epsilon if it were admitted"]
    comparisons: Annotated[
        list[Comparison],
        "both sides; epsilon or the gate's own currency has to hold, and delta has to",
    ]
    beside: Annotated[
        list[AlsoExhausted],
        "limit rules: the other accounts in which the charge does not fit, the fullest first; at "
        "most nine in a decision",
    ]
    more: Annotated[int, "limit rules: how many more there are; absent if none"]


class RuleFinding(LimitFinding):
    """One rule's comparison. Rules that the policy does not state are called built-in:…."""

    rule: RuleId
    action: Annotated[str, "its action when it fires: block, approve or flag"]
    fired: Annotated[bool, "whether it fired"]
    code: RuleCode
    text: Annotated[str, "the comparison in words"]


class Decision(TypedDict):
    """The outcome of a request, and the findings of all rules."""

    outcome: Annotated[
        str, "allow, flag, approve or block: the strictest action of the rules that fired"
    ]
    rules: Annotated[list[RuleFinding], "every rule that was evaluated, those that fired first"]


class ExhaustedAccounts(TypedDict):
    """Accounts of one limit in which a charge does not fit on the same cells."""

    rule: RuleId
    datasets: Annotated[list[str], "the accounts' datasets; * for a total over datasets"]
    subjects: NotRequired[
        Annotated[
            list[dict[str, Any]],
            "the cells on which it does not fit, as a subject group within the request's; absent "
            "if it fits on none",
        ]
    ]
    part: NotRequired[
        Annotated[
            bool,
            "true if it does not fit on some cells, of which the event had no room to say which",
        ]
    ]


class Exhausted(TypedDict):
    """All accounts in which the charge of a refused request does not fit."""

    accounts: Annotated[int, "how many"]
    listed: Annotated[list[ExhaustedAccounts], "all of them, or the first if they are many"]
    address: NotRequired[Annotated[str, "where all are listed, if they are not here"]]


class ExhaustedPage(TypedDict):
    """A part of the list of exhausted accounts."""

    id: Annotated[str, "the decision"]
    accounts: Annotated[int, "how many accounts the whole list has"]
    listed: Annotated[list[ExhaustedAccounts], "accounts with the same cells of one limit together"]
    next: NotRequired[Annotated[int, "the value of `after` for what follows; absent at the end"]]


class NamedDecision(Decision):
    """A decision and its id."""

    id: Annotated[str, "d and a sequence"]
    exhausted: NotRequired[
        Annotated[Exhausted, "refusals and waits: every account in which the charge does not fit"]
    ]


_Later = TypedDict(
    "_Later",
    {"from": Annotated[Time, "from then on it would fit as it is, by time alone"]},
    total=False,
)
"""A field whose name is a keyword."""


class WouldFit(_Later, total=False):
    """A request that would be granted now in place of one that a limit refuses. Fields are absent
    where nothing fits. Claims are not taken into account.
    """

    requests: Annotated[
        int, "after so many more requests for its cells it would fit as it is; asking again is one"
    ]

    count: Annotated[int, "the largest count of the one mechanism"]
    scale: Annotated[Loss, "its smallest scale, in three digits"]
    times: Annotated[Loss, "several mechanisms or scales: the least factor for all their noise"]
    delta: Annotated[
        Loss,
        "Gaussian noise without a delta, where limits count its epsilon only, or with a larger "
        "one than they keep: a delta to state, with the scale if that alone is not enough",
    ]


class LifetimeTotal(TypedDict):
    """Sums of everything ever booked on a dataset, in all epochs and periods."""

    dataset: Annotated[str, "its id"]
    epsilon: Annotated[Loss, "sum of epsilons"]
    delta: Annotated[Loss, "sum of deltas"]


class WrongField(TypedDict):
    """A field that is not valid."""

    field: Annotated[str, "where it stands"]
    reason: Annotated[str, "the error"]


@with_config(ConfigDict(extra="allow"))
class Problem(TypedDict):
    """An error and how to correct it (RFC 9457). Further fields carry the facts."""

    type: Annotated[
        str,
        Field(
            pattern="^urn:accountant:problem:[a-z-]+$",
            description="the code after the last colon is the one that programs compare",
        ),
    ]
    title: Annotated[str, "the code in words"]
    status: Annotated[int, "the HTTP status"]
    detail: Annotated[str, "the error and the remedy"]
    errors: NotRequired[Annotated[list[WrongField], "invalid-request: each field with its reason"]]
    decision: NotRequired[Annotated[NamedDecision, "refusals: every rule that was evaluated"]]
    decision_page: NotRequired[
        Annotated[str, "refusals: where people read the decision, if the service has an address"]
    ]
    charge: NotRequired[Annotated[Charge, "refusals: the cost of the request"]]
    would_fit: NotRequired[
        Annotated[
            WouldFit, "refusals by a limit: a request that would fit now; may differ in a retry"
        ]
    ]
    lifetime: NotRequired[
        Annotated[
            list[LifetimeTotal], "refusals where a limit counts in periods: what is bounded by none"
        ]
    ]
    sequence: NotRequired[Annotated[int, "the event that this is about"]]
    item: NotRequired[Annotated[int, "batches: the place of the item, from 0 on"]]


class Preview(TypedDict):
    """The decision that the request would get now."""

    decision: Annotated[Decision, "the rules that were evaluated"]
    note: NotRequired[Annotated[str, "that it would wait for a person, if it would"]]
    charge: Costs
    charge_per: NotRequired[ChargePer]
    fits: Annotated[int, "how many requests like this the limits admit"]
    charged_to: NotRequired[ChargedTo]
    sequence: CountedIn


class Foreseen(TypedDict):
    """What one of several requests would get."""

    outcome: Annotated[str, "allow, flag, approve (a person has to) or block"]
    charge: Costs
    flags: Annotated[list[Flag], "the rules that fired, the strictest first; mostly empty"]


class Previews(TypedDict):
    """What each request would get, after those before it that would be granted."""

    items: Annotated[list[Foreseen], "in the order of the requests"]
    granted: Annotated[int, "how many would be granted"]
    sequence: CountedIn


class PricedMechanism(TypedDict):
    """One mechanism's price."""

    kind: Annotated[str, "the mechanism's kind"]
    count: Annotated[int, "invocations"]
    verdict: Annotated[
        str, "of the claim: consistent, conservative, understated, unverifiable or unclaimed"
    ]
    charge: Annotated[Charge, "the amount booked for all invocations"]


class Contribution(TypedDict):
    """One charge."""

    sequence: Annotated[int, "the event that booked it"]
    client: Client
    dataset: DatasetIds
    purpose: Annotated[str | None, "its purpose; (erased) if it was erased"]
    state: Annotated[str, "recorded or revalued, or the state of the grant"]
    epsilon: Annotated[Loss, "its charge"]
    delta: Annotated[Loss, "its own delta"]
    counted: Annotated[Loss, "its charge in the currency that decides what is spent"]
    share: Annotated[
        str | None, "its part of that currency's sum in percent; null where the sum has no bound"
    ]


class Contributors(TypedDict):
    """The charges that used a limit up before a decision."""

    rule: Annotated[str, "the limit rule's id"]
    currency: Annotated[str, "the currency whose sum decides what is spent"]
    sum: Annotated[Loss, "all charges in it, as they are now"]
    events: Annotated[list[Contribution], "the largest charges in it, largest first"]
    left_out: Annotated[int, "how many smaller ones are not listed"]


class DecisionInFull(NamedDecision, Stamped):
    """A decision with the request that led to it."""

    type: Annotated[str, "the type of the event that holds it"]
    client: Client
    request: Asked
    charge: Costs
    mechanisms: Annotated[list[PricedMechanism], "the price of each mechanism, in the order asked"]
    policy: NotRequired[
        Annotated[int, "the event that adopted the policy by which it was judged, if there was one"]
    ]
    charged_to: NotRequired[ChargedTo]
    used_up_by: NotRequired[
        Annotated[list[Contributors], "the charges under each limit that fired; not for pipelines"]
    ]
