"""The report: one pass over the events, folded and watched, then put into its shape.

Pure: the same events give the same report, whenever and wherever it is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from accountant.budget.apply import apply, read
from accountant.budget.state import State
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import Tree, leaf_hash
from accountant.privacy.filters import BASIC, FILTERS
from accountant.reporting.custody import Published
from accountant.reporting.history import History
from accountant.reporting.ledger_facts import LedgerFacts
from accountant.reporting.lifetimes import lifetimes
from accountant.reporting.limit_status import standings
from accountant.reporting.series import Burndowns, Point
from accountant.reporting.shape import (
    FORMAT,
    FormulaFacts,
    PointFacts,
    PopulationFacts,
    Report,
    SeriesFacts,
)
from accountant.reporting.texts import Texts
from accountant.reporting.timeline import datasets, notable, policy
from accountant.reporting.verdict import verdict
from accountant.reporting.words import (
    bare_unit,
    formula,
    membership_in_words,
    relation_in_words,
    unit_of,
)
from accountant.store.ledgers import Signed

__all__ = ["Report", "build_report"]

NOTES: Final = (
    "Spent and reserved amounts are rounded up, remaining amounts and limits are rounded down.",
    "Losses of one and the same {privacy_unit} add up. Requests about different subject groups do "
    "not: each {privacy_unit} lies in one group for life, so a total is that of the most charged "
    "group, never the sum of the groups.",
    "Lifetime totals are path-wise sums: every epsilon ever booked on the most charged group is "
    "added up, over all epochs of all limits, open reservations included. They hold whatever "
    "happened to any limit; no limit’s epoch or restart lowers them.",
    "What is protected is {unit}. Somebody who accounts for several such units is protected as "
    "each one of them, not as a whole.",
    "A reservation that expires is charged in full. What was given back rests on the client’s "
    "word that it was never executed on the data.",
    "A claimed epsilon is compared with the stated parameters of the mechanism. Whether these "
    "parameters are what ran cannot be seen from the ledger.",
)


class StoredLike(Protocol):
    """An event as it is kept: its canonical bytes and their hash in the ledger's tree."""

    @property
    def sequence(self) -> int:
        """Its place in the ledger."""

    @property
    def body(self) -> bytes:
        """Its canonical bytes."""

    @property
    def leaf(self) -> bytes:
        """Its leaf hash."""


def build_report(
    ledger: str,
    stored: Iterable[StoredLike],
    texts: Texts | None = None,
    published: Signed | None = None,
) -> Report:
    """The report of ``ledger`` after the events in ``stored``, which are read once, in order.

    Without ``texts`` it says where some are sealed; ``published`` is the last checkpoint that was,
    where that is known. Raises ValueError if an event is not canonical or does not follow the one
    before.
    """
    state, history, burndowns = State(ledger), History(), Burndowns()
    texts, head = texts or Texts(), Published(published)
    tree, broken_at = Tree(), None
    for row in stored:
        event = Event.from_bytes(row.body)
        apply(state, read(state, event, row.body))
        history.add(state, texts.opened(event))
        burndowns.add(state, event)
        leaf = leaf_hash(row.body)
        tree, _ = tree.grown([leaf])
        head.see(tree)
        if leaf != row.leaf and broken_at is None:
            broken_at = row.sequence
    burndowns.close(state)
    custody, empty = history.custody, state.sequence == 0
    facts = LedgerFacts(
        events=state.sequence,
        last_sequence=None if empty else state.sequence - 1,
        last_time=None if empty else rfc3339(state.time),
        root=tree.root.hex(),
        broken_at=broken_at,
        checkpoint=head.facts(state),
        alarm=custody.alarm,
        alarms=custody.alarms,
        resumed=tuple(reversed(custody.resumed)),
        recovered=custody.recovered,
        recoveries=tuple(reversed(custody.recoveries)),
        erasures=custody.erasures,
        accepted=tuple(reversed(custody.accepted)),
    )
    return _report(state, history, burndowns, facts)


def _report(state: State, history: History, burndowns: Burndowns, facts: LedgerFacts) -> Report:
    known = state.population is not None
    people = _population(state)
    limits = standings(state) if known else ()
    data = datasets(state, history, limits)
    terms = {"unit": people.unit, "privacy_unit": bare_unit(people.privacy_unit)} if people else {}
    return Report(
        format=FORMAT,
        ledger_name=state.ledger,
        verdict=verdict(state, facts, data, limits, history),
        population=people,
        datasets=data,
        limits=limits,
        lifetimes=lifetimes(state) if known else (),
        series=_series(burndowns),
        notable=notable(history),
        policy=policy(state, history),
        formulas=_formulas(state),
        notes=tuple(_filled(note, terms) for note in NOTES) if known else (),
        ledger=facts,
    )


def _filled(note: str, terms: dict[str, str]) -> str:
    for name, value in terms.items():
        note = note.replace("{" + name + "}", value)
    return note


def _population(state: State) -> PopulationFacts | None:
    people = state.population
    if people is None:
        return None
    return PopulationFacts(
        name=people.name,
        privacy_unit=people.privacy_unit,
        unit=unit_of(people),
        neighbouring=people.relation.value,
        neighbouring_in_words=relation_in_words(people)[1],
        membership=people.membership.value,
        membership_in_words=membership_in_words(people),
        dimensions={name: len(values) for name, values in people.dimensions},
        cells=people.cells,
    )


def _series(burndowns: Burndowns) -> tuple[SeriesFacts, ...]:
    return tuple(
        SeriesFacts(rule, dataset, series.every, tuple(map(_point, series.points)))
        for (rule, dataset), series in sorted(burndowns.series.items())
    )


def _point(point: Point) -> PointFacts:
    return PointFacts(
        point.sequence, rfc3339(point.time), point.limit, point.spent, point.held, point.epoch
    )


def _formulas(state: State) -> tuple[FormulaFacts, ...]:
    if state.adopted is None:
        return ()
    gates = {rule.filter.name: rule.filter for rule in state.adopted.policy.limits}
    if set(gates) != {BASIC.name}:  # the ladder shows them all
        gates = dict(FILTERS)
    return tuple(
        FormulaFacts(name, *formula(name, type(gate).__doc__)) for name, gate in gates.items()
    )
