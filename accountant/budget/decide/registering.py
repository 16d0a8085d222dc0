"""Decide registrations of populations and datasets, and adoptions of policies.

Deciders return the body of the event, without the command; None if nothing has to change.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any, Final

from accountant.budget import commands as ask
from accountant.budget.accounts.epochs import Epoch, Start, next_epoch, same_scope, start_of
from accountant.budget.commands import Envelope, ExtendPopulation
from accountant.budget.errors import Conflict, Forbidden, Invalid
from accountant.budget.handlers import sources_of
from accountant.budget.policy import Policy
from accountant.budget.population.population import MAX_CELLS
from accountant.budget.rules.base import matches
from accountant.budget.rules.limit import LimitRule, sides
from accountant.budget.state import State, lifetime
from accountant.ledger.events import MAX_BYTES, Event, canonical, rfc3339
from accountant.privacy.filters import FILTERS, LineFilter
from accountant.privacy.units import SURE

Body = dict[str, Any]
PORTION: Final = 30_000
"""Bytes of the values that one event appends: it names them twice, in the command and beside."""


def register_population(
    state: State, asked: Envelope, command: ask.RegisterPopulation, now: int
) -> list[Event]:
    """Open the ledger, or append values to dimensions; several events if one is not enough."""
    dimensions = {name: tuple(values) for name, values in sorted(command.dimensions.items())}
    _check_cells(dimensions)
    there = state.population
    if there is None:
        event = state.next_event(asked, "population.registered.v1", now, {})
        return [event] if _size(event) <= MAX_BYTES else _in_parts(event, command)
    fixed = (there.privacy_unit, there.relation, there.membership)
    if fixed != (command.privacy_unit, command.neighbouring, command.membership):
        raise Conflict(
            "population-immutable",
            "privacy unit, neighbouring relation and membership are fixed for the population's "
            f"life (they are: {', '.join(fixed)}); register another population",
        )
    added = _added(dict(there.dimensions), dimensions)
    if not added:
        return []
    event = state.next_event(asked, "population.extended.v1", now, {"added": added})
    fits = _size(event) <= MAX_BYTES
    return [event] if fits else _appended(event, added, attested_new=command.attested_new)


def extend_population(state: State, asked: Envelope, command: ExtendPopulation, now: int) -> Body:
    """Append values to dimensions."""
    there = dict(state.people().dimensions)
    if not command.added or not command.added.keys() <= there.keys():
        raise Conflict("dimensions-append-only", "only values of dimensions can be appended")
    _check_cells({name: (*v, *command.added.get(name, ())) for name, v in there.items()})
    return {"added": dict(sorted(command.added.items()))}


def _size(event: Event) -> int:
    return len(canonical(event.to_json()))


def _in_parts(event: Event, command: ask.RegisterPopulation) -> list[Event]:
    """Return a registration of one value of each dimension, and events that append the others."""
    first = {name: values[:1] for name, values in command.dimensions.items()}
    begun = command.model_copy(update={"dimensions": first})
    rest = {name: values[1:] for name, values in sorted(command.dimensions.items()) if values[1:]}
    registered = replace(event, body={"command": begun.to_json()})
    return [registered, *_appended(replace(event, sequence=event.sequence + 1), rest)]


def _appended(
    event: Event, added: dict[str, list[str]], *, attested_new: bool = False
) -> list[Event]:
    """Return extensions from the sequence of ``event`` on, each small enough for one event."""
    portions: list[tuple[str, list[str]]] = []
    for name, values in added.items():
        size = PORTION
        for value in values:
            more = len(canonical(value)) + 1
            if size + more > PORTION:
                portions.append((name, []))
                size = 0
            portions[-1][1].append(value)
            size += more
    events: list[Event] = []
    for number, (name, part) in enumerate(portions, start=event.sequence):
        asked = ExtendPopulation(added={name: part}, attested_new=attested_new)
        body = {"command": asked.to_json(), "added": {name: part}}
        events.append(replace(event, type="population.extended.v1", sequence=number, body=body))
    return events


def _check_cells(dimensions: dict[str, tuple[str, ...]]) -> None:
    for name, values in dimensions.items():
        if len(set(values)) != len(values):
            raise Invalid("duplicate-value", f"dimension {name!r} lists a value twice")
    cells = prod(map(len, dimensions.values()))
    if cells > MAX_CELLS:
        raise Invalid(
            "too-many-cells",
            f"the dimensions make {cells} cells, the most is {MAX_CELLS}; use coarser values",
        )


def _added(
    old: dict[str, tuple[str, ...]], new: dict[str, tuple[str, ...]]
) -> dict[str, list[str]]:
    """Return the values that ``new`` appends. Raises Conflict if it does anything else."""
    if set(old) != set(new):
        raise Conflict(
            "dimensions-append-only",
            f"the dimensions are {', '.join(old) or 'none'}; others need another population",
        )
    for name, values in new.items():
        if values[: len(old[name])] != old[name]:
            raise Conflict(
                "dimensions-append-only",
                f"dimension {name!r} can only get further values at its end",
            )
    added = {name: list(values[len(old[name]) :]) for name, values in new.items()}
    return {name: values for name, values in added.items() if values}


def register_dataset(
    state: State, asked: Envelope, command: ask.RegisterDataset, now: int
) -> Body | None:
    """Register a dataset, or its new owner or parents."""
    there = state.datasets.get(command.id)
    if there is not None:
        if (there.namespace, there.name) != (command.namespace, command.name):
            raise Conflict(
                "dataset-immutable",
                f"dataset {command.id!r} is {there.namespace} {there.name}; "
                "other data need another id",
            )
        if (there.owner, there.parents) == (command.owner, tuple(command.parents)):
            return None
    for other in state.datasets.values():
        same = (other.namespace, other.name) == (command.namespace, command.name)
        if same and other.id != command.id:
            raise Conflict(
                "dataset-known",
                f"{command.namespace} {command.name} is registered as {other.id!r}: the same data "
                "under a second id would have a second budget; use that id",
            )
    return {}


def adopt_policy(state: State, asked: Envelope, command: ask.AdoptPolicy, now: int) -> Body | None:
    """Adopt a policy. Raises Forbidden if it loosens the one in force under one name only."""
    policy = Policy.stored(command.policy)
    if state.adopted and state.adopted.policy == policy:
        return None
    loosened = loosens(state, policy)
    if loosened and command.approved_by in (None, asked.by):
        raise Forbidden(
            "second-name-needed",
            "this policy loosens the one in force ("
            + "; ".join(loosened)
            + "), so a second person has to agree: send the key of another admin or officer in "
            "a header: Accountant-Approver: Bearer <key>",
            loosened=loosened,
        )
    epochs = {rule.id: _epoch(state, rule, now) for rule in policy.limits}
    body = {"epochs": epochs, "loosens": loosened}
    size = _size(state.next_event(asked, "policy.adopted.v1", now, body))
    if size > MAX_BYTES:
        raise Invalid(
            "event-too-large",
            f"the event that adopts this policy would have {size} bytes, the most is {MAX_BYTES}: "
            f"it has {len(policy.rules)} rules, {len(policy.limits)} of them limits; leave out "
            "rules, or shorten ids, patterns and lists",
        )
    return body


def _epoch(state: State, rule: LimitRule, now: int) -> Body:
    """Return the facts of the epoch of ``rule``, once adopted, that a verifier needs."""
    start = start_of(state.adopted, rule)
    epoch = next_epoch(state.adopted, rule, state.last_epoch.get(rule.id, 0) + 1, now)
    stated: Body = {
        "number": epoch.number,
        "start": start.name.lower(),
        "capacity": {str(currency): str(most) for currency, most in sides(epoch.capacity)},
        "keeps": [str(currency) for currency in epoch.axis],
    }
    if start is Start.KEPT:
        stated["since"] = rfc3339(epoch.since)
    if orders := _orders(epoch, brings=bool(sources_of(state, rule, start))):
        stated["orders"] = orders
    if epoch.limit.chosen is not None:
        stated["chosen"] = list(map(str, epoch.limit.chosen))
    if not epoch.whole:
        stated["whole"] = False
    return stated


def _orders(epoch: Epoch, *, brings: bool) -> dict[str, str]:
    """Return the orders at which a verifier draws lines, as exact fractions: the gate's own, and if
    the epoch ``brings`` sums of epsilons, those of all gates that count them. The name of a Renyi
    divergence states its order.
    """
    gates = FILTERS.values() if brings and epoch.axis != SURE else [epoch.gate]
    lines = [
        (gate.currency(epoch.limit), gate.line(epoch.limit))
        for gate in gates
        if isinstance(gate, LineFilter)
        and (gate is epoch.gate or gate.per_epsilon(epoch.limit) is not None)
    ]
    return {str(c): str(line.order) for c, line in lines if c.order is None}


def loosens(state: State, policy: Policy) -> list[str]:
    """Return how ``policy`` blocks less than the one in force, or forgets spending."""
    reasons = [
        f"{rule.id} forgets what was used" for rule in policy.limits if _forgets(state, rule)
    ]
    if state.adopted and not policy.publication.as_strict(state.adopted.policy.publication):
        reasons.append("fewer or other witnesses have to agree")
    after = {rule.id: rule for rule in policy.rules}
    for old in state.adopted.policy.rules if state.adopted else ():
        new = after.get(old.id)
        if isinstance(old, LimitRule) and isinstance(new, LimitRule):
            if old.action == "block" and not _as_strict(old, new):
                reasons.append(f"{old.id} is raised or changed")
        elif old.action == "block" and new != old:
            reasons.append(f"{old.id} is {'changed' if new else 'removed'}")
    return reasons


def _forgets(state: State, rule: LimitRule) -> bool:
    if rule.span and not (state.adopted and state.adopted.rule(rule.id)):
        return False  # a window that begins has nothing to forget
    used = (d for d in state.datasets if lifetime(d) in state.accounts)
    forgets = start_of(state.adopted, rule) is Start.EMPTY
    return forgets and any(matches(rule.datasets, dataset) for dataset in used)


def _as_strict(old: LimitRule, new: LimitRule) -> bool:
    before, now = old.promise, new.promise
    return (
        new.action == "block"
        and same_scope(old, new)
        and old.gate == new.gate
        and now.epsilon <= before.epsilon
        and now.own_delta <= before.own_delta
        and now.filter_delta <= before.filter_delta
    )
