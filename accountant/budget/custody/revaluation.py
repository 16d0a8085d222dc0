"""Find charges that were booked by a bound that was corrected since, and the difference.

One pass over the events, to book the difference or to check that it was booked.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from accountant.budget.batches import (
    REFUSED as BATCH_REFUSED,
)
from accountant.budget.batches import (
    as_single,
)
from accountant.budget.bill import (
    Bill,
    Per,
    bill_of,
    per_in,
)
from accountant.budget.commands import STORED, Revalue
from accountant.budget.custody.custody import FIRST_ENGINE
from accountant.budget.facts import final_of, grant_in, in_clear, mechanisms_of
from accountant.budget.outcome import CLOSED, COMMITTED, EXPIRED, RECORDED, RESERVED
from accountant.budget.reach import reach_in, spelled
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.engine import FORMER, former_under
from accountant.privacy.units import Charge


class Booked(NamedTuple):
    """The charge that an event booked. ``facts``: fields of ``Revalue`` that repeat the event."""

    facts: dict[str, Any]
    charge: Charge
    per: Per = ()
    """The charges to further units, where they differ."""

    @property
    def bill(self) -> Bill:
        """The charges to all units."""
        return Bill(self.charge, self.per)

    @property
    def event(self) -> int:
        """The sequence of the event that recorded the mechanisms, or reserved budget for them."""
        event: int = self.facts["event"]
        return event

    def command(self, reason: str) -> Revalue:
        """Return the command that books the difference."""
        fields = self.facts | {"booked": self.charge.to_json(), "reason": reason}
        fields |= {f"booked_{name}": each for name, each in self.bill.written().items()}
        return Revalue.model_validate(fields, context=STORED)


class Corrections:
    """Finds charges of ``kinds`` by bounds that were corrected after the event."""

    def __init__(self, kinds: frozenset[str] | None = None) -> None:
        self._kinds = frozenset(FORMER) if kinds is None else kinds
        self._engine = FIRST_ENGINE
        self._open: dict[str, Booked] = {}
        self.booked: dict[int, Booked] = {}
        self.problems: list[tuple[int, str]] = []

    def take(self, event: Event) -> None:
        """Take the next event."""
        if not self._kinds:
            return
        event = event if event.type == BATCH_REFUSED else as_single(event)
        command = event.body.get("command", {})
        if event.type == "engine.adopted.v1":
            self._engine = command["version"]
        elif event.type in (RESERVED, RECORDED):
            self._asked(event, command)
        elif event.type in (COMMITTED, EXPIRED, CLOSED):
            self._ended(event, command)
        elif event.type == "ledger.recovered.v1":
            self.booked |= {booked.event: booked for booked in self._open.values()}
            self._open.clear()
        elif event.type == "charge.revalued.v1":
            self._revalued(event, command)

    def _asked(self, event: Event, command: dict[str, Any]) -> None:
        mechanisms = mechanisms_of(command)
        if not self._affected(mechanisms):
            return
        facts = {
            "event": event.sequence,
            "by": event.by,
            "dataset": spelled(reach_in(event.body).charged),
            "subjects": command.get("subjects"),
            "for_purpose": in_clear(command.get("purpose")),
            "for_allotment": command.get("allotment"),
            "everyone": event.body.get("charged_to") == "everyone",
            "mechanisms": mechanisms,
        }
        booked = Booked(facts, Charge.from_json(event.body["total"]), per_in(event.body))
        if event.type == RESERVED:
            self._open[grant_in(event)] = booked
        else:
            self.booked[event.sequence] = booked

    def _affected(self, mechanism: Any) -> bool:
        """Return whether it is, or contains, a mechanism of a kind that was corrected since."""
        if isinstance(mechanism, list):
            return any(map(self._affected, mechanism))
        if not isinstance(mechanism, dict):
            return False
        kind = mechanism.get("kind")
        wrong = kind in self._kinds and former_under(str(kind), self._engine) is not None
        return wrong or any(map(self._affected, mechanism.values()))

    def _ended(self, event: Event, command: dict[str, Any]) -> None:
        reserved = self._open.pop(command["grant"], None)
        if reserved is not None:
            run = command.get("mechanisms") or reserved.facts["mechanisms"]
            charge = final_of(event.body, reserved.charge)
            facts = reserved.facts | {"mechanisms": run}
            self.booked[reserved.event] = Booked(facts, charge, per_in(event.body))

    def _revalued(self, event: Event, command: dict[str, Any]) -> None:
        booked = self.booked.get(command["event"])
        if booked is None or booked.command("-").to_json() != command | {"reason": "-"}:
            reason = f"it revalues event {command['event']} by other facts than that one's"
            self.problems.append((event.sequence, reason))
            return
        more = Bill(Charge.from_json(event.body["more"]), per_in(event.body))
        names = {name for name, _ in (*booked.per, *more.per)}
        each = ((name, booked.bill.to(name) + more.to(name)) for name in sorted(names))
        after = Bill.of(booked.charge + more.total, each)
        self.booked[booked.event] = Booked(booked.facts, after.total, after.per)

    def due(self, state: State) -> list[Booked]:
        """Return the charges that are too low by the bounds of the state's version."""
        engine, found, people = state.custody.engine, list[Booked](), state.population
        if people is None:  # nothing was booked
            return found
        for booked in self.booked.values():
            if state.revalued.get(booked.event, 0) < engine:
                mechanisms, orders = booked.command("-").mechanisms, booked.charge.orders
                prices = price_all(mechanisms, people.relation, orders, engine, people.units)
                now = bill_of(prices, people.units)
                units = [unit.name for unit in people.units]
                found += [booked] if now.beyond(booked.bill, units) is not None else []
        return found
