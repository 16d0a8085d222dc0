"""The classes of the compliance report. Their names are the names of the JSON report.

Names are added, never renamed or removed. Amounts are decimal strings, or "infinite": spent and
reserved ones rounded up, remaining ones and limits rounded down. Times are RFC 3339.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, Generic, Literal, TypeVar, get_args

from msgspec import Struct

from accountant.privacy.units import INFINITE
from accountant.reporting.custody import EventFacts, LedgerFacts

FORMAT: Final = "accountant.report.v1"

Status = Literal["within", "near", "used_up", "over_if_reservations_run", "over"]
STATUSES: Final[tuple[Status, ...]] = get_args(Status)
"""From best to worst. near: at least 80 % of its epsilon is spent or reserved. used_up: nothing
remains. over: more is spent than the limit allows, so that its guarantee is void."""

Level = Literal["good", "watch", "bad"]
Group = TypeVar("Group")


class Summary(Struct, frozen=True):
    """The summary at the top of the report."""

    level: Level
    headline: str
    points: tuple[str, ...]


class PopulationFacts(Struct, frozen=True):
    """The population. ``unit``: one unit in words; ``dimensions``: how many values each has;
    ``fixed``: why some that look like times of events never change.
    """

    name: str
    privacy_unit: str
    unit: str
    neighbouring: str
    neighbouring_in_words: str
    membership: str
    membership_in_words: str
    dimensions: dict[str, int]
    fixed: dict[str, str]
    cells: int


class LimitFacts(Struct, frozen=True):
    """A limit. ``own_delta`` is the part of delta that is kept for the mechanisms' own deltas."""

    epsilon: str
    delta: str
    own_delta: str


class Amounts(Struct, frozen=True, kw_only=True):
    """A group's use of a limit, at the group's peak cell."""

    group: str
    spent: str
    reserved: str
    remaining: str
    """What is left for requests that draw from no allotment."""
    kept: str
    """The most epsilon that allotments keep of one cell of the group; ``remaining`` is without."""
    sum_of_epsilons: str
    """The largest plain sum of spent and reserved epsilons; it holds after an overrun too."""
    spent_delta: str
    """The delta of ``spent``: own deltas, and the filter's where ``spent`` is below the sum."""
    held_delta: str
    """The delta of spent and reserved together."""
    own_delta: str
    """The sum of the mechanisms' own deltas, spent and reserved."""

    @property
    def together(self) -> str:
        """Spent and reserved as one amount."""
        if INFINITE in (self.spent, self.reserved):
            return INFINITE
        return format(Decimal(self.spent) + Decimal(self.reserved), "f")


class Place(Amounts, frozen=True, kw_only=True):
    """A row of a limit's table: a group's use, its status and its lifetime total."""

    status: Status
    lifetime_epsilon: str
    lifetime_delta: str


class Split(Struct, Generic[Group], frozen=True):
    """The groups of one dimension, most used first; ``left_out`` groups are not listed."""

    dimension: str
    values: int
    left_out: int
    groups: tuple[Group, ...]


class Meaning(Struct, frozen=True):
    """Guarantees in words; that of spent and reserved together is empty if nothing is reserved."""

    limit: str
    spent: str
    with_reservations: str


class RungFacts(Struct, frozen=True):
    """The result of one filter, called ``name``, from the charges, reserved ones included."""

    gate: str
    used: str
    name: str


class Account(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One limit rule in one scope: a dataset, all datasets ("*"), or one client's part of it."""

    rule: str
    scope: str
    dataset: str
    client: str
    unit: str = ""
    """The further unit that it protects; left out: the first one."""
    purpose: str = ""
    """The purpose that it counts, of a limit for each; left out: none that the policy lists."""
    relaxed: str = ""
    """The largest epsilon that requests in a context may bring it to, which it promises; left out:
    that of the limit.
    """
    action: str
    gate: str
    limit: LimitFacts
    epoch: int
    counted_from: str
    carried: bool
    worst_group: dict[str, str]


class PeriodFacts(Struct, frozen=True):
    """A period of the calendar: when it began, and when the limit refreshes."""

    start: str
    end: str


class Standing(Account, frozen=True, kw_only=True):
    """An account with its status. ``window`` is the rule's window in words, empty if it has none;
    ``unlocked`` is the epsilon that is unlocked where least is, if it unlocks gradually; ``period``
    the dates of the calendar that it counts between, None where it is no such window;
    ``ladder`` has the result of every filter on the same charges, each at its fixed order;
    ``divides``: it counts some charges only, and promises nothing about the data.
    """

    divides: bool
    formula: str
    window: str
    period: PeriodFacts | None
    unlocked: str | None
    status: Status
    total: Place
    meaning: Meaning
    splits: tuple[Split[Place], ...]
    ladder: tuple[RungFacts, ...]

    @property
    def left(self) -> Decimal:
        """The share of the limit that is left."""
        return Decimal(self.total.remaining) / Decimal(self.limit.epsilon)


class LifetimeGroup(Struct, frozen=True):
    """The lifetime total of one group, over all epochs."""

    group: str
    epsilon: str
    delta: str


class Lifetime(Struct, frozen=True):
    """The lifetime total of a dataset, or of all datasets ("*")."""

    dataset: str
    epsilon: str
    delta: str
    meaning: str
    splits: tuple[Split[LifetimeGroup], ...]


class BasisFacts(Struct, frozen=True):
    """The sum that decides what is spent under ``rule``, of which shares are parts: ``currency``,
    ``sums`` in words. What is spent begins at ``starts_at`` and rises with the sum; None where it
    does not.
    """

    rule: str
    currency: str
    sums: str
    starts_at: str | None


class Usage(Struct, frozen=True):
    """The charges booked under one name, less those given back. ``unbounded`` counts charges
    that have no finite epsilon; ``bounded``: some currency bounds them all. ``other``: the sum of
    all names that are not listed singly.

    ``counted``: in the currency of the dataset's ``basis``; ``share``: in percent of the dataset's
    sum in it, None where that has no bound; ``adds``: the epsilon by which it raises what is spent,
    and ``took_back`` that of what was given back, None where no charge raises it.
    """

    name: str
    other: bool
    requests: int
    refused: int
    epsilon: str
    delta: str
    unbounded: int
    bounded: bool
    given_back: str
    counted: str
    share: str | None
    adds: str | None
    took_back: str | None


class Reservation(Struct, frozen=True):
    """An open grant. ``adds``: the epsilon by which it raises what is used under the dataset's
    ``basis``; None where no charge raises it.
    """

    grant: str
    client: str
    subjects: str
    purpose: str
    epsilon: str
    adds: str | None
    opened: str
    expires: str


class Reservations(Struct, frozen=True):
    """The open grants of a dataset; at most 200 are listed, the first to expire first. ``adds``:
    as of each.
    """

    open: int
    epsilon: str
    adds: str | None
    first_expiry: str | None
    listed: tuple[Reservation, ...]


class DatasetFacts(Struct, frozen=True):
    """One dataset. ``rule`` is its tightest limit; ``rule_scope`` is the dataset itself, or "*" if
    only a limit over all datasets covers it. Both are empty if no limit does. ``also`` are datasets
    of other populations that are the same data, each with a budget of its own; ``confirmed_by``
    agreed to such a second use here.
    """

    id: str
    namespace: str
    name: str
    owner: str | None
    parents: tuple[str, ...]
    also: tuple[str, ...]
    confirmed_by: str | None
    labels: dict[str, str]
    status: Status | Literal["no_limit"]
    rule: str
    rule_scope: str
    basis: BasisFacts
    booked: Usage
    by_client: tuple[Usage, ...]
    by_kind: tuple[Usage, ...]
    by_purpose: tuple[Usage, ...]
    reservations: Reservations
    counts: dict[str, int]


class PointFacts(EventFacts, frozen=True):
    """The use of a limit after an event."""

    limit: str
    spent: str
    spent_and_reserved: str
    epoch: int


class SeriesFacts(Struct, frozen=True):
    """The use of a limit over time. Every ``every``-th event on the account is a point."""

    rule: str
    dataset: str
    every: int
    points: tuple[PointFacts, ...]


class NotableFacts(EventFacts, frozen=True):
    """An event that an officer may have to look at. ``bounded``: some currency bounds what it asks
    for, be it without an epsilon of its own.
    """

    client: str
    dataset: str
    subjects: str
    epsilon: str
    bounded: bool
    delta: str
    purpose: str
    rules: tuple[str, ...]
    text: str


class SeenFacts(Struct, frozen=True):
    """The notable events of one sort. All are counted; the latest are listed, last first."""

    sort: str
    total: int
    by_dataset: dict[str, int]
    latest: tuple[NotableFacts, ...]


class TrustedFacts(Struct, frozen=True):
    """What was given back, or began at zero, on one client's word: grants ``released``, the rest of
    those committed ``in_part``, positives that ``sessions`` never counted, each with its epsilon;
    ``epsilon`` of all of it, where ``unbounded`` charges have none; and ``attested_cells``, whose
    members were attested to be in no data before.
    """

    client: str
    released: int
    released_epsilon: str
    in_part: int
    in_part_epsilon: str
    sessions: int
    sessions_epsilon: str
    epsilon: str
    unbounded: int
    attested_cells: int


class WaitFacts(Struct, frozen=True):
    """A request that waits for budget: what it would cost, since when and until when it waits, and
    the ``rules`` that refuse it now, in words in ``held_up_by``.
    """

    request: str
    client: str
    dataset: str
    subjects: str
    purpose: str
    epsilon: str
    since: str
    until: str
    rules: tuple[str, ...]
    held_up_by: str


class WaitsFacts(Struct, frozen=True):
    """The requests that wait. All are counted; those that came first are listed."""

    total: int
    listed: tuple[WaitFacts, ...]


class RelaxedFacts(Struct, frozen=True):
    """Requests of ``client`` that fitted a limit only because of their context, and the sum of
    their epsilons, as they were asked for; without a client those of all that are not listed.
    """

    rule: str
    client: str
    requests: int
    epsilon: str


class RuleFacts(Struct, frozen=True):
    """A rule of the policy in force, as a sentence."""

    id: str
    sentence: str


class ChangeFacts(EventFacts, frozen=True):
    """An adoption of a policy."""

    by: str
    confirmed_by: str | None
    policy: str
    digest: str
    opened_epochs: tuple[str, ...]
    loosened: tuple[str, ...]


class PolicyFacts(Struct, frozen=True):
    """The policy in force, and the latest adoptions, last first. ``depletion``: how much of a limit
    those that divide it can use up, in words; ``relaxed``: who may use more of one.
    """

    name: str
    digest: str
    sequence: int
    rules: tuple[RuleFacts, ...]
    depletion: tuple[str, ...]
    relaxed: tuple[str, ...]
    changes: int
    latest_changes: tuple[ChangeFacts, ...]


class FormulaFacts(Struct, frozen=True):
    """The formula of a filter and its source."""

    gate: str
    name: str
    formula: str
    source: str


class Report(Struct, frozen=True):
    """The compliance report of one population at one point of its ledger."""

    format: str
    ledger_name: str
    verdict: Summary
    population: PopulationFacts | None
    datasets: tuple[DatasetFacts, ...]
    limits: tuple[Standing, ...]
    lifetimes: tuple[Lifetime, ...]
    series: tuple[SeriesFacts, ...]
    notable: tuple[SeenFacts, ...]
    trusted: tuple[TrustedFacts, ...]
    waits: WaitsFacts
    relaxed: tuple[RelaxedFacts, ...]
    policy: PolicyFacts | None
    formulas: tuple[FormulaFacts, ...]
    notes: tuple[str, ...]
    ledger: LedgerFacts


def as_number(amount: str) -> float:
    """Return an amount as a float, for sorting and pictures only."""
    return float("inf") if amount == INFINITE else float(amount)
