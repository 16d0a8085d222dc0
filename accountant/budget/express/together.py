"""The express way of batches: what comes again is answered from forms, all of it or nothing.

A batch with anything else in it, or with something that would be refused, is decided at length.
"""

from __future__ import annotations

from typing import cast

from accountant.budget.batches import OPENED
from accountant.budget.commands import Asked, AskGrant, Batch, RecordInvocations
from accountant.budget.decide.batching import check
from accountant.budget.errors import Invalid
from accountant.budget.express.asking import Asking
from accountant.budget.express.forms import Form
from accountant.budget.express.running import Running


class Together:
    """The batches of one ledger."""

    def __init__(self, running: Running, asking: Asking) -> None:
        self._running, self._asking = running, asking

    def forget(self, running: Running) -> None:
        """Starts afresh."""
        self._running = running

    def decide(self, asked: Asked, now: int) -> list[tuple[str, bytes]] | None:
        """Types and bytes of the header and of an event for each item of a batch whose key is new,
        and books them; None, and nothing is booked, if it has to be decided at length.
        """
        if not all(isinstance(item, AskGrant | RecordInvocations) for item in asked.items):
            return None
        try:
            check(cast("Batch", asked.command), [part.canonical for part in asked.parts])
        except Invalid:
            return None
        state = self._running.state
        header, before = state.next_event(asked, OPENED, now, {}), state.time
        found = [(OPENED, header.to_bytes())]
        booked: list[Form] = []
        state.sequence += 1
        for part in asked.parts:
            item = self._asking.item(part, now, header.sequence, booked)
            if item is None:
                self._running.unbook(booked, header.sequence, before)
                return None
            found.append(item)
        state.answers.put(asked.by, asked.key or "", asked.fingerprint, header.sequence)
        return found
