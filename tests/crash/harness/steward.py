"""Somebody who registers what datasets were made from while they are used, and disasters happen."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from support import cells_of

from accountant.budget.ancestors import uncharged
from accountant.budget.state import State, lifetime
from harness.checker import LIMITS, NANO, Checked, spent
from harness.deployment import Deployment
from harness.pipelines import BROKEN, DATASETS, until_stopped

MOST = 60
"""Ancestors: a dataset may name a hundred parents."""
USED = LIMITS | {"wide": ("wide", 1_000 * NANO)}
"""Of each dataset the limit that counts all its charges, and how much that allows."""


@dataclass
class Steward:
    """Registers ancestors of all datasets, one after the other: some before a dataset names them,
    some after. A step is asked again until it is answered.
    """

    deployment: Deployment
    steps: Iterator[tuple[str, dict[str, Any]]] = field(init=False)
    open: tuple[str, dict[str, Any]] | None = None
    """What was asked, and is not answered."""
    done: list[str] = field(default_factory=list)
    """Whose registrations were answered."""
    told: list[str] = field(default_factory=list)
    """The ancestors that were registered, and are named by all datasets."""

    def __post_init__(self) -> None:
        self.steps = self._all()

    def _all(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(MOST):
            new = f"a{number}"
            parents = [f"n/{name}" for name in (*self.told, new)]
            naming = [
                (name, {"namespace": "n", "name": name, "parents": parents}) for name in DATASETS
            ]
            registering = (new, {"namespace": "n", "name": new})
            yield from [registering, *naming] if number % 3 == 0 else [*naming, registering]
            self.told.append(new)

    def at_work(self, port: int) -> AbstractContextManager[None]:
        """Has the steward at work until the block ends."""
        return until_stopped(partial(self._work, port))

    def _work(self, port: int, stop: threading.Event) -> None:
        while not stop.wait(0.03) and self.step(port):
            pass

    def settle(self, port: int, patience: float = 0) -> None:
        """What was asked is answered: now, or within so many seconds."""
        deadline = time.monotonic() + patience
        while self.open is not None:
            self.step(port)
            assert self.open is None or time.monotonic() < deadline, self.open

    def step(self, port: int) -> bool:
        """Asks for the next registration, or again for one without an answer; whether there may be
        more.
        """
        if self.open is None and (step := next(self.steps, None)) is None:
            return False
        self.open = self.open or step
        name, body = self.open
        try:
            path = f"/datasets/{name}"
            status, answer = self.deployment.call(port, "PUT", path, json.dumps(body))
        except BROKEN:
            time.sleep(0.02)
            return True
        if status == 200:
            assert answer["parents"] == body.get("parents", [])
            self.done.append(name)
            self.open = None
        else:
            assert status == 503, answer
        return True

    def compare(self, checked: Checked) -> None:
        """Every registration is there once; each ancestor that all name holds what all used: what
        was charged before it was known, and what was charged after.
        """
        events, state = checked.events, checked.state
        names = [event["command"]["id"] for event in events if _registers(event)]
        assert names[len(DATASETS) :] == self.done
        assert uncharged(state.datasets) == {}
        used = sum(spent(events, state, USED).values())
        assert {name: _units(state, name) for name in self.told} == dict.fromkeys(self.told, used)


def _registers(event: dict[str, Any]) -> bool:
    return bool(event.get("command", {}).get("type") == "register_dataset")


def _units(state: State, name: str) -> int:
    """What was used of a dataset in its life, in units of epsilon."""
    return cells_of(state.accounts[lifetime(name)].used)[0][0]
