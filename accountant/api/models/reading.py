"""Answers about registrations, spending, remaining budget and the ledger."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from accountant.api.models.deciding import Limit
from accountant.api.models.fields import (
    Client,
    CountedIn,
    DatasetOrAll,
    FilterName,
    Loss,
    RuleId,
    Rules,
    Stamped,
    Time,
)
from accountant.api.models.proposing import Depletion, Relaxations
from accountant.budget.policy import Publication


class Population(TypedDict):
    """A population."""

    population: Annotated[str, "its name"]
    privacy_unit: Annotated[str, "the privacy unit, such as a person"]
    neighbouring: Annotated[str, "add_or_remove_one or replace_one"]
    membership: Annotated[str, "public or private"]
    dimensions: Annotated[dict[str, list[str]], "each dimension with its values in order"]
    fixed: Annotated[dict[str, str], "why a dimension that looks like times never changes"]
    units: NotRequired[
        Annotated[dict[str, dict[str, Any]], "its further units, as they were stated, if any"]
    ]
    cells: Annotated[int, "how many cells the dimensions make"]
    sequence: CountedIn


class Appended(TypedDict):
    """A dimension after values were appended."""

    population: Annotated[str, "the population's name"]
    dimension: Annotated[str, "the dimension's name"]
    values: Annotated[int, "how many values it has now: the place of the next one"]
    cells: Annotated[int, "how many cells the dimensions make"]


class Dataset(TypedDict):
    """A dataset."""

    id: Annotated[str, "its short id; grants and rules use it"]
    namespace: Annotated[str, "OpenLineage namespace"]
    name: Annotated[str, "OpenLineage name"]
    owner: NotRequired[Annotated[str | None, "its owner"]]
    labels: NotRequired[Annotated[dict[str, str], "its labels, if it has any"]]
    parents: NotRequired[Annotated[list[str], "the datasets that it was made from"]]
    also: NotRequired[
        Annotated[list[str], "datasets of other populations that are the same data, if any"]
    ]
    confirmed_by: NotRequired[Annotated[str, "who confirmed the second use, if it took one"]]
    charged_with: NotRequired[
        Annotated[
            list[str],
            "datasets made from it that had been used before it was known as their parent: it was "
            "charged with that then",
        ]
    ]
    uncharged: NotRequired[
        Annotated[
            list[str], "such datasets whose former use it lacks: a version before 0.3 wrote it"
        ]
    ]


class PolicyInForce(TypedDict):
    """A policy as it was adopted."""

    digest: Annotated[str, "SHA-256 of the policy file's text, in hex"]
    policy: Annotated[str, "its name"]
    rules: Annotated[Rules, "its rules with every default written out"]
    publication: NotRequired[Annotated[Publication, "its witnesses, if it names any"]]


class FittingWork(TypedDict):
    """Typical work, and how often it fits an unused budget."""

    name: Annotated[str, "the work, in words"]
    fits: Annotated[int, "how often, at the orders that were kept"]
    afresh: Annotated[int, "how often, at orders chosen afresh"]


class KeptOrders(TypedDict):
    """A changed limit that goes on at the Renyi orders of what it has used, and what that costs."""

    rule: Annotated[str, "the limit rule's id"]
    orders: Annotated[list[str], "the orders that it keeps"]
    afresh: Annotated[list[str], "those that it would have if nothing had been used"]
    work: Annotated[list[FittingWork], "how much less fits"]


class NotReset(TypedDict):
    """A limit that was not reset though it says `carry: none`."""

    rule: RuleId
    reason: Annotated[str, "why not, and what to do"]


class AdoptedPolicy(PolicyInForce):
    """A policy that was adopted, and the epochs that it opens."""

    adopted: Annotated[bool, "false if the same policy was in force already"]
    opens_epoch: Annotated[list[str], "limit rules that begin a new epoch"]
    kept_orders: Annotated[list[KeptOrders], "changed limits that keep other orders than the best"]
    not_reset: NotRequired[
        Annotated[list[NotReset], "limits with `carry: none` that go on all the same"]
    ]
    depletion: NotRequired[Depletion]
    relaxed: NotRequired[Relaxations]


class PopulationInForce(Population):
    """A population with its datasets and policy."""

    datasets: Annotated[list[Dataset], "the datasets"]
    policy: Annotated[PolicyInForce | None, "the policy in force, if one is adopted"]


class Balance(TypedDict):
    """One group's place under one limit."""

    group: Annotated[str, "a value of the dimension, or everyone"]
    spent: Annotated[Loss, "epsilon spent for good, rounded up"]
    reserved: Annotated[Loss, "epsilon that open grants hold"]
    remaining: Annotated[Loss, "epsilon left, but for what allotments keep, rounded down"]
    kept: Annotated[Loss, "the most epsilon that allotments still keep of a cell of the group"]
    share: Annotated[float | None, "spent and reserved over the limit; null: infinite"]
    spent_delta: Annotated[Loss, "the delta that belongs to spent"]
    held_delta: Annotated[Loss, "the delta that belongs to spent and reserved together"]
    own_delta: Annotated[Loss, "sum of the mechanisms' own deltas"]
    over: Annotated[bool, "more is spent or reserved than the limit allows"]
    void: Annotated[bool, "more is spent: the limit is void for this epoch"]
    sum_of_epsilons: Annotated[Loss, "plain sum, valid also where the limit is void"]


class Sums(TypedDict):
    """Plain sums, valid under every gate."""

    epsilon: Annotated[Loss, "sum of epsilons"]
    delta: Annotated[Loss, "sum of deltas"]


class Rung(TypedDict):
    """The same charges under one gate."""

    gate: FilterName
    used: Annotated[Loss, "epsilon that it would show as spent and reserved, rounded up"]


class Period(TypedDict):
    """A period of the calendar that a limit counts in."""

    start: Annotated[Time, "when it began"]
    end: Annotated[Time, "when the limit refreshes"]


class Account(TypedDict):
    """One limit rule on one scope."""

    rule: RuleId
    scope: Annotated[str, "its dataset or client, in words"]
    dataset: DatasetOrAll
    client: Annotated[str, "the client of a sub-limit, or empty"]
    unit: NotRequired[Annotated[str, "the further unit that it protects, if not the first one"]]
    purpose: NotRequired[Annotated[str, "the listed purpose, of a limit for each purpose"]]
    relaxed: NotRequired[
        Annotated[Loss, "the largest epsilon that requests in a context may bring it to"]
    ]
    action: Annotated[str, "block or flag"]
    gate: FilterName
    limit: Annotated[Limit, "the limit"]
    window: Annotated[
        str | None,
        "30d, 12h or month, or monthly (say) of a limit that refreshes: the span that is bounded; "
        "null: since `counted_from`",
    ]
    period: NotRequired[
        Annotated[Period, "of the calendar: `total` is what was used in it, and what is left"]
    ]
    unlocked: NotRequired[
        Annotated[Loss, "of a limit that unlocks gradually: the epsilon that is, where least is"]
    ]
    epoch: Annotated[int, "how often the limit was changed, from 1"]
    counted_from: Annotated[Time, "when this epoch began"]
    carried: Annotated[bool, "amounts used before the epoch still count in it"]
    total: Annotated[Balance, "the most charged group, in each currency"]
    worst_group: Annotated[dict[str, str], "the values that all peak cells share"]
    lifetime: Annotated[Sums, "sums of everything ever booked, in all epochs"]
    ladder: Annotated[list[Rung], "the same charges under every gate, for comparison"]
    groups: Annotated[list[Balance], "one a value of the dimension in `by`"]


class LifetimeGroup(Sums):
    """Sums of everything ever booked for one group."""

    group: Annotated[str, "a value of the dimension"]


class Lifetime(Sums):
    """Sums of everything ever booked."""

    dataset: DatasetOrAll
    groups: NotRequired[Annotated[list[LifetimeGroup], "one a value of the dimension in `by`"]]


class Accounts(TypedDict):
    """The accounts of a population."""

    population: Annotated[str, "its name"]
    sequence: CountedIn
    time: Annotated[Time, "the last event's stamp"]
    accounts: Annotated[list[Account], "one a limit rule and scope"]
    lifetime: Annotated[list[Lifetime], "one a dataset, and the total over all"]


@with_config(ConfigDict(extra="allow"))
class Event(TypedDict):
    """An event. Its further fields depend on its type; `command` is the request that it answers."""

    ledger: Annotated[str, "the population's name"]
    sequence: Annotated[int, "its place, from 0"]
    type: Annotated[str, "its type, in the past tense, with a version"]
    time: Annotated[Time, "the service's stamp"]
    by: Client
    command: Annotated[dict[str, Any], "the request as it was understood, defaults left out"]


class LoggedEvent(TypedDict):
    """An event and its hash in the ledger's tree."""

    event: Annotated[Event, "the canonical document"]
    leaf: Annotated[str, "RFC 6962 leaf hash of the event's canonical bytes, in hex"]


class Events(TypedDict):
    """A page of the ledger."""

    events: Annotated[list[LoggedEvent], "in order"]
    last: Annotated[int, "send it as `after` for the next page"]


class Erased(TypedDict):
    """Texts that are erased."""

    event: Annotated[int, "the event whose texts are erased"]
    erased: Annotated[list[str], "purpose, justification or reason; of an item: items.3.purpose"]
    sequence: Annotated[int, "the event that records it"]


class Read(TypedDict):
    """A registered dataset that a run reads."""

    population: Annotated[str, "of which population"]
    dataset: Annotated[str, "its id there"]
    granted: Annotated[bool, "a grant was found, in this event of the run or an earlier one"]


class Lineage(TypedDict):
    """What a run reads of the registered data that the key reaches."""

    reads: Annotated[list[Read], "each dataset, in every population that has it"]


class Verified(Stamped):
    """A verification that is on record."""

    size: Annotated[int, "how many events were verified"]
    root: Annotated[str, "the root over them, in hex"]
    findings: Annotated[int, "how many there were"]
    decided: Annotated[bool, "every decision was taken again"]


class Filed(Stamped):
    """A report that is filed."""

    report: Annotated[str, "officer, statement or population"]
    dataset: NotRequired[Annotated[str, "of a statement"]]
    first: Annotated[str, "the first day of the period"]
    last: Annotated[str, "its last day"]
    format: Annotated[str, "html, pdf, csv or json"]
    size: Annotated[int, "how many events it rests on"]
    digest: Annotated[str, "SHA-256 of its bytes, in hex"]


class Health(TypedDict):
    """The service is alive, or ready to decide."""

    status: Annotated[str, "ok or ready"]
    version: NotRequired[Annotated[str, "of the program"]]
