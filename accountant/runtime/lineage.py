"""Reads of registered data that other systems tell of, and whether they had a grant.

A read has one if the run names a grant on the data, if the run's id is the idempotency key of one,
or if whoever tells of it has one open on the data. What was found once stays found: a run whose
first event came while its grant was open has it, whatever comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from accountant.auth.keys import Key
from accountant.budget.errors import NotFound
from accountant.budget.facts import SECOND
from accountant.budget.grants import Grant, Settled
from accountant.budget.outcome import RECORDED
from accountant.budget.population.naming import check_spelling, normal_form
from accountant.budget.reach import reach_in
from accountant.budget.state import State
from accountant.runtime.service import Service
from accountant.store.ledgers import DataRead
from accountant.store.queries import Queries

MOST: Final = 10_000
"""Reads that are kept of a ledger."""
MINUTE: Final = 60 * SECOND
"""How far two clocks may be apart; and a later event of a run is noted if it is so much later."""
_NOTHING_RAN: Final = ("released", "cancelled", "declined", "timed out")
"""Endings of a grant under which nothing may have been read."""


class Run(NamedTuple):
    """A run that reads data: its id, the job in words, a stamp at which it ran, what it reads as
    (namespace, name), and the grants that it names.
    """

    id: str
    job: str
    at: int
    reads: tuple[tuple[str, str], ...]
    grants: tuple[str, ...] = ()


class Matched(NamedTuple):
    """A registered dataset that a run reads, and the grant that it has, "" if none was found."""

    population: str
    dataset: str
    granted: str


def note_reads(service: Service, key: Key, run: Run) -> list[Matched]:
    """Note what a run reads of the data that ``key`` reaches. Raise StoreError, and Invalid where
    a name is not read.
    """
    ledgers, found = service.ledgers, dict[tuple[str, str], None]()
    for namespace, name in run.reads:
        check_spelling(namespace, name)
        for use in ledgers.uses(normal_form(namespace, name).digest):
            if key.reaches(use.ledger):
                found[use.ledger, use.dataset] = None
    noted = []
    for ledger in dict.fromkeys(ledger for ledger, _ in found):
        datasets = [dataset for other, dataset in found if other == ledger]
        noted += _noted(service, key.name, run, ledger, datasets)
    return noted


def _noted(
    service: Service, by: str, run: Run, ledger: str, datasets: Sequence[str]
) -> list[Matched]:
    known = _known(service.ledgers, ledger, run)
    rows = []
    for dataset in datasets:
        before = known.get(dataset)
        granted = before.granted if before else ""
        granted = granted or _grant_of(service, by, run, ledger, dataset)
        told = DataRead(dataset, run.id, run.job, by, run.at, run.at, granted)
        rows.append(_merged(before, told))
    if new := [row for row in rows if _differs(known.get(row.dataset), row)]:
        with service.ledgers.writing(ledger) as writing:  # another event of the run may have come
            known = _known(writing, ledger, run)
            merged = [_merged(known.get(row.dataset), row) for row in new]
            writing.note_reads(ledger, merged, MOST)
            writing.commit()
    return [Matched(ledger, row.dataset, row.granted) for row in rows]


def _known(queries: Queries, ledger: str, run: Run) -> dict[str, DataRead]:
    return {one.dataset: one for one in queries.reads_of(ledger, run.id)}


def _merged(before: DataRead | None, row: DataRead) -> DataRead:
    """Return what is known of a read after another event of its run."""
    if before is None:
        return row
    first, last = min(before.first, row.first), max(before.last, row.last)
    return before._replace(first=first, last=last, granted=before.granted or row.granted)


def _differs(before: DataRead | None, row: DataRead) -> bool:
    if before is None or before.granted != row.granted:
        return True
    return row.last - before.last >= MINUTE or before.first - row.first >= MINUTE


def _grant_of(service: Service, by: str, run: Run, ledger: str, dataset: str) -> str:
    """Return the grant, or the recorded invocation, under which a run reads; "" without any."""
    state = service.state(ledger)
    if dataset not in state.datasets:
        return ""
    answered = state.idempotency.get(by, run.id)
    named = [*_named(run.grants, ledger), *([f"g{answered[1]}"] if answered else [])]
    for name in named:
        if _covers(service, state, name, dataset, run.at):
            return name
    for grant in service.open_grants(ledger, by, dataset, -1, 100)[0]:
        if grant.opened <= run.at + MINUTE:
            return grant.id
    return ""


def _named(grants: Iterable[str], ledger: str) -> list[str]:
    """Return the grants that are of a ledger: "g17", or "clinic/g17"."""
    parts = (grant.rpartition("/") for grant in grants)
    return [name for place, _, name in parts if place in ("", ledger)]


def _covers(service: Service, state: State, name: str, dataset: str, at: int) -> bool:
    """Return whether a grant was there at a stamp, is charged to a dataset, and may have run; or
    an event that recorded such a run.
    """
    try:
        grant = state.grant(name)
    except NotFound:
        return _recorded(service, state, name, dataset)
    if isinstance(grant, Settled):
        if grant.status == "admitted":  # it had waited, and is a grant of another name
            return _covers(service, state, f"g{grant.settled}", dataset, at)
        opened = service.event(state.ledger, grant.sequence).time
        return (
            dataset in grant.on.charged
            and grant.status not in _NOTHING_RAN
            and (opened <= at + MINUTE)
        )
    charged = isinstance(grant, Grant) and dataset in grant.on.charged
    return charged and grant.opened <= at + MINUTE


def _recorded(service: Service, state: State, name: str, dataset: str) -> bool:
    if not name[1:].isdecimal() or int(name[1:]) >= state.sequence:
        return False
    event = service.event(state.ledger, int(name[1:]))
    return event.type == RECORDED and dataset in reach_in(event.body).charged
