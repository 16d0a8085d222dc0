"""What a monitor reads of a running service: budgets, decisions, queues, evidence, the clock.

Amounts are exact in the ledger and floats here: losses are rounded up, and limits and what is left
of them down, to the next float. A reading takes time with the number of accounts, and of cells that
were charged apart; it reads no events but those that another process has just written. Open grants
are copied, and looked at once, only where some of a limit were charged apart.
"""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import inf, nextafter
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from accountant import __version__
from accountant.auth.keys import LEDGER as KEYS
from accountant.budget.accounts.sums import Sums
from accountant.budget.errors import Problem
from accountant.budget.state import AccountKey, Counted, State
from accountant.privacy import engine
from accountant.privacy.units import INFINITE
from accountant.reporting.statement import balances, scopes
from accountant.runtime.measures import BOUNDS
from accountant.runtime.reader import Counts
from accountant.runtime.service import Service
from accountant.store.ledgers import StoreError
from accountant.store.vault import KINDS, Vault

_ACCOUNT: Final = ("population", "rule", "dataset", "unit", "client", "purpose")
_IN: Final = ("population",)
_HEAD: Final = ("population", "kind")


class Described(NamedTuple):
    """A metric: its kind, its meaning, and its labels."""

    kind: str
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: Final = {
    "accountant_limit_epsilon": Described("gauge", "The epsilon of a limit.", _ACCOUNT),
    "accountant_limit_spent_epsilon": Described(
        "gauge", "What is spent of a limit where most is, rounded up.", _ACCOUNT
    ),
    "accountant_limit_reserved_epsilon": Described(
        "gauge", "What open grants hold of a limit beside that, rounded up.", _ACCOUNT
    ),
    "accountant_limit_remaining_epsilon": Described(
        "gauge", "What is left of a limit where least is, rounded down.", _ACCOUNT
    ),
    "accountant_limit_void": Described(
        "gauge", "1 if more is spent than the limit allows: its guarantee is void.", _ACCOUNT
    ),
    "accountant_decisions_total": Described(
        "counter", "Decisions by outcome: allow, flag, wait or block.", ("population", "outcome")
    ),
    "accountant_rule_fired_total": Described(
        "counter",
        "Decisions in which a rule fired, by the decision's outcome.",
        ("population", "rule", "code", "outcome"),
    ),
    "accountant_events_total": Described(
        "counter", "Events that this process has recorded, by type.", ("population", "type")
    ),
    "accountant_ledger_events": Described("gauge", "Events of a ledger.", _IN),
    "accountant_ledger_readable": Described(
        "gauge", "1 if the ledger can be read, as it was signed and seen before.", _IN
    ),
    "accountant_grants_open": Described("gauge", "Grants that are not settled yet.", _IN),
    "accountant_requests_waiting": Described(
        "gauge", "Requests that wait, for budget or a person.", _IN
    ),
    "accountant_proposals_waiting": Described(
        "gauge", "Proposals that wait for a second person; of keys, in `_service`.", _IN
    ),
    "accountant_queue_commands": Described(
        "gauge", "Commands that wait to be decided, of ledgers that were asked lately.", _IN
    ),
    "accountant_checkpoint_events": Described(
        "gauge", "Events up to the head that was last signed, or published.", _HEAD
    ),
    "accountant_checkpoint_timestamp_seconds": Described(
        "gauge", "When the head that was last signed, or published, was kept in the vault.", _HEAD
    ),
    "accountant_publication_stopped": Described(
        "gauge", "1 if a witness has contradicted the ledger, and nothing is published.", _IN
    ),
    "accountant_clock_in_doubt": Described(
        "gauge", "1 while the clock is in doubt: nothing is granted and nothing expires."
    ),
    "accountant_request_duration_seconds": Described(
        "histogram", "How long answers over HTTP took.", ("call", "status")
    ),
    "accountant_build_info": Described(
        "gauge", "The version of the program, of Python and of the bounds.",
        ("version", "python", "bounds"),
    ),
}  # fmt: skip
"""All metrics that are this project's own, by name."""
_FAMILIES: Final = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
_ONE: Final = threading.Lock()
"""One reading at a time: it holds up others rather than those who ask for budget."""


def up(amount: str) -> float:
    """Return the smallest float that is at least a decimal amount: a loss."""
    return inf if amount == INFINITE else _beside(amount, inf)


def down(amount: str) -> float:
    """Return the largest float that is at most a decimal amount: a limit, or what is left of it."""
    return _beside(amount, -inf)


def _beside(amount: str, towards: float) -> float:
    exact, near = Fraction(amount), float(amount)
    if near in (inf, -inf):  # no limit and no finite sum is as large; the bound holds all the same
        return near if near == towards else nextafter(near, towards)
    wrong = Fraction(near) < exact if towards > 0 else Fraction(near) > exact
    return nextafter(near, towards) if wrong else near


class Readings:
    """One reading: the families by name, and who fills them."""

    def __init__(self) -> None:
        self._families: dict[str, Metric] = {}

    def family(self, name: str) -> Metric:
        """Return the family of a metric, which is empty at first."""
        if name not in self._families:
            kind, meaning, labels = METRICS[name]
            made = _FAMILIES[kind](name.removesuffix("_total"), meaning, labels=labels)
            self._families[name] = made
        return self._families[name]

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample; the labels in the order in which the metric has them."""
        self.family(name).add_metric(labels, value)  # type: ignore[attr-defined]

    def families(self) -> Iterator[Metric]:
        """Yield every family that has samples."""
        yield from self._families.values()


class ServiceCollector(Collector):
    """Reads a service. ``parts``: with the accounts that only divide a limit, such as clients'."""

    def __init__(self, service: Service, *, parts: bool = False) -> None:
        self._service, self._parts = service, parts

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, one reading at a time."""
        with _ONE:
            found = Readings()
            self._process(found)
            self._counts(found)
            self._ledgers(found)
        yield from found.families()
        yield self._latencies()

    def _process(self, found: Readings) -> None:
        version = __version__, platform.python_version(), str(engine.CURRENT)
        found.add("accountant_build_info", 1, *version)
        found.add("accountant_clock_in_doubt", self._service.clock_doubt() is not None)
        for ledger, length in sorted(self._service.queued().items()):
            found.add("accountant_queue_commands", length, ledger)

    def _counts(self, found: Readings) -> None:
        for one, count in sorted(self._service.tally.decisions().items()):
            if one.rule:
                labels = one.ledger, one.rule, one.code, one.outcome
                found.add("accountant_rule_fired_total", count, *labels)
            else:
                found.add("accountant_decisions_total", count, one.ledger, one.outcome)
        for (ledger, kind), count in sorted(self._service.tally.events().items()):
            found.add("accountant_events_total", count, ledger, kind)

    def _ledgers(self, found: Readings) -> None:
        try:
            names = self._service.populations()
            keys, now = self._service.credentials.proposals()
        except StoreError:
            found.add("accountant_ledger_readable", 0, KEYS)
            return
        found.add("accountant_ledger_readable", 1, KEYS)
        waiting = sum(one.is_open(now) for one in keys)
        found.add("accountant_proposals_waiting", waiting, KEYS)
        for ledger in names:
            try:
                state, counts = self._service.sums(ledger)
            except (Problem, StoreError):
                found.add("accountant_ledger_readable", 0, ledger)
                continue
            found.add("accountant_ledger_readable", 1, ledger)
            self._ledger(found, state, counts)
            if self._service.vault is not None:
                _heads(found, ledger, self._service.vault)

    def _ledger(self, found: Readings, state: State, counts: Counts) -> None:
        ledger, now = state.ledger, max(state.time, state.now)
        found.add("accountant_ledger_events", state.sequence, ledger)
        found.add("accountant_grants_open", counts.open, ledger)
        found.add("accountant_requests_waiting", counts.waiting, ledger)
        proposed = sum(one.is_open(now) for one in state.proposals.values())
        found.add("accountant_proposals_waiting", proposed, ledger)
        stopped = state.custody.stopped is not None
        found.add("accountant_publication_stopped", stopped, ledger)
        shown = [one for one in scopes(state) if self._parts or not one.rule.divides]
        held = state.reserved_of([one.key for one in shown])
        for counted in shown:
            _account(found, state, counted, held.get)

    def _latencies(self) -> Metric:
        name = "accountant_request_duration_seconds"
        _, meaning, labels = METRICS[name]
        family = HistogramMetricFamily(name, meaning, labels=labels)
        for (call, status), (counts, total) in sorted(self._service.latencies.durations().items()):
            buckets, below = [], 0
            for bound, count in zip(BOUNDS, counts, strict=True):
                below += count
                buckets.append(("+Inf" if bound == inf else str(bound), below))
            family.add_metric((call, str(status)), buckets, total)
        return family


def _account(
    found: Readings, state: State, counted: Counted, held: Callable[[AccountKey], Sums | None]
) -> None:
    """Add what one account has used of its limit, at its fullest cell."""
    rule, _, key = counted
    [total] = balances(state, counted, None, held)
    labels = state.ledger, rule.id, key.dataset, key.unit, key.client, key.purpose
    found.add("accountant_limit_epsilon", down(f"{rule.limit.epsilon:f}"), *labels)
    found.add("accountant_limit_spent_epsilon", up(total.spent), *labels)
    found.add("accountant_limit_reserved_epsilon", up(total.reserved), *labels)
    found.add("accountant_limit_remaining_epsilon", down(total.remaining), *labels)
    found.add("accountant_limit_void", total.void, *labels)


def _heads(found: Readings, ledger: str, vault: Vault) -> None:
    """Add the heads in the vault."""
    try:
        sizes = {known.whose: known.size for known in vault.known(ledger)}
        for kind, whose in KINDS.items():
            if whose in sizes and (at := vault.kept_at(ledger, kind)) is not None:
                found.add("accountant_checkpoint_events", sizes[whose], ledger, kind)
                found.add("accountant_checkpoint_timestamp_seconds", at, ledger, kind)
    except StoreError:  # the publisher logs why; an alert sees that they are absent
        return
