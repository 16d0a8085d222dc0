"""What was booked by a bound that was corrected since, and what it should have cost.

One pass over the events, for whoever books the difference and for whoever checks that it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from accountant.budget.commands import STORED, Revalue
from accountant.budget.custody.custody import FIRST_ENGINE
from accountant.budget.facts import final_of, grant_in
from accountant.budget.request import price_all
from accountant.budget.state import State
from accountant.ledger.events import Event
from accountant.privacy.engine import FORMER, former_under
from accountant.privacy.units import Charge, total

_ENDS: Final = ("grant.committed.v1", "grant.expired.v1", "sparse_vector.closed.v1")


@dataclass(frozen=True, slots=True)
class Booked:
    """What an event booked for mechanisms; ``event`` recorded them, or reserved for them."""

    event: int
    by: str
    dataset: str
    subjects: Any
    everyone: bool
    mechanisms: list[dict[str, Any]]
    charge: Charge

    def command(self, reason: str) -> Revalue:
        """What books the difference."""
        return Revalue.model_validate(
            {
                "event": self.event,
                "by": self.by,
                "dataset": self.dataset,
                "subjects": self.subjects,
                "everyone": self.everyone,
                "mechanisms": self.mechanisms,
                "booked": self.charge.to_json(),
                "reason": reason,
            },
            context=STORED,
        )


class Corrections:
    """Watches a ledger's events in order for charges by bounds of ``kinds`` that were corrected
    after the version that decided them.
    """

    def __init__(self, kinds: frozenset[str] | None = None) -> None:
        self._kinds = frozenset(FORMER) if kinds is None else kinds
        self._engine = FIRST_ENGINE
        self._open: dict[str, Booked] = {}
        self.booked: dict[int, Booked] = {}
        self.problems: list[tuple[int, str]] = []

    def take(self, event: Event) -> None:
        """Looks at one event."""
        if not self._kinds:
            return
        command = event.body.get("command", {})
        if event.type == "engine.adopted.v1":
            self._engine = command["version"]
        elif event.type in ("grant.reserved.v1", "invocation.recorded.v1"):
            self._asked(event, command)
        elif event.type in _ENDS:
            self._ended(event, command)
        elif event.type == "ledger.recovered.v1":
            self.booked |= {booked.event: booked for booked in self._open.values()}
            self._open.clear()
        elif event.type == "charge.revalued.v1":
            self._revalued(event, command)

    def _asked(self, event: Event, command: dict[str, Any]) -> None:
        mechanisms = command.get("mechanisms") or [command["mechanism"]]
        if not any(self._affected(mechanism) for mechanism in mechanisms):
            return
        booked = Booked(
            event.sequence,
            event.by,
            command["dataset"],
            command.get("subjects"),
            event.body.get("charged_to") == "everyone",
            mechanisms,
            Charge.from_json(event.body["total"]),
        )
        if event.type == "grant.reserved.v1":
            self._open[grant_in(event)] = booked
        else:
            self.booked[event.sequence] = booked

    def _affected(self, mechanism: Any) -> bool:
        """True if it is, or contains, a mechanism of a kind that was corrected since."""
        if isinstance(mechanism, list):
            return any(map(self._affected, mechanism))
        if not isinstance(mechanism, dict):
            return False
        kind = mechanism.get("kind")
        wrong = kind in self._kinds and former_under(str(kind), self._engine) is not None
        return wrong or any(map(self._affected, mechanism.values()))

    def _ended(self, event: Event, command: dict[str, Any]) -> None:
        reserved = self._open.pop(command["grant"], None)
        if reserved is None:
            return
        run = command.get("mechanisms") or reserved.mechanisms
        charge = final_of(event.body, reserved.charge)
        self.booked[reserved.event] = replace(reserved, mechanisms=run, charge=charge)

    def _revalued(self, event: Event, command: dict[str, Any]) -> None:
        booked = self.booked.get(command["event"])
        stated = {name: value for name, value in command.items() if name not in ("type", "reason")}
        if booked is None or stated != _facts(booked):
            reason = f"it revalues event {command['event']} by other facts than that one's"
            self.problems.append((event.sequence, reason))
            return
        more = Charge.from_json(event.body["more"])
        self.booked[booked.event] = replace(booked, charge=booked.charge + more)

    def due(self, state: State) -> list[Booked]:
        """What has cost more, by the bounds of the state's version, than was booked for it."""
        return [
            booked
            for booked in self.booked.values()
            if state.revalued.get(booked.event, 0) < state.custody.engine
            and _now(state, booked).beyond(booked.charge) is not None
        ]


def _facts(booked: Booked) -> dict[str, Any]:
    body = booked.command("-").to_json()
    return {name: value for name, value in body.items() if name not in ("type", "reason")}


def _now(state: State, booked: Booked) -> Charge:
    engine, orders = state.custody.engine, booked.charge.orders
    mechanisms = booked.command("-").mechanisms
    prices = price_all(mechanisms, state.people().relation, orders, engine)
    return total(priced.charge for priced in prices).on(booked.charge.axis)
