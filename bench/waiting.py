"""What a decision costs while many requests wait: it must not grow with how many there are.

A ledger in memory, one limit on 15 x 15 groups. Every request that waits asks for a different
amount, so that most are passed over: what comes back is enough for the smallest alone.
"""

from __future__ import annotations

import random
import time
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Command, Envelope, command_from_json
from accountant.budget.decide import Repeated, admission, decide
from accountant.budget.outcome import REFUSED, Outcome
from accountant.budget.policy_file import parse_policy
from accountant.budget.state import State

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
        text = f"policy: p\norder: {order}\nrules:\n  - {{id: a, limit: {{epsilon: 1000}}}}\n"
        policy, digest = parse_policy(text)
        self.do("adopt_policy", policy=policy.to_json(), source_digest=digest)
        [one] = self.state.proposals.values()  # a first policy takes two people
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

    def ask(self, milli: int, **more: Any) -> Outcome:
        """Ask for so many thousandths of epsilon."""
        mechanism = {"kind": "declared", "epsilon": f"{milli / 1000:.3f}", "delta": "0"}
        return self.do("ask_grant", dataset="d", mechanisms=[mechanism], **more)


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
    ledger.state.waiting.index = None
    began = time.perf_counter()
    admission(ledger.state, _NOW)
    anew = time.perf_counter() - began
    beside = f"{size} wait, by {order}; {ledger.admitted} were admitted"
    return [
        {"what": what, "value": value, "unit": unit, "beside": beside}
        for what, value, unit in (
            ("joining the queue", joining * 1e6, "us"),
            ("a release, and what it lets in", median(times) * 1e6, "us"),
            ("the slowest of these", max(times) * 1e6, "us"),
            ("looking at all anew", anew, "s"),
        )
    ]
