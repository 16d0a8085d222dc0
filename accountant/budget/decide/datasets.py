"""Decide registrations of datasets: the same data are the same budget.

Within a ledger a second id for the same data is refused. Whether other ledgers have the data is not
known to a decider, which sees its own: whoever records the event asks ``check_elsewhere`` as well,
and ``check_spellings`` and ``check_parents``, which are no part of deciding: which texts mean which
data never changes.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from accountant.budget.ancestors import Charged, newly_charged, not_counted
from accountant.budget.commands import Envelope, RegisterDataset
from accountant.budget.decide.adopting import orders_told
from accountant.budget.decide.proposing import second
from accountant.budget.errors import Conflict
from accountant.budget.handlers import coming_in, labels_after
from accountant.budget.outcome import CHARGING, REGISTERED, Body
from accountant.budget.population.naming import Data, check_spelling, joined, meant_by, normal_form
from accountant.budget.population.population import Dataset
from accountant.budget.reach import origins
from accountant.budget.rules.base import HOLDING
from accountant.budget.state import State, lifetime
from accountant.ledger.events import Event


def register_dataset(
    state: State, asked: Envelope, command: RegisterDataset, now: int
) -> list[Event]:
    """Register a dataset, or its new owner, labels or parents; no event if nothing changes."""
    there = state.datasets.get(command.id)
    if there is not None:
        if (there.namespace, there.name) != (command.namespace, command.name):
            raise Conflict(
                "dataset-immutable",
                f"dataset {command.id!r} is {there.namespace} {there.name}; "
                "other data need another id",
            )
        if _unchanged(there, command):
            return []
    _once(state, command)
    made_from, made_into = _sources(state, command), _derived(state, command)
    before = origins(state.datasets, there.sources if there else ())
    after = origins(state.datasets, (name for name in made_from if name in state.datasets))
    if circle := (after & {command.id, *made_into}) | ({command.id} & set(made_from)):
        raise Conflict(
            "dataset-circle",
            f"dataset {command.id!r} would be made from itself, by way of "
            f"{', '.join(sorted(circle))}: leave out the parent that is not one",
        )
    charged = newly_charged(state, command.id, made_from, made_into) if asked.charges else {}
    _confirm_closed(state, command, charged)  # else it would be proposed, and never confirmed
    left = _leaves(state, command)
    effect = {"also": command.also, "lost": sorted(before - after), "leaves": left}
    effect["unnamed"] = _unnamed(state, command) if asked.forgets else []
    if effect := {name: found for name, found in effect.items() if found}:
        second(asked, effect)
    found: Body = {"made_from": made_from, "made_into": made_into, "leaves": left}
    moved = _moved(state, command) if asked.charges else []
    found |= {"charged_with": charged, "orders": _orders(state, charged), "moved": moved}
    body = {name: told for name, told in found.items() if told}
    return [state.next_event(asked, CHARGING if charged or moved else REGISTERED, now, body)]


def _orders(state: State, charged: Charged) -> Body:
    """Return the orders of all gates of the limits that begin to count sums of epsilons, which a
    verifier turns into their currencies.
    """
    if (adopted := state.adopted) is None:
        return {}
    pairs = (pair for one, others in charged.items() for pair in not_counted(state, one, others))
    told = {rule.id: orders_told(adopted.epochs[rule.id], brings=True) for rule, _ in pairs}
    return {name: orders for name, orders in sorted(told.items()) if orders}


def check_elsewhere(state: State, command: RegisterDataset, others: Sequence[str]) -> None:
    """Raise Conflict unless ``command`` states exactly the ``others``, all datasets of other
    populations that are the same data. A dataset that is registered need not state it again.
    """
    if command.also == sorted(others) or (command.id in state.datasets and not command.also):
        return
    data = f"{command.namespace} {command.name}"
    if others:
        text = (
            f"{data} is registered in other populations already, as {', '.join(sorted(others))}: "
            "a second registration would have a second budget for the same data. If that is "
            f"meant, list exactly these in `also`, and another admin or officer has to confirm it"
        )
    else:
        text = f"no other population has {data}: leave `also` out"
    raise Conflict("dataset-known-elsewhere", text, also=sorted(others))


def check_spellings(command: RegisterDataset) -> None:
    """Raise Invalid if a name is spelled so that to read it would hold up others."""
    check_spelling(command.namespace, command.name)
    for parent in command.parents:
        check_spelling(parent, "")


def check_parents(state: State, command: RegisterDataset) -> None:
    """Raise Conflict if a parent is written as namespace and name of a dataset are, and yet means
    other data: a text does not say where its namespace ends, after which quotes, white space or
    slashes may be only spelling. What was made from it would not be charged to it.
    """
    others = [one for one in state.datasets.values() if one.id != command.id]
    itself = Place(command.namespace, normal_form(command.namespace, command.name))
    every = {Place(one.namespace, one.data): one.id for one in others} | {itself: command.id}
    ids, data = {command.id, *state.datasets}, {joined(place.data) for place in every}

    def misread(parents: Iterable[str], among: Mapping[Place, str]) -> Iterator[tuple[str, str]]:
        """Yield parents that mean no dataset, though they are written like one of these."""
        namespaces = {place.namespace for place in among}
        for parent in parents:
            for place in _written_as(parent, namespaces):
                if place in among and parent not in ids and meant_by(parent) not in data:
                    yield parent, among[place]

    for parent, name in misread(command.parents, every):
        raise Conflict(
            "parent-unclear",
            f"parent {parent!r} would be read as other data than dataset {name!r}, which is "
            f"written like that: name it by its id, {name!r}",
        )
    start = f"{command.namespace}/"
    for child in others if command.id not in state.datasets else ():
        inside = [one for one in child.parents if one.startswith(start)]
        unplain = [one for one in inside if not _PLAIN.fullmatch(one, len(start))]
        for parent, _ in misread(unplain, {itself: command.id}):
            raise Conflict(
                "parent-unclear",
                f"{command.namespace} {command.name} is written like parent {parent!r} of dataset "
                f"{child.id!r}, which would be read as other data: register {child.id!r} with "
                f"{command.id!r} among its parents first",
            )


_PLAIN: Final = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.I | re.A)
"""Names that mean the same behind a namespace as in one text with it, as most do."""


class Place(NamedTuple):
    """A dataset, by what a parent may be written like."""

    namespace: str
    data: Data


def _written_as(parent: str, namespaces: Collection[str]) -> Iterator[Place]:
    """Yield what ``parent`` is if one of the namespaces ends at one of its slashes."""
    at = parent.find("/")
    while at >= 0:
        namespace, name = parent[:at], parent[at + 1 :]
        if namespace in namespaces and not _PLAIN.fullmatch(name):
            yield Place(namespace, normal_form(namespace, name))
        at = parent.find("/", at + 1)


def _sources(state: State, command: RegisterDataset) -> list[str]:
    """Return the registered datasets that the parents of a dataset are."""
    data = {joined(one.data): one.id for one in state.datasets.values()}
    data[joined(normal_form(command.namespace, command.name))] = command.id
    ids = {*state.datasets, command.id}
    found = (p if p in ids else data.get(meant_by(p)) for p in command.parents)
    return sorted({name for name in found if name is not None})


def _derived(state: State, command: RegisterDataset) -> list[str]:
    """Return the datasets that name one as a parent which is registered only now."""
    if command.id in state.datasets:
        return []
    data = joined(normal_form(command.namespace, command.name))

    def names_it(parent: str) -> bool:
        return parent == command.id or (parent not in state.datasets and meant_by(parent) == data)

    either = {command.id, data}
    likely = (one for one in state.datasets.values() if not either.isdisjoint(one.naming))
    return sorted(one.id for one in likely if any(map(names_it, one.parents)))


def _unnamed(state: State, command: RegisterDataset) -> list[str]:
    """Return the parents of a dataset that was used, not registered so far, that are left out: when
    they are registered they would not be charged with what was used.
    """
    there = state.datasets.get(command.id)
    if there is None or lifetime(there.id) not in state.accounts:
        return []
    data = {joined(one.data) for one in state.datasets.values()}
    still = {*command.parents, *map(meant_by, command.parents)}
    return [
        parent
        for parent in there.parents
        if parent not in state.datasets and meant_by(parent) not in data
        if parent not in still and meant_by(parent) not in still
    ]


def _leaves(state: State, command: RegisterDataset) -> list[str]:
    """Return the rules that block or ask a person, and whose scope the dataset would go out of."""
    there = state.datasets.get(command.id)
    if there is None or state.adopted is None:
        return []
    after = _after(there, command)
    return [
        rule.id
        for rule, scope in state.adopted.policy.scopes
        if rule.action in HOLDING and scope.holds(there) and not scope.holds(after)
    ]


def _moved(state: State, command: RegisterDataset) -> list[str]:
    """Return the limits across datasets that the dataset comes into the scope of, which count over
    a span, and outside of which open grants hold something. What they run counts from then on: as
    spent now it would pass too early. So they hold it in the total.
    """
    there, adopted = state.datasets.get(command.id), state.adopted
    if there is None or adopted is None:
        return []
    after = _after(there, command)
    outside = coming_in(state, adopted, there, after)
    spans = {rule.id for rule in adopted.policy.limits if rule.span is not None}
    if not any(key.rule in spans for key in outside):
        return []
    held = {key for grant in state.open.values() for key, _ in grant.bookings}
    return sorted({key.rule for key in outside if key.rule in spans and key in held})


def _after(there: Dataset | None, command: RegisterDataset) -> Dataset:
    """Return what decides the scopes of rules on the dataset once it is registered so."""
    labels = labels_after(there, command.labels)
    return Dataset(command.id, command.namespace, command.name, command.owner, labels=labels)


def _confirm_closed(state: State, command: RegisterDataset, charged: Charged) -> None:
    """Raise Conflict unless ``closes`` names each limit that would close for good: it is charged,
    as a plain sum of epsilons, with what has no finite one (adopting.py).
    """
    closed = dict[str, str]()
    for ancestor, others in charged.items():
        there = state.datasets.get(ancestor)
        after = _after(there, command) if ancestor == command.id or there is None else there
        for rule, source in not_counted(state, ancestor, others):
            epsilon = state.accounts[source].at(state.time).used.most_infinite()[0]
            if epsilon and not rule.span and rule.scope.holds(after):
                closed[rule.id] = ancestor
    if missing := {rule: name for rule, name in closed.items() if rule not in command.closes}:
        each = "; ".join(f"limit {rule} on dataset {name}" for rule, name in missing.items())
        raise Conflict(
            "dataset-closes-limit",
            f"nothing would ever fit again under {each}: the registration charges what was used "
            "of data made from it, there as a plain sum of epsilons, as the limit has not counted "
            "these data; and some of their charges have no finite epsilon. Let the limit name "
            f"these data too, or confirm that it closes: closes {', '.join(missing)}",
            closes=[{"rule": rule, "dataset": name} for rule, name in missing.items()],
        )


def _unchanged(there: Dataset, command: RegisterDataset) -> bool:
    same = (there.owner, there.parents) == (command.owner, tuple(command.parents))
    same &= there.labels == labels_after(there, command.labels)
    return same and tuple(command.also) in ((), there.also)


def _once(state: State, command: RegisterDataset) -> None:
    """Raise Conflict if the data have another id."""
    data = normal_form(command.namespace, command.name)
    for other in state.datasets.values():
        if other.data == data and other.id != command.id:
            raise Conflict(
                "dataset-known",
                f"{command.namespace} {command.name} is registered as {other.id!r} "
                f"({other.namespace} {other.name}): the same data under a second id would have a "
                "second budget; use that id",
                dataset=other.id,
            )
