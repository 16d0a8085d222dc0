"""What a decision costs while many requests wait: it must not grow with how many there are.

A ledger in memory, one limit on 15 x 15 groups. Every request that waits asks for a different
amount, so that most are passed over: what comes back is enough for the smallest alone.

``own`` has 100 x 100 groups, and every request that waits is about some of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final, cast

from accountant.budget.apply import apply
from accountant.budget.commands import AskGrant, Command, Envelope, command_from_json
from accountant.budget.decide import Repeated, admission, decide
from accountant.budget.outcome import REFUSED, Outcome
from accountant.budget.policy_file import parse_policy
from accountant.budget.request import prepare
from accountant.budget.snapshot import dump, load
from accountant.budget.state import State
from accountant.budget.waiting.asked import waiting_for
from accountant.runtime.memory import collection_paused

_NOW: Final = 1_790_000_000_000_000
SIZES: Final = (100, 10_000, 90_000)
_ROUNDS: Final = 200


def own(folder: Path) -> list[dict[str, Any]]:
    """File all anew where each request that waits is about groups of its own."""
    return _of_own("arrival", 90_000, mixed=False) + _of_own("dominant_share", 90_000, mixed=True)


def queue(folder: Path) -> list[dict[str, Any]]:
    """Decide while many requests wait, in a ledger in memory."""
    rows = []
    for order in ("arrival", "dominant_share"):
        for size in SIZES:
            rows += _measured(order, size)
    return rows


class _Ledger:
    """A ledger that decides as the service does: what is due comes first, and after."""

    def __init__(self, order: str, side: int = 15) -> None:
        self.state, self.admitted = State("fair"), 0
        self._keys, self._clients = count(), count()
        values = [f"v{i}" for i in range(side)]
        self.do("register_population", privacy_unit="person", neighbouring="replace_one",
                membership="public", dimensions={"one": values, "two": values})  # fmt: skip
        self.do("register_dataset", id="d", namespace="n", name="d")
        self.order = order
        self.adopt("1000")

    def adopt(self, epsilon: str, delta: str = "0") -> None:
        """Adopt a policy with another limit, by two people if it takes two."""
        rules = f"rules:\n  - {{id: a, limit: {{epsilon: {epsilon}, delta: {delta}}}}}\n"
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

    def use_up(self) -> None:
        """Ask for everyone until nothing at all is left."""
        for amount in (1_000, 100, 10, 1):
            while self.ask(amount, ttl_seconds=1).entry.type != REFUSED:
                pass

    def put(self, mechanism: dict[str, Any], subjects: Any, by: str) -> None:
        """Let a request wait without deciding it: as a snapshot would hold it."""
        state, number = self.state, self.state.sequence
        fields = {"dataset": "d", "mechanisms": [mechanism], "wait": 86_400}
        command = cast(AskGrant, command_from_json({"type": "ask_grant"} | fields | subjects))
        request, canonical = prepare(state, by, command, _NOW), Envelope(by, command).canonical
        when, priced = (_NOW, _NOW + 86_400 * 10**6, number), (request.costs.bill, 1)
        state.waiting.keep(waiting_for(by, request.on, canonical, when, priced, "0" * 64))
        state.sequence += 1


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
    ledger.use_up()
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


def _of_own(order: str, size: int, *, mixed: bool) -> list[dict[str, Any]]:
    """``mixed``: of many clients, lists and unions of groups, and a thousand scales of noise."""
    ledger, draws = _Ledger(order, 100), random.Random(7)  # noqa: S311 no secret
    whole = {"kind": "declared", "epsilon": "980", "delta": "0"}
    ledger.do("ask_grant", dataset="d", mechanisms=[whole])
    for _ in range(300):
        ledger.ask(draws.randint(1, 40), subjects=_term(draws))
    ledger.use_up()
    clients = 200 if mixed else 8
    for number in range(size):
        ledger.put(_mechanism(draws, mixed), _group(draws, mixed), f"client-{number % clients}")
    _start(ledger)
    ledger.do("register_dataset", id="first", namespace="n", name="first")  # lets in what fits
    anew = {}
    for what, action in (
        ("a start: looking at all anew", lambda: admission(ledger.state, _NOW)),
        ("a dataset that some ask for gets a label", lambda: ledger.label("d")),
        ("a policy that lets nothing in", lambda: ledger.adopt("990")),
        ("one with a delta, at other orders", lambda: ledger.adopt("989", "1e-6")),
        ("a start after that", lambda: admission(ledger.state, _NOW)),
        ("a policy that lets some in", lambda: ledger.adopt("1001", "1e-6")),
    ):
        if what.startswith("a start"):
            _start(ledger)
        with collection_paused():
            anew[what] = _taken(action)
    groups = "mixed groups, prices and clients" if mixed else "groups of their own"
    beside = f"{size} wait on {groups}, by {order}; {ledger.admitted} were admitted"
    return [
        {"what": what, "value": seconds, "unit": "s", "beside": beside}
        for what, seconds in anew.items()
    ]


def _start(ledger: _Ledger) -> None:
    ledger.state = load("fair", b"".join(dump(ledger.state)))


def _mechanism(draws: random.Random, mixed: bool) -> dict[str, Any]:
    if mixed and draws.random() < 0.5:
        scale = f"{draws.randint(1, 1_000) / 1_000:.3f}"
        return {"kind": "laplace", "sensitivity": "1", "scale": scale}
    epsilon = f"{draws.randint(5, 900_000) / 1000:.3f}"
    return {"kind": "declared", "epsilon": epsilon, "delta": "0"}


def _group(draws: random.Random, mixed: bool) -> dict[str, Any]:
    kind = draws.randrange(4) if mixed else 0
    if kind == 1:  # some values of each dimension
        listed = (sorted(draws.sample(range(100), 4)) for _ in range(2))
        one, two = ([f"v{i}" for i in each] for each in listed)
        return {"subjects": {"one": one, "two": two}}
    if kind == 2:  # a union
        return {"subjects": [_term(draws), _term(draws)]}
    return {} if kind == 3 else {"subjects": _term(draws)}


def _term(draws: random.Random) -> dict[str, Any]:
    """Return values from one to another on both dimensions."""
    ends = (sorted(draws.sample(range(100), 2)) for _ in range(2))
    one, two = ({"from": f"v{first}", "to": f"v{last}"} for first, last in ends)
    return {"one": one, "two": two}
