"""Settlements: how the grants of one form may end, each with what it is charged in the end."""

from __future__ import annotations

from typing import Any, Final

from accountant.budget.accounts import vector
from accountant.budget.express.atoms import Atom
from accountant.budget.express.forms import (
    BY,
    GRANT,
    KEY,
    SEALED,
    SEQUENCE,
    STAMP,
    Form,
    atom_of,
)
from accountant.budget.express.tallies import Count, Pending, Tally
from accountant.budget.express.wording import Wording, bare, slot
from accountant.budget.grants import Ending
from accountant.ledger.events import Event
from accountant.privacy.units import Charge

ENDINGS: Final[dict[bytes, Ending]] = {
    b"grant.committed.v1": "committed",
    b"grant.released.v1": "released",
    b"grant.expired.v1": "expired",
}


class Settlement:
    """One way to end a grant of one form."""

    __slots__ = ("abouts", "by", "changes", "count", "parts", "wording")

    def __init__(self, form: Form, event: Event) -> None:
        self.by = event.by if event.type == "grant.expired.v1" else None
        """Who ends it, if not its owner."""
        self.abouts: dict[str, int | None] = {}
        """What is kept of such a grant, by owner."""
        self.wording = Wording(_with_slots(event))
        self.count = Count()
        self.parts: list[tuple[Tally, Pending]] = []
        self.changes: list[tuple[Tally, int, Atom]] = []
        """What it changes of the sums that are compared."""
        final = Charge.from_json(event.body["charge"])
        for (tally, _), (_, booked) in zip(form.parts, form.bookings, strict=True):
            spent = final.on(tally.account.axis)
            if any(more > 0 for more in (spent - booked).finite):
                raise ValueError("it may not fit where the reservation did")
            if spent != booked:
                change = vector(spent) - vector(booked)
                self.parts.append(
                    (tally, Pending(self.count, form.request.selection, change, None))
                )
        for tally, number, charge in form.tallies:
            spent_there = atom_of(tally, final.on(tally.account.axis))
            change_there = [a - b for a, b in zip(spent_there, charge, strict=True)]
            if any(change_there):
                self.changes.append((tally, number, change_there))

    def wait(self) -> None:
        """What was counted is to be written back."""
        if not self.count.waits:
            self.count.waits = True
            for tally, pending in self.parts:
                tally.wait(pending)


def _with_slots(event: Event) -> dict[str, Any]:
    document = event.to_json()
    name = "g" + slot(GRANT)
    command = document["command"] | {"grant": name}
    if isinstance(command.get("reason"), dict):
        command["reason"] = {"sealed": slot(SEALED)}
    slots = {"sequence": bare(SEQUENCE), "time": slot(STAMP), "grant": name, "command": command}
    slots["by"] = slot(BY)
    if "key" in document:
        slots["key"] = slot(KEY)
    return document | slots
