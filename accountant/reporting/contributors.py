"""The charges that used a budget up: the largest ones behind a decision on which a limit fired."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from accountant.budget.apply import HANDLERS
from accountant.budget.commands import command_from_json
from accountant.budget.facts import final_of, grant_of
from accountant.budget.outcome import RESERVED
from accountant.budget.population.population import Population
from accountant.budget.population.selection import Selection, reaching, select
from accountant.budget.state import ALL, State
from accountant.ledger.events import Event
from accountant.privacy.units import Charge, Currency
from accountant.reporting.history import RECOVERED, REVALUED, SETTLING
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Stored

MOST: Final = 20
_PEOPLE: Final = ("population.registered.v1", "population.extended.v1")
_STATES: Final = {
    "grant.reserved.v1": "reserved",
    "invocation.recorded.v1": "recorded",
    REVALUED: "revalued",
}


@dataclass(frozen=True, slots=True)
class Booked:
    """A charge and its state. ``command`` is that of the event that booked it."""

    sequence: int
    client: str
    command: dict[str, Any]
    selection: Selection
    charge: Charge
    state: str

    @property
    def dataset(self) -> str:
        """The dataset that it is charged on."""
        return str(self.command["dataset"])

    @property
    def size(self) -> tuple[bool, int, int]:
        """A key that is larger for a charge that used more, then for an earlier one."""
        epsilon = Currency.EPSILON
        return self.charge.is_infinite(epsilon), self.charge[epsilon], -self.sequence

    def to_json(self, texts: Texts) -> dict[str, Any]:
        """Return it as the API serves it."""
        return {
            "sequence": self.sequence,
            "client": self.client,
            "dataset": self.dataset,
            "purpose": texts.open(self.sequence, self.command).get("purpose"),
            "state": self.state,
            "epsilon": self.charge.amount(Currency.EPSILON),
            "delta": self.charge.amount(Currency.DELTA),
        }


def used_up_by(
    state: State,
    rows: Iterable[Stored],
    rules: Iterable[Mapping[str, Any]],
    before: int,
    texts: Texts,
) -> list[dict[str, Any]]:
    """Return, for each limit that fired among ``rules``, the charges before event ``before`` in the
    account and cell that it quotes, the largest first, as they stand now. Reads ``rows`` once.
    """
    people = state.people()
    fired = [r for r in rules if r["fired"] and "comparisons" in r]
    found: list[list[Booked]] = [[] for _ in fired]
    left_out = [0] * len(fired)
    for booked in _bookings(state.ledger, rows, before) if fired else ():
        for i, rule in enumerate(fired):
            if (
                rule["dataset"] in (booked.dataset, ALL)
                and rule["client"] in (booked.client, "")
                and _covers(people, booked.selection, rule["group"])
            ):
                found[i].append(booked)
                if len(found[i]) > 2 * MOST:
                    left_out[i] += len(found[i]) - MOST
                    found[i] = _largest(found[i])
    return [
        {
            "rule": rule["rule"],
            "events": [booked.to_json(texts) for booked in _largest(some)],
            "left_out": left + max(0, len(some) - MOST),
        }
        for rule, some, left in zip(fired, found, left_out, strict=True)
    ]


def _largest(some: list[Booked]) -> list[Booked]:
    return heapq.nlargest(MOST, some, key=lambda booked: booked.size)


def _bookings(ledger: str, rows: Iterable[Stored], before: int) -> Iterator[Booked]:
    """Yield everything booked before event ``before`` that is still charged. A grant is held back
    until it is known how it was settled; only open grants are kept in memory.
    """
    people = State(ledger)
    held: dict[str, Booked] = {}
    for stored in rows:
        late = stored.sequence >= before
        if late and not held:
            return
        body = orjson.loads(stored.body)
        kind, grant = body["type"], str(grant_of(body, stored.sequence, body["type"]))
        if kind in _PEOPLE:
            event = Event.from_bytes(stored.body)
            HANDLERS[kind](people, event)
            held = {name: _widened(people.people(), one, event) for name, one in held.items()}
        elif kind in _STATES and not late:
            one = _booked(people, body)
            if kind == RESERVED:
                held[grant] = one
            else:
                yield one
        elif kind in SETTLING and grant in held:
            one = held.pop(grant)
            final = final_of(body, one.charge)
            if any(final.finite + final.infinite):
                yield replace(one, charge=final, state=SETTLING[kind])
        elif kind == RECOVERED:
            yield from (replace(one, state="expired") for one in held.values())
            held.clear()
    yield from held.values()


def _booked(state: State, body: dict[str, Any]) -> Booked:
    command = body["command"]
    everyone = body.get("charged_to") == "everyone" or command.get("everyone", False)
    subjects = getattr(command_from_json(command), "subjects", None)
    revalued = body["type"] == REVALUED
    return Booked(
        sequence=body["sequence"],
        client=command["by"] if revalued else body["by"],
        command=command,
        selection=select(state.people(), None if everyone else subjects),
        charge=Charge.from_json(body["more" if revalued else "total"]),
        state=_STATES[body["type"]],
    )


def _widened(people: Population, booked: Booked, event: Event) -> Booked:
    """Return the charge with the new cells that an open grant covers (as in apply.py)."""
    subjects = getattr(command_from_json(booked.command), "subjects", None)
    for dimension, values in event.body.get("added", {}).items():
        new = reaching(people, subjects, dimension, values)
        if not booked.selection.everyone and new.boxes:
            booked = replace(booked, selection=booked.selection | new)
    return booked


def _covers(people: Population, selection: Selection, group: dict[str, str]) -> bool:
    """Return True if the cell that ``group`` describes (any, if empty) is selected."""
    if selection.everyone or not group:
        return True
    cell = [people.index(people.axis(name), value) for name, value in group.items()]
    axes = [people.axis(name) for name in group]
    return any(
        all(i in box[axis] for axis, i in zip(axes, cell, strict=True)) for box in selection.boxes
    )
