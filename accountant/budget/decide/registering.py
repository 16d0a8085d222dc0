"""Decide registrations of populations.

Deciders return the body of the event, without the command; None if nothing has to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Any, Final

from accountant.budget import commands as ask
from accountant.budget.commands import Envelope, ExtendPopulation
from accountant.budget.decide.proposing import second
from accountant.budget.errors import Conflict, Invalid
from accountant.budget.owed import owed
from accountant.budget.population.population import MAX_CELLS, MAX_VALUES, Population
from accountant.budget.population.times import beginning, unexplained
from accountant.budget.state import State
from accountant.ledger.events import MAX_BYTES, Event, canonical
from accountant.privacy.mechanisms import Relation
from accountant.privacy.mechanisms.further_units import Unit

Body = dict[str, Any]
PORTION: Final = 30_000
"""Bytes of the values that one event appends: it names them twice, in the command and beside."""
_CONFIRMS: Final = 2_000
"""Bytes that are left for a confirmation in an event that a second person confirms."""


def register_population(
    state: State, asked: Envelope, command: ask.RegisterPopulation, now: int
) -> list[Event]:
    """Open the ledger, or append values to dimensions; several events if one is not enough."""
    dimensions = {name: tuple(values) for name, values in sorted(command.dimensions.items())}
    _check_cells(dimensions)
    there = state.population
    _check_units(command, there)
    if there is None:
        reasons = _reasons({}, command.fixed, dimensions)
        _check_times(command.privacy_unit, dimensions, reasons)
        event = state.next_event(asked, "population.registered.v1", now, {})
        return [event] if size_of(event) <= MAX_BYTES else _in_parts(event, command)
    fixed = (there.privacy_unit, there.relation, there.membership)
    if fixed != (command.privacy_unit, command.neighbouring, command.membership):
        raise Conflict(
            "population-immutable",
            "privacy unit, neighbouring relation and membership are fixed for the population's "
            f"life (they are: {', '.join(fixed)}); register another population",
        )
    added = _added(dict(there.dimensions), dimensions)
    reasons = _reasons(dict(there.fixed), command.fixed, dimensions)
    _check_times(there.privacy_unit, {name: dimensions[name] for name in added}, reasons)
    _check_times(there.privacy_unit, added, reasons)
    known = {unit.name for unit in there.units}
    new = [unit for unit in ask.units_of(command.units) if unit.name not in known]
    _check_late(state, new, there.relation)
    if not added and not new and reasons == dict(there.fixed):
        return []
    said = {"fixed": command.fixed, "units": command.units}
    _check_attested(state, asked, command, added, said, now)
    event = state.next_event(asked, "population.extended.v1", now, {"added": added})
    if size_of(event) <= MAX_BYTES:
        return [event]
    return _appended(event, added, said, attested_new=command.attested_new)


def _check_units(command: ask.RegisterPopulation, there: Population | None) -> None:
    """Check that further units are about the privacy unit, and are those that there are, or more.
    Raises Invalid or Conflict.
    """
    for name, one in command.units.items():
        if (of := one.part_of or one.group_of) != command.privacy_unit or name == of:
            raise Invalid(
                "unknown-unit",
                f"unit {name!r} is of {of!r}: a further unit is a part, or a group, of the privacy "
                f"unit, which is {command.privacy_unit!r}, and has another name",
            )
    stated = {unit.name: unit for unit in ask.units_of(command.units)}
    for unit in there.units if there else ():
        if stated.get(unit.name, unit) != unit:
            raise Conflict(
                "population-immutable",
                f"unit {unit.name!r} was stated as {unit.described}, and charges rest on that; "
                "state another unit, under another name",
            )


def _check_late(state: State, new: Iterable[Unit], relation: Relation) -> None:
    """Check that what was charged before bounds what it is for units that are stated only now.
    Raises Conflict.
    """
    lifetimes = [account for key, account in state.accounts.items() if not key.rule]
    with_delta = any(account.used.most()[1] for account in lifetimes)
    for unit in new:
        if state.open:
            raise Conflict(
                "unit-too-late",
                f"{unit.name}: {len(state.open)} grants are open, and what they will have cost "
                "this unit is not known; state it once they have ended",
            )
        if with_delta and (steps := unit.steps(relation)) > 1:
            raise Conflict(
                "unit-too-late",
                f"{unit.name}: something was charged with a delta before, and one of this unit is "
                f"{steps} steps away from its neighbours: over these a delta grows with e to the "
                "power of epsilon, which no sum bounds here; state such a unit before the first "
                "charge with a delta, or register another population",
            )


def append_values(
    state: State, asked: Envelope, command: ask.AppendValues, now: int
) -> list[Event]:
    """Append those of the values that are not there yet; several events if one is not enough.
    Raises Conflict if others stand in their place, or values before them are missing.
    """
    people, name = state.people(), command.dimension
    people.axis(name)
    there = dict(people.dimensions)
    known, values = there[name], tuple(command.values)
    if command.first > len(known):
        raise Conflict(
            "dimensions-append-only",
            f"dimension {name!r} has {len(known)} values, so that the next one stands at place "
            f"{len(known)}, not at {command.first}: send those before it first",
            values=len(known),
        )
    before = known[command.first : command.first + len(values)]
    if values[: len(before)] != before:
        at, one = next((i, v) for i, v in enumerate(before) if v != values[i])
        raise Conflict(
            "dimensions-append-only",
            f"dimension {name!r} has {one!r} at place {command.first + at}, not {values[at]!r}: "
            "it can only get further values at its end",
            values=len(known),
        )
    added = {name: list(values[len(before) :])}
    after = there | {name: known + tuple(added[name])}
    _check_cells(after)
    reasons = _reasons(dict(people.fixed), command.fixed, there)
    if not added[name]:
        return []
    for dimensions in ({name: after[name]}, added):
        _check_times(people.privacy_unit, dimensions, reasons)
    said = {"fixed": command.fixed}
    _check_attested(state, asked, command, added, said, now)
    event = state.next_event(asked, "population.extended.v1", now, {})
    return _appended(event, added, said, attested_new=command.attested_new)


def extend_population(state: State, asked: Envelope, command: ExtendPopulation, now: int) -> Body:
    """Append values to dimensions. If their members owe nothing of what was charged, and something
    was, two people do that by one event: raises SecondNeeded, or Invalid if it is too large.
    """
    there = dict(state.people().dimensions)
    if not command.added or not command.added.keys() <= there.keys():
        raise Conflict("dimensions-append-only", "only values of dimensions can be appended")
    after = {name: (*v, *command.added.get(name, ())) for name, v in there.items()}
    _check_cells(after)
    people = state.people()
    reasons = _reasons(dict(people.fixed), command.fixed, there)
    _check_times(people.privacy_unit, {name: after[name] for name in command.added}, reasons)
    body: Body = {"added": dict(sorted(command.added.items()))}
    if command.attested_new and (charged := owed(state)):
        size = size_of(state.next_event(asked, "population.extended.v1", now, dict(body)))
        if size > MAX_BYTES - _CONFIRMS:
            raise Invalid(
                "event-too-large",
                f"a second person confirms values that owe nothing as one, and these take {size} "
                f"bytes, more than {MAX_BYTES - _CONFIRMS}: append fewer at a time",
            )
        second(asked, {"attested": _told(body["added"]), "owed": charged})
    return body


def _told(added: Mapping[str, Sequence[str]]) -> Body:
    """Return new values as a second person is told them."""
    return {
        name: {"count": len(values), "first": values[0], "last": values[-1]}
        for name, values in added.items()
    }


def _check_attested(
    state: State,
    asked: Envelope,
    command: ask.RegisterPopulation | ask.AppendValues,
    added: dict[str, list[str]],
    said: Mapping[str, Any],
    now: int,
) -> None:
    """Raise SecondNeeded for values that owe nothing of what was charged: the extension alone is
    proposed, without the values that are there already.
    """
    if command.attested_new and added and owed(state):
        extension = ExtendPopulation(
            added=added, attested_new=True, proposal_days=command.proposal_days, **said
        )
        extend_population(state, Envelope(asked.by, extension, asked.key), extension, now)


def size_of(event: Event) -> int:
    """Return the bytes of an event."""
    return len(canonical(event.to_json()))


def _in_parts(event: Event, command: ask.RegisterPopulation) -> list[Event]:
    """Return a registration of the first value of each dimension, or of as many as it takes to
    tell that they are not times, and events that append the others.
    """
    first = {
        name: values[: len(beginning(values)) + 1] for name, values in command.dimensions.items()
    }
    begun = command.model_copy(update={"dimensions": first})
    rest = {
        name: values[len(first[name]) :]
        for name, values in sorted(command.dimensions.items())
        if values[len(first[name]) :]
    }
    registered = replace(event, body={"command": begun.to_json()})
    return [registered, *_appended(replace(event, sequence=event.sequence + 1), rest)]


def _appended(
    event: Event,
    added: dict[str, list[str]],
    first: Mapping[str, Any] = MappingProxyType({}),
    *,
    attested_new: bool = False,
) -> list[Event]:
    """Return extensions from the sequence of ``event`` on, each small enough for one event. The
    ``first`` has reasons and units.
    """
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
        said = first if number == event.sequence else {}
        asked = ExtendPopulation(added={name: part}, attested_new=attested_new, **said)
        body = {"command": asked.to_json(), "added": {name: part}}
        events.append(replace(event, type="population.extended.v1", sequence=number, body=body))
    return events


def _check_times(
    privacy_unit: str, dimensions: Mapping[str, Sequence[str]], fixed: Mapping[str, str]
) -> None:
    """Check that ``fixed`` says of each dimension that looks like times of events why it never
    changes. Raises Invalid.
    """
    if found := unexplained(privacy_unit, dimensions, fixed):
        name, why = next(iter(found.items()))
        raise Invalid(
            "times-of-events",
            f"dimension {name!r} looks like times of events: {why}. A {privacy_unit} with events "
            "at several times would lie in several cells, whose charges do not add up. If it never "
            f'changes, as the week of joining, say why in fixed: {{"{name}": "…"}}; else leave it '
            f"out, or protect a unit that names the period, such as a person-week, and the "
            f"{privacy_unit} as a group of it (units)",
            dimensions=found,
        )


def _reasons(
    before: Mapping[str, str], fixed: Mapping[str, str], known: Iterable[str]
) -> dict[str, str]:
    """Return the reasons stated ``before`` and those of ``fixed``. Raises Invalid for an unknown
    dimension, Conflict for another reason than before.
    """
    for name, reason in fixed.items():
        if name not in known:
            raise Invalid("unknown-dimension", f"fixed names {name!r}, which is no dimension")
        if before.get(name, reason) != reason:
            raise Conflict(
                "population-immutable",
                f"why dimension {name!r} never changes was stated before: {before[name]}",
            )
    return {**before, **fixed}


def _check_cells(dimensions: dict[str, tuple[str, ...]]) -> None:
    for name, values in dimensions.items():
        if len(set(values)) != len(values):
            raise Invalid("duplicate-value", f"dimension {name!r} lists a value twice")
        if len(values) > MAX_VALUES:
            raise Invalid(
                "too-many-cells",
                f"dimension {name!r} has {len(values)} values, the most is {MAX_VALUES}; use "
                "coarser values",
            )
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
