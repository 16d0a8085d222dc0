"""Facts that follow from an event's command and sequence, without a field of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from accountant.budget.outcome import ADMITTED, RESERVED, WAITING
from accountant.ledger.events import Event
from accountant.privacy.mechanisms import Relation
from accountant.privacy.units import Charge

SECOND: Final = 1_000_000
_UNPLACED: Final = "built-in:private-membership"


def grant_of(body: Mapping[str, Any], sequence: int, kind: str) -> str | None:
    """Return the name of the grant that an event opens or is about; None if it is about none."""
    if kind in (RESERVED, WAITING, ADMITTED):
        return f"g{sequence}"
    command = body.get("command")
    name = command.get("grant") if isinstance(command, dict) else None
    return name if isinstance(name, str) else None


def grant_in(event: Event) -> str:
    """Return ``grant_of`` an event that opens a grant or is about one."""
    return str(grant_of(event.body, event.sequence, event.type))


def request_in(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the request that a judged event is about: its command, or what waited."""
    command: Mapping[str, Any] = body["command"]
    found: Mapping[str, Any] = command.get("request", command)
    return found


def client_in(event: Event) -> str:
    """Return the client of the request that a judged event is about."""
    client: str = event.body["command"].get("client", event.by)
    return client


def mechanisms_of(command: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the mechanisms that a judged command names."""
    found: list[dict[str, Any]] = command.get("mechanisms") or [command["mechanism"]]
    return found


def lets_emptied(body: Mapping[str, Any], command: Mapping[str, Any]) -> bool:
    """Return whether the event with this ``body`` let mechanisms under zero_out, which ``command``
    names, charge a part of a population in which people move: fewer fired than all that are not
    under add-or-remove.
    """
    mechanisms = command.get("mechanisms") or [command.get("mechanism", {})]
    stated: list[str | None] = [one.get("neighbouring") for one in mechanisms]
    if Relation.ZERO_OUT not in stated:
        return False
    fired = [rule for rule, _ in body.get("fired", ())].count(_UNPLACED)
    return fired < len(stated) - stated.count(Relation.ADD_OR_REMOVE_ONE)


def final_of(body: Mapping[str, Any], reserved: Charge) -> Charge:
    """Return what a grant that reserved ``reserved`` spent by its end: nothing unless stated."""
    charge = body.get("charge")
    return Charge().on(reserved.axis) if charge is None else Charge.from_json(charge)


def stated_by(event: Event) -> str:
    """Return whose word a change is: its proposer's, if another person has confirmed it."""
    confirms = event.body["command"].get("confirms")
    return str(confirms["proposer"] if confirms else event.by)


def opened_by(body: Mapping[str, Any]) -> list[str]:
    """Return the limit rules that begin a new epoch by the adoption of a policy."""
    epochs: Mapping[str, Any] = body.get("epochs", {})
    return [rule for rule, epoch in epochs.items() if epoch["start"] != "kept"]


def in_clear(purpose: Any) -> str | None:
    """Return the purpose of an event's command if it stands in clear; None if it is sealed."""
    return purpose if isinstance(purpose, str) else None
