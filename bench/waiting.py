"""What a decision costs while many requests wait: it must not grow with how many there are.

A ledger in memory, one limit on 15 x 15 groups. Every request that waits asks for a different
amount, so that most are passed over: what comes back is enough for the smallest alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Command, Envelope, command_from_json
from accountant.budget.decide import Repeated, admission, decide
from accountant.budget.outcome import REFUSED, Outcome
from accountant.budget.policy_file import parse_policy
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.runtime.memory import collection_paused

_NOW: Final = 1_790_000_000_000_000
SIZES: Final = (100, 10_000, 90_000)
_ROUNDS: Final = 200


def queue(folder: Path) -> list[dict[str, Any]]:
    """Decide while many requests wait, in a ledger in memory."""
    rows = []
    for order in ("arrival", "dominant_share"):
        for size in SIZES:
            rows += _measured(order, size)
    return rows


class _Ledger:
    """A ledger that decides as the service does: what is due comes first, and after."""

    def __init__(self, order: str) -> None:
        self.state, self.admitted = State("fair"), 0
        self._keys, self._clients = count(), count()
        values = [f"v{i}" for i in range(15)]
        self.do("register_population", privacy_unit="person", neighbouring="replace_one",
                membership="public", dimensions={"one": values, "two": values})  # fmt: skip
        self.do("register_dataset", id="d", namespace="n", name="d")
        self.order = order
        self.adopt("1000")

    def adopt(self, epsilon: str) -> None:
        """Adopt a policy with another limit, by two people if it takes two."""
        rules = f"rules:\n  - {{id: a, limit: {{epsilon: {epsilon}}}}}\n"
        policy, digest = parse_policy(f"policy: p\norder: {self.order}\n{rules}")
        self.do("adopt_policy", policy=policy.to_json(), source_digest=digest)
        for one in [one for one in self.state.proposals.values() if one.status == "open"]:
            self.do("confirm_change", by="second", proposal=one.sequence, digest=one.digest)

    def do(self, kind: str, by: str = "admin", **fields: Any) -> Outcome:
        """Decide a command, and all that it lets in. Return its own outcome."""
        command: Command = command_from_json({"type": kind} | fields)
        key = f"k{next(self._keys)}" if command.needs_key else None
        who = f"client-{next(self._clients) % 8}" if isinstance(command, AskGrant) else by
        who = "holder" if fields.get("ttl_seconds") == 1 or kind == "release_grant" else who
        outcomes = decide(self.state, Envelope(who, command, key), _NOW)
        if isinstance(outcomes, Repeated):
            raise TypeError("each command has a key of its own")
        for one in outcomes:
            apply(self.state, one)
        while (next_one := admission(self.state, _NOW)) is not None:
            apply(self.state, next_one)
            self.admitted += 1
        return outcomes[-1]

    def label(self, name: str) -> None:
        """Register a dataset, or give it a label."""
        self.do("register_dataset", id=name, namespace="n", name=name, labels={"kind": "raw"})

    def ask(self, milli: int, **more: Any) -> Outcome:
        """Ask for so many thousandths of epsilon."""
        mechanism = {"kind": "declared", "epsilon": f"{milli / 1000:.3f}", "delta": "0"}
        return self.do("ask_grant", dataset="d", mechanisms=[mechanism], **more)


def _taken(action: Callable[[], object]) -> float:
    """Return how many seconds of processor time something takes."""
    began = time.process_time()
    action()
    return time.process_time() - began


def _measured(order: str, size: int) -> list[dict[str, Any]]:
    ledger, draws = _Ledger(order), random.Random(7)  # noqa: S311 no secret
    whole = {"kind": "declared", "epsilon": "990", "delta": "0"}
    ledger.do("ask_grant", dataset="d", mechanisms=[whole])
    small = [ledger.ask(draws.randint(1, 9), ttl_seconds=1) for _ in range(_ROUNDS)]
    for amount in (1_000, 100, 10, 1):
        while ledger.ask(amount, ttl_seconds=1).entry.type != REFUSED:
            pass  # until nothing at all is left
    began = time.perf_counter()
    while len(ledger.state.waiting) < size:
        ledger.ask(draws.randint(5, 900_000), wait=86_400)
    joining = (time.perf_counter() - began) / size
    times = []
    for one in small:
        began = time.perf_counter()
        ledger.do("release_grant", grant=f"g{one.entry.sequence}", reason="not run")
        times.append(time.perf_counter() - began)
    ledger.state = load("fair", b"".join(dump(ledger.state)))
    with collection_paused():
        anew = {
            "a start: looking at all anew": _taken(lambda: admission(ledger.state, _NOW)),
            "a dataset that some ask for gets a label": _taken(lambda: ledger.label("d")),
            "a dataset that nobody asks for": _taken(lambda: ledger.label("e")),
            "a policy that lets nothing in": _taken(lambda: ledger.adopt("999.5")),
            "a policy that lets a few in": _taken(lambda: ledger.adopt("1001")),
        }
    beside = f"{size} wait, by {order}; {ledger.admitted} were admitted"
    return [
        {"what": what, "value": value, "unit": unit, "beside": beside}
        for what, value, unit in (
            ("joining the queue", joining * 1e6, "us"),
            ("a release, and what it lets in", median(times) * 1e6, "us"),
            ("the slowest of these", max(times) * 1e6, "us"),
            *((what, seconds, "s") for what, seconds in anew.items()),
        )
    ]
