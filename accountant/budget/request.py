"""Requests as they are judged: mechanisms priced, the subject group compiled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from accountant.budget.commands import AskGrant, OpenSparseVector, RecordInvocations, Sealed
from accountant.budget.population import Membership, Population
from accountant.budget.selection import EVERYONE, Selection, select
from accountant.budget.state import State
from accountant.privacy.losses import UNBOUNDED
from accountant.privacy.mechanisms import Mechanism, Priced, Relation, price
from accountant.privacy.units import Charge, charge_of, total


@dataclass(frozen=True, slots=True)
class Request:
    """What is judged, priced: by whom, on which cells of which dataset, at what cost."""

    by: str
    dataset: str
    selection: Selection
    mechanisms: tuple[Mechanism, ...]
    priced: tuple[Priced, ...]
    purpose: str | Sealed | None
    justification: str | Sealed | None
    total: Charge
    """The sum of all mechanisms' charges."""
    now: int
    """The stamp that the answer will have."""
    unplaced: tuple[str, ...] = ()
    """Kinds that may not charge a part of this population (see ``unplaced``)."""


def prepare(
    state: State, by: str, command: AskGrant | OpenSparseVector | RecordInvocations, now: int
) -> Request:
    """Prices and compiles what is asked at stamp ``now``. Raises Invalid for unknown datasets or
    groups.
    """
    people = state.people()
    state.dataset(command.dataset)
    mechanisms: Sequence[Mechanism] = (
        [command.mechanism] if isinstance(command, OpenSparseVector) else command.mechanisms
    )
    selection = select(people, command.subjects)
    priced = price_all(mechanisms, people.relation, state.orders, state.custody.engine)
    misplaced = unplaced(people, selection, mechanisms)
    if misplaced:  # whoever may have moved in or out has lost without bound
        selection = EVERYONE
        lost = charge_of(UNBOUNDED, 1, state.orders)
        priced = tuple(replace(p, charge=lost) for p in priced)
    return Request(
        by=by,
        dataset=command.dataset,
        selection=selection,
        mechanisms=tuple(mechanisms),
        priced=priced,
        purpose=command.purpose,
        justification=command.justification,
        total=total(p.charge for p in priced),
        now=now,
        unplaced=misplaced,
    )


def unplaced(
    people: Population, selection: Selection, mechanisms: Iterable[Mechanism]
) -> tuple[str, ...]:
    """The kinds that may not charge ``selection``. Under replace-one with private membership a
    person may move between cells, so only mechanisms proved under add-or-remove may charge a part
    of the population (population.py says why the largest cell is then still the bound).
    """
    private = people.membership is Membership.PRIVATE and people.relation is Relation.REPLACE_ONE
    if not private or selection.everyone:
        return ()
    return tuple(m.kind for m in mechanisms if m.neighbouring is not Relation.ADD_OR_REMOVE_ONE)


def price_all(
    mechanisms: Sequence[Mechanism], relation: Relation, orders: tuple[int, ...], engine: int
) -> tuple[Priced, ...]:
    """The price of each mechanism in a population with ``relation``, also at Renyi ``orders``, by
    the bounds of version ``engine``.
    """
    return tuple(price(mechanism, relation, orders, engine) for mechanism in mechanisms)
