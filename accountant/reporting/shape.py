"""The report's shape. The names are the JSON report's names: they are only ever added to.

Amounts are decimal strings, or "infinite". What is spent is rounded up, what remains rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from accountant.reporting.ledger_facts import LedgerFacts

FORMAT: Final = "accountant.report.v1"

Status = Literal["within", "near", "used_up", "over_if_reservations_run", "over"]
STATUSES: Final[tuple[Status, ...]] = (
    "within",
    "near",
    "used_up",
    "over_if_reservations_run",
    "over",
)
"""From calm to grave. near: at least 80 % is spent or reserved. used_up: nothing remains.
over: more is spent than the limit allows, so that its promise is void for the epoch."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a busy reader needs. ``level``: good, watch or bad."""

    level: Literal["good", "watch", "bad"]
    headline: str
    points: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PopulationFacts:
    """Whose privacy is counted, and how."""

    name: str
    privacy_unit: str
    unit: str
    """The privacy unit with its article, for sentences."""
    neighbouring: str
    neighbouring_in_words: str
    membership: str
    membership_in_words: str
    dimensions: dict[str, int]
    """How many values each has."""
    cells: int


@dataclass(frozen=True, slots=True)
class LimitFacts:
    """What a rule promises; ``own_delta`` is the part kept for the mechanisms' own deltas."""

    epsilon: str
    delta: str
    own_delta: str


@dataclass(frozen=True, slots=True)
class Place:
    """A group's place under a limit, at its most charged cell."""

    group: str
    spent: str
    reserved: str
    remaining: str
    sum_of_epsilons: str
    spent_delta: str
    """The delta that belongs to ``spent``."""
    held_delta: str
    """The delta that belongs to spent and reserved together."""
    own_delta: str
    status: Status
    lifetime_epsilon: str
    lifetime_delta: str


@dataclass(frozen=True, slots=True)
class Split:
    """The groups of one dimension, the most charged first; ``left_out`` are not listed."""

    dimension: str
    values: int
    left_out: int
    groups: tuple[Place, ...]


@dataclass(frozen=True, slots=True)
class Meaning:
    """What epsilon and delta say in plain words: of the limit, of what is spent, and of that
    together with what is reserved (empty if nothing is).
    """

    limit: str
    spent: str
    with_reservations: str


@dataclass(frozen=True, slots=True)
class RungFacts:
    """What one gate shows of the same charges, reserved ones included; "infinite" if it has no
    number.
    """

    gate: str
    name: str
    used: str


@dataclass(frozen=True, slots=True)
class Standing:
    """One limit rule on one scope: a dataset, a person's total ("*"), or a client's part of it."""

    rule: str
    scope: str
    dataset: str
    client: str
    action: str
    gate: str
    formula: str
    limit: LimitFacts
    window: str
    """What it is counted over, in words; empty: the life of the epoch."""
    epoch: int
    counted_from: str
    carried: bool
    status: Status
    total: Place
    worst_group: dict[str, str]
    meaning: Meaning
    splits: tuple[Split, ...]
    ladder: tuple[RungFacts, ...]
    """The same charges under every gate, each along the line that was fixed with the limit."""


@dataclass(frozen=True, slots=True)
class LifetimeGroup:
    """The sums of everything ever booked on a group, over all epochs."""

    group: str
    epsilon: str
    delta: str


@dataclass(frozen=True, slots=True)
class LifetimeSplit:
    """Lifetime sums by the values of one dimension."""

    dimension: str
    values: int
    left_out: int
    groups: tuple[LifetimeGroup, ...]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Path-wise sums of everything ever booked on a dataset, or on all of them ("*")."""

    dataset: str
    epsilon: str
    delta: str
    meaning: str
    splits: tuple[LifetimeSplit, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What was booked under one name, net of what was given back. ``unbounded`` counts charges
    without a finite epsilon. ``other``: everything beyond the names that are listed singly.
    """

    name: str
    other: bool
    requests: int
    refused: int
    epsilon: str
    delta: str
    unbounded: int
    given_back: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """An open grant."""

    grant: str
    client: str
    subjects: str
    purpose: str
    epsilon: str
    opened: str
    expires: str


@dataclass(frozen=True, slots=True)
class Reservations:
    """The open grants of a dataset; the first to expire come first, at most 200 are listed."""

    open: int
    epsilon: str
    first_expiry: str | None
    listed: tuple[Reservation, ...]


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """One dataset. ``rule`` is its tightest limit, ``rule_scope`` the dataset itself, or "*" if
    only a person's total covers it; both empty if nothing does.
    """

    id: str
    namespace: str
    name: str
    owner: str | None
    parents: tuple[str, ...]
    status: Status | Literal["no_limit"]
    rule: str
    rule_scope: str
    booked: Usage
    by_client: tuple[Usage, ...]
    by_kind: tuple[Usage, ...]
    by_purpose: tuple[Usage, ...]
    reservations: Reservations
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class PointFacts:
    """A balance after an event."""

    sequence: int
    time: str
    limit: str
    spent: str
    spent_and_reserved: str
    epoch: int


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """A limit's balance over time; one event in ``every`` that touched it is a point."""

    rule: str
    dataset: str
    every: int
    points: tuple[PointFacts, ...]


@dataclass(frozen=True, slots=True)
class NotableFacts:
    """An event that may want a look."""

    sequence: int
    time: str
    client: str
    dataset: str
    subjects: str
    epsilon: str
    delta: str
    purpose: str
    rules: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class SeenFacts:
    """All events of a sort are counted; the latest are listed, the last first."""

    sort: str
    total: int
    by_dataset: dict[str, int]
    latest: tuple[NotableFacts, ...]


@dataclass(frozen=True, slots=True)
class RuleFacts:
    """A rule of the policy in force, as a sentence."""

    id: str
    sentence: str


@dataclass(frozen=True, slots=True)
class ChangeFacts:
    """An adoption of a policy."""

    sequence: int
    time: str
    by: str
    approved_by: str | None
    policy: str
    digest: str
    opened_epochs: tuple[str, ...]
    loosened: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The policy in force and how it came about, the last change first."""

    name: str
    digest: str
    sequence: int
    rules: tuple[RuleFacts, ...]
    changes: int
    latest_changes: tuple[ChangeFacts, ...]


@dataclass(frozen=True, slots=True)
class FormulaFacts:
    """What stands behind the numbers of a gate."""

    gate: str
    name: str
    formula: str
    source: str


@dataclass(frozen=True, slots=True)
class Report:
    """The compliance report of one population at one point of its ledger."""

    format: str
    ledger_name: str
    verdict: Verdict
    population: PopulationFacts | None
    datasets: tuple[DatasetFacts, ...]
    limits: tuple[Standing, ...]
    lifetimes: tuple[Lifetime, ...]
    series: tuple[SeriesFacts, ...]
    notable: tuple[SeenFacts, ...]
    policy: PolicyFacts | None
    formulas: tuple[FormulaFacts, ...]
    notes: tuple[str, ...]
    ledger: LedgerFacts
