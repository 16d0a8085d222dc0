"""The express way of batches: what comes again is answered from forms, all of it or nothing.

A batch with anything else in it, or with something that would be refused, is decided at length.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from accountant.budget.batches import OPENED
from accountant.budget.commands import Asked, AskGrant, Batch, RecordInvocations
from accountant.budget.decide.batching import check
from accountant.budget.errors import Invalid
from accountant.budget.express.asking import Asking
from accountant.budget.express.running import Running
from accountant.budget.express.runs import Runs


class Together:
    """The batches of one ledger."""

    def __init__(self, running: Running, asking: Asking, runs: Runs) -> None:
        self._running, self._asking, self._runs = running, asking, runs

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
        header = state.next_event(asked, OPENED, now, {})
        state.sequence += 1
        first = header.sequence
        items = self._runs.items(asked.parts, now, first) or self._items(asked.parts, now, first)
        if not items:
            state.sequence = first
            return None
        state.answers.put(asked.by, asked.key or "", asked.fingerprint, first)
        return [(OPENED, header.to_bytes()), *items]

    def _items(self, parts: Sequence[Asked], now: int, header: int) -> list[tuple[str, bytes]]:
        """The items one by one; none, and nothing is booked, if one of them does not go."""
        found = []
        with self._running.noted() as before:
            for part in parts:
                item = self._asking.item(part, now, header)
                if item is None:
                    self._running.take_back(before)
                    return []
                found.append(item)
        return found
