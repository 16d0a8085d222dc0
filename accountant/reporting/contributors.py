"""What used a budget up: the largest charges behind a decision that a limit fired on."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from accountant.budget.commands import command_from_json
from accountant.budget.selection import Selection, select
from accountant.budget.state import ALL, State
from accountant.privacy.units import Charge, Currency
from accountant.reporting.history import BOOKING
from accountant.store.ledgers import Stored

MOST: Final = 20

Found = tuple[Charge, dict[str, Any]]


def used_up_by(
    state: State, rows: Iterable[Stored], decision: dict[str, Any], before: int
) -> list[dict[str, Any]]:
    """For each limit that fired in ``decision``: the charges before event ``before`` in the account
    and the cell that it quotes, the largest first, as they stand now. ``rows`` are read once.
    """
    fired = [r for r in decision["rules"] if r["fired"] and "comparisons" in r]
    found: list[list[Found]] = [[] for _ in fired]
    left_out = [0] * len(fired)
    for dataset, client, selection, charge, row in _bookings(state, rows, before) if fired else ():
        for i, rule in enumerate(fired):
            if (
                rule["dataset"] in (dataset, ALL)
                and rule["client"] in (client, "")
                and _covers(state, selection, rule["group"])
            ):
                found[i].append((charge, row))
                if len(found[i]) > 2 * MOST:
                    left_out[i] += len(found[i]) - MOST
                    found[i] = heapq.nlargest(MOST, found[i], key=_size)
    return [
        {
            "rule": rule["rule"],
            "events": [row for _, row in heapq.nlargest(MOST, some, key=_size)],
            "left_out": left + max(0, len(some) - MOST),
        }
        for rule, some, left in zip(fired, found, left_out, strict=True)
    ]


def _bookings(
    state: State, rows: Iterable[Stored], before: int
) -> Iterator[tuple[str, str, Selection, Charge, dict[str, Any]]]:
    """(dataset, client, cells, charge, description) of everything that is still charged."""
    for stored in rows:
        if stored.sequence >= before:
            return
        body = orjson.loads(stored.body)
        if body["type"] not in BOOKING:
            continue
        command = body["command"]
        grant = state.grants.get(body.get("grant", ""))
        charge = Charge.from_json(body["total"])
        status = "recorded"
        if grant is not None:
            status, selection = grant.status, grant.selection
            charge = grant.charged or charge
        else:
            everyone = body.get("charged_to") == "everyone"
            subjects = getattr(command_from_json(command), "subjects", None)
            selection = select(state.people(), None if everyone else subjects)
        if not any(charge.finite + charge.infinite):
            continue
        yield (
            command["dataset"],
            body["by"],
            selection,
            charge,
            {
                "sequence": stored.sequence,
                "client": body["by"],
                "dataset": command["dataset"],
                "purpose": command.get("purpose"),
                "state": status,
                "epsilon": charge.amount(Currency.EPSILON),
                "delta": charge.amount(Currency.DELTA),
            },
        )


def _covers(state: State, selection: Selection, group: dict[str, str]) -> bool:
    """Whether the cell that ``group`` describes (any, if it describes none) is selected."""
    if selection.everyone or not group:
        return True
    people = state.people()
    cell = [people.index(people.axis(name), value) for name, value in group.items()]
    axes = [people.axis(name) for name in group]
    return any(
        all(i in box[axis] for axis, i in zip(axes, cell, strict=True)) for box in selection.boxes
    )


def _size(found: Found) -> tuple[bool, int]:
    charge = found[0]
    return charge.is_infinite(Currency.EPSILON), charge[Currency.EPSILON]
