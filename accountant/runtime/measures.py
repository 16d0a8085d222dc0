"""What a running service counts in memory, from its start: events, and how long answers take.

A monitor reads both (``reporting/metrics.py``). Counting is on the way of every grant, so it takes
a fraction of a microsecond: what is the same is counted together, and told apart when somebody
looks.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import Final, NamedTuple

from accountant.budget.outcome import ADMITTED, RECORDED, REFUSED, RESERVED, TIMED_OUT, WAITING
from accountant.ledger.events import Entry

Fired = Sequence[Sequence[str]]
"""The rules that fired on a request, each with its code, as its event lists them."""
_MOST: Final = 1_024
"""Different combinations of rules before they are read: many rules fire in many ways."""
_THROUGH: Final = frozenset({RESERVED, ADMITTED, RECORDED})
_STOPPED: Final = frozenset({REFUSED, TIMED_OUT, "batch.refused.v1"})

BOUNDS: Final = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, inf),
)
"""The upper ends, in seconds, of the classes in which durations are counted."""
CALLS: Final = frozenset(
    {"grants", "commit", "release", "invocations", "batch", "preview", "answers", "close"}
)
"""How the paths end by which pipelines ask and report."""


def outcome_of(kind: str, *, fired: bool) -> str | None:
    """Return the outcome of the decision that an event of a type holds, by whether rules ``fired``:
    allow, flag, wait or block; None if it holds none.
    """
    if kind in _THROUGH:
        return "flag" if fired else "allow"
    if kind in _STOPPED:
        return "block"
    return "wait" if kind == WAITING else None


class Decided(NamedTuple):
    """What decisions are counted by; ``rule`` and ``code`` are empty in counts of all."""

    ledger: str
    outcome: str
    rule: str = ""
    code: str = ""


class Tally:
    """The events that were committed by this process. Thread-safe."""

    def __init__(self) -> None:
        self._raw: dict[tuple[str, str, tuple[tuple[str, ...], ...]], int] = {}
        self._events: Counter[tuple[str, str]] = Counter()
        self._decisions: Counter[Decided] = Counter()
        self._lock = threading.Lock()

    def add(self, ledger: str, entries: Iterable[Entry], fired: Iterable[Fired]) -> None:
        """Count events of a ledger, which are committed, each with the rules that fired."""
        with self._lock:
            raw = self._raw
            for (_, kind, _, _), rules in zip(entries, fired, strict=True):
                place = ledger, kind, tuple(map(tuple, rules)) if rules else ()
                raw[place] = raw.get(place, 0) + 1
            if len(raw) > _MOST:
                self._settle()

    def events(self) -> Counter[tuple[str, str]]:
        """Return how many events there were by ledger and type."""
        with self._lock:
            self._settle()
            return Counter(self._events)

    def decisions(self) -> Counter[Decided]:
        """Return how many decisions there were, and in how many of them each rule fired."""
        with self._lock:
            self._settle()
            return Counter(self._decisions)

    def _settle(self) -> None:
        for (ledger, kind, fired), count in self._raw.items():
            self._events[ledger, kind] += count
            if (outcome := outcome_of(kind, fired=bool(fired))) is not None:
                self._decisions[Decided(ledger, outcome)] += count
                for rule, code in fired:
                    self._decisions[Decided(ledger, outcome, rule, code)] += count
        self._raw.clear()


class Durations(NamedTuple):
    """How many answers took how long: a count for each of ``BOUNDS``, and the sum in seconds."""

    counts: list[int]
    total: float


class Latencies:
    """How long answers take, by call and status. One thread observes, others read."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], list[float]] = {}
        """A count for each of ``BOUNDS``, then the sum in seconds."""

    def observe(self, method: str, path: str, status: int, took: float) -> None:
        """Count an answer that took some seconds."""
        call = path[path.rfind("/") + 1 :] if method == "POST" else ""
        found = self._found.get((call, status)) or self._begun(call, path, status)
        found[bisect_left(BOUNDS, took)] += 1
        found[-1] += took

    def _begun(self, call: str, path: str, status: int) -> list[float]:
        if call not in CALLS:
            call = "console" if path.startswith("/console") else "other"
        return self._found.setdefault((call, status), [0] * (len(BOUNDS) + 1))

    def durations(self) -> dict[tuple[str, int], Durations]:
        """Return what was counted, by call and status."""
        found = {place: list(each) for place, each in list(self._found.items())}
        return {p: Durations(list(map(int, each[:-1])), each[-1]) for p, each in found.items()}
