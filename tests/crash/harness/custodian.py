"""Somebody who erases texts while disasters happen, and keeps what was said of it."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harness.deployment import Deployment
from harness.pipelines import BROKEN, Pipeline, until_stopped


@dataclass
class Custodian:
    """Erases the reasons of releases, each once. ``told`` is the event that says so, by the event
    erased of; None while that is unknown, 0 where all that is known is that the text is gone.
    """

    deployment: Deployment
    clients: Sequence[Pipeline]
    dice: random.Random
    told: dict[int, int | None] = field(default_factory=dict)

    def at_work(self, port: int) -> AbstractContextManager[None]:
        """Has the custodian at work until the block ends."""
        return until_stopped(partial(self._work, port))

    def settle(self, port: int, patience: float = 0.0) -> None:
        """Erases what may not have been erased: now, or within so many seconds, it is."""
        for event in [event for event, answer in self.told.items() if answer is None]:
            deadline = time.monotonic() + patience
            while not self._erase(port, event):
                late = time.monotonic() >= deadline
                assert not late, f"the texts of {event} cannot be erased"

    def compare(self, events: Sequence[dict[str, Any]]) -> set[int]:
        """Of which events a text is erased. Each erasure is there once, was asked for, and is the
        one that was told.
        """
        erasures: dict[int, int] = {}
        for event in events:
            if event["type"] == "text.erased.v1":
                of = event["command"]["event"]
                assert of not in erasures, f"erased twice: {of}"
                erasures[of] = event["sequence"]
        assert erasures.keys() <= self.told.keys()
        for of, answer in self.told.items():
            assert answer is None or of in erasures, f"lost: the erasure of {of}"
            assert not answer or answer == erasures[of]
        return {*erasures}

    def _work(self, port: int, stop: threading.Event) -> None:
        while not stop.wait(0.03):
            released = [
                json.loads(request.answer)["sequence"]
                for client in self.clients
                for request in client.requests[-200:]
                if request.path.endswith("/release") and request.status == 200
            ]
            if new := [event for event in released if event not in self.told]:
                self._erase(port, self.dice.choice(new))

    def _erase(self, port: int, event: int) -> bool:
        again = event in self.told
        self.told.setdefault(event, None)
        body = json.dumps({"reason": "it names somebody"})
        try:
            status, answer = self.deployment.call(port, "POST", f"/events/{event}/erase", body)
        except BROKEN:
            time.sleep(0.02)
            return False
        if status == 404:
            assert again, answer
            self.told[event] = 0
        elif status == 200:
            self.told[event] = answer["sequence"]
        else:
            assert status == 503, answer
        return status != 503
