"""Requests, prepared for the rules: mechanisms priced, the subject group compiled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from msgspec.structs import replace
from orjson import Fragment

from accountant.budget.accounts.classes import MOST as MOST_CLASSES
from accountant.budget.bill import bill_of, charge_written
from accountant.budget.commands import (
    AskGrant,
    Command,
    OpenSparseVector,
    RecordInvocations,
    Sealed,
)
from accountant.budget.commands.plain import Listed, Term
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.population.population import Population
from accountant.budget.population.selection import EVERYONE, Selection, Subjects, select
from accountant.budget.reach import Reach
from accountant.budget.state import State
from accountant.ledger.events import to_keep, written
from accountant.privacy.curves import Orders
from accountant.privacy.losses import UNBOUNDED
from accountant.privacy.mechanisms import (
    BaseMechanism,
    Mechanism,
    Priced,
    Relation,
    Verdict,
    price,
)
from accountant.privacy.mechanisms.compound import Compound
from accountant.privacy.mechanisms.further_units import Units
from accountant.privacy.units import FIXED, charge_of

Judged = AskGrant | OpenSparseVector | RecordInvocations
"""The commands that rules judge."""
# A union that is written where it is asked for is made anew each time.
_ASKING: Final = (AskGrant, OpenSparseVector)
_LISTING: Final = (AskGrant, RecordInvocations)
_KEEPING: Final = (Term, Listed)
_MOVED: Final = frozenset({Relation.ADD_OR_REMOVE_ONE})
_EMPTIED: Final = _MOVED | {Relation.ZERO_OUT}


class Terms(NamedTuple):
    """The terms of a price beside the mechanism. ``engine`` is the version of the bounds, ``units``
    are the further ones of the population.
    """

    relation: Relation
    orders: Orders
    engine: int
    units: Units = ()


class Request:
    """A prepared request: the client, the datasets, the cells and the cost."""

    def __init__(
        self,
        by: str,
        command: Judged,
        selection: Selection,
        costs: Costs,
        unplaced: tuple[str, ...],
        now: int,
        on: Reach,
    ) -> None:
        self.by, self.on, self.now = by, on, now
        self.asks = isinstance(command, _ASKING)
        """It asks for a grant, and has not run."""
        self.arrives = 1
        """Requests for its cells that arrive with it, itself counted: 0 for one that has waited and
        has unlocked already what it unlocks."""
        self.datasets = on.charged
        self.purpose: str | Sealed | None = command.purpose
        self.justification: str | Sealed | None = command.justification
        self.allotment = command.allotment
        self.selection = selection
        self.costs, self.total = costs, costs.total
        self.mechanisms, self.priced = costs.mechanisms, costs.priced
        """What is asked for, or ran, and its prices."""
        self.unplaced = unplaced
        """Kinds that may not charge a part of this population (see ``unplaced``)."""
        self.sound = costs.sound and not unplaced
        """Nothing is wrong with the stated mechanisms or the group themselves."""

    def at(self, now: int) -> Request:
        """Return the same request at another stamp."""
        other = copy(self)
        other.now = now
        return other

    def among(self, arrives: int) -> Request:
        """Return the same request with so many that arrive, itself counted."""
        if arrives == self.arrives:  # as for most
            return self
        other = copy(self)
        other.arrives = arrives
        return other


class Costs:
    """Mechanisms with their prices on some terms. Immutable: many requests may share one."""

    def __init__(
        self, mechanisms: Iterable[Mechanism], priced: Iterable[Priced], units: Units
    ) -> None:
        self.mechanisms, self.priced, self.units = tuple(mechanisms), tuple(priced), units
        self.bill = bill_of(self.priced, units)
        self.total = self.bill.total
        self.written = charge_written(self.total)
        """The total as events hold it."""
        self.kinds = kinds_of(self.mechanisms)
        """All kinds, also those that others are made of."""
        self.sound = all(map(_is_sound, self.priced))

    @cached_property
    def places(self) -> tuple[tuple[str, ...], ...]:
        """Where each kind stands (``places_in``)."""
        return tuple(dict.fromkeys(p for each in self.mechanisms for p in places_in(each)))

    def per_written(self) -> dict[str, Any]:
        """Return the totals for further units, as fields of an event, if they differ."""
        if not self.bill.per:
            return {}
        return {name: Fragment(to_keep(written(v))) for name, v in self.bill.written().items()}

    @cached_property
    def each_written(self) -> bytes:
        """The charge of each mechanism, in order. Renyi orders stand in the total only: an event
        has 65,535 bytes, and two hundred mechanisms at several orders would fill it.
        """
        return to_keep(written([priced.charge.on(FIXED).to_json() for priced in self.priced]))

    @cached_property
    def unbounded(self) -> Costs:
        """The same at a loss without bound in every currency."""
        lost = charge_of(UNBOUNDED, 1, self.total.orders)
        return self.at(replace(p, charge=lost, per=()) for p in self.priced)

    def at(self, priced: Iterable[Priced]) -> Costs:
        """Return the same at other prices."""
        return Costs(self.mechanisms, priced, self.units)


def _is_sound(price: Priced) -> bool:
    """Return whether nothing is wrong with a mechanism itself."""
    sure = price.verdict is not Verdict.UNVERIFIABLE
    return sure and not price.objections and not price.loose


def kinds_of(mechanisms: Sequence[BaseMechanism]) -> frozenset[str]:
    """Return the kinds of ``mechanisms``, and of all that they are made of, at any depth."""
    if len(mechanisms) == 1 and not isinstance(mechanisms[0], Compound):  # as in most requests
        return _alone(mechanisms[0].kind)
    return frozenset(place[0] for each in mechanisms for place in places_in(each))


@lru_cache
def _alone(kind: str) -> frozenset[str]:
    return frozenset({kind})


def places_in(mechanism: BaseMechanism) -> Iterator[tuple[str, ...]]:
    """Yield the kind of ``mechanism`` and of all that it is made of, at any depth: each followed by
    the kinds that it is inside of, the nearest first.
    """
    yield (mechanism.kind,)
    for part in mechanism.parts() if isinstance(mechanism, Compound) else ():
        for place in places_in(part):
            yield (*place, mechanism.kind)


def prepare(
    state: State,
    by: str,
    command: Judged,
    now: int,
    *,
    everyone: bool = False,
    emptied: bool = False,
) -> Request:
    """Price and compile ``command`` at stamp ``now``; one that is charged to ``everyone``, whatever
    its group is; one whose group may be ``emptied`` (``unplaced``).

    Raises Invalid for an unknown dataset, group or allotment.
    """
    if command.allotment is not None:
        state.known_allotment(command.allotment)
    people, on = state.people(), state.reach(command.dataset)
    found = request_on(people, terms_of(state), by, command, now, on, emptied=emptied)
    if everyone:
        found.selection = EVERYONE
    return found


def waited(state: State, by: str, command: AskGrant, now: int) -> Request:
    """Return a request that has waited: what it unlocks is unlocked already. One that a version
    before 0.3 let wait may be ``emptied``; no other waits that would not be let in without.
    """
    return prepare(state, by, command, now, emptied=True).among(0)


def check_classes(state: State, request: Request) -> None:
    """Raise Conflict if a charge to the cells of ``request`` would part more classes of cells than
    a population of many cells may have.
    """
    if state.classes is not None and (count := state.beyond(request.selection)) is not None:
        raise Conflict(
            "too-many-classes",
            f"this population has {state.people().cells} cells, and its charges tell "
            f"{state.classes.count} classes of them apart; with this group there would be {count}, "
            f"the most is {MOST_CLASSES}: name groups that were named before, coarser ones, or "
            "everyone",
            classes=count,
            most=MOST_CLASSES,
        )


def request_on(
    people: Population,
    terms: Terms,
    by: str,
    command: Judged,
    now: int,
    on: Reach,
    *,
    emptied: bool = False,
) -> Request:
    """Price and compile ``command`` on stated terms. Raises Invalid for an unknown group."""
    selection = selected(people, command.subjects)
    mechanisms: Sequence[Mechanism] = (
        [command.mechanism] if isinstance(command, OpenSparseVector) else command.mechanisms
    )
    costs = costs_on(terms, mechanisms)
    misplaced = unplaced(people, selection, mechanisms, emptied=emptied)
    if misplaced:  # a person who may have moved in or out has lost without bound
        selection, costs = EVERYONE, costs.unbounded
    return Request(by, command, selection, costs, misplaced, now, on)


def work_out(state: State, commands: Iterable[Command]) -> None:
    """Price the mechanisms and compile the groups of ``commands`` that can remember it. To price
    all, then to compile all takes half the time (ADR 0022). Errors are left to ``prepare``.
    """
    people, terms = state.people(), terms_of(state)
    judged = [one for one in commands if isinstance(one, _LISTING)]
    for one in judged:
        if isinstance(one.mechanisms, Listed):
            costs_on(terms, one.mechanisms)
    for one in judged:
        if isinstance(one.subjects, _KEEPING):
            try:
                selected(people, one.subjects)
            except Invalid:
                continue


def selected(people: Population, subjects: Subjects | None) -> Selection:
    """Return the compiled ``subjects``, from their memo if they have one."""
    if not isinstance(subjects, _KEEPING):
        return select(people, subjects)
    if subjects.memo is None or subjects.memo[0] is not people:
        subjects.memo = people, select(people, subjects)
    found: Selection = subjects.memo[1]
    return found


_last: tuple[Any, Any, int, Terms | None] = None, None, 0, None
"""The population, the policy and the version whose terms were asked for last, and the terms."""


def terms_of(state: State) -> Terms:
    """Return the terms in force. Raises NotFound before the population is registered."""
    global _last  # noqa: PLW0603
    people, adopted, engine = state.people(), state.adopted, state.custody.engine
    of, under, by, found = _last
    if found is None or of is not people or under is not adopted or by != engine:
        found = Terms(people.relation, state.orders, engine, people.units)
        _last = people, adopted, engine, found
    return found


def costs_on(terms: Terms, mechanisms: Sequence[Mechanism]) -> Costs:
    """Return the costs of ``mechanisms``, from their memo if they have one."""
    if not isinstance(mechanisms, Listed):
        return _costs(mechanisms, terms)
    memo = mechanisms.memo
    if memo is None or (memo[0] is not terms and memo[0] != terms):
        memo = mechanisms.memo = terms, _costs(mechanisms, terms)
    found: Costs = memo[1]
    return found


def _costs(mechanisms: Sequence[Mechanism], terms: Terms) -> Costs:
    return Costs(mechanisms, price_all(mechanisms, *terms), terms.units)


def unplaced(
    people: Population,
    selection: Selection,
    mechanisms: Iterable[Mechanism],
    *,
    emptied: bool = False,
) -> tuple[str, ...]:
    """Return the kinds that may not charge ``selection``. Under replace-one with private membership
    a person may move between cells, so only mechanisms proved for a person who is there or not may
    charge a part of the population (population.py: why the largest cell is then still the bound).
    ``emptied``: those under zero_out may too, as versions before 0.3 let them.
    """
    if not people.exchanges or selection.everyone:
        return ()
    may = _EMPTIED if emptied else _MOVED
    return tuple(m.kind for m in mechanisms if m.neighbouring not in may)


def price_all(
    mechanisms: Sequence[Mechanism],
    relation: Relation,
    orders: Orders,
    engine: int,
    units: Units = (),
) -> tuple[Priced, ...]:
    """Return the price of each mechanism in a population with ``relation`` and further ``units``,
    also at Renyi ``orders``, by the bounds of version ``engine``.
    """
    return tuple(price(mechanism, relation, orders, engine, units) for mechanism in mechanisms)
