"""Deciding the requests of the last days again, under another policy, beside the service.

It takes as long as reading the ledger does. So it is done by a process of its own, one trial after
another, within bounded time; whoever asks is told that it is being worked out, and asks again. What
came of it is kept for some minutes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from importlib import import_module
from threading import Lock, Thread
from time import monotonic
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from accountant.budget import snapshot
from accountant.budget.apply import apply
from accountant.budget.errors import Problem
from accountant.budget.policy_file import parse_policy
from accountant.budget.reading import read
from accountant.budget.rules import home_made
from accountant.budget.state import State
from accountant.budget.trials.backtest import Backtest, Compared
from accountant.ledger.events import Event, rfc3339
from accountant.runtime import cores
from accountant.store.ledgers import Ledgers
from accountant.store.opening import open_ledgers
from accountant.workers.helpers import HelperError, Helpers, Parent

WORTH: Final = 500
"""Events from which on a process of its own works it out."""
LONGEST: Final = 90.0
"""Seconds that one trial may take."""
KEPT: Final = 300.0
"""Seconds for which what came of a trial is kept."""
MOST_WAITING: Final = 8
MOST_LISTED: Final = 50
"""Requests that are listed of those that would be answered otherwise."""
MOST_NAMES: Final = 1_000
_MOST_STATES: Final = 2
_MOST_SUMS: Final = 1_000_000
"""Sums of cells in all accounts up to which a state is kept; each has some hundred bytes."""
_OFTEN: Final = 200
"""Events that are read before the time is looked at."""
_LOWER: Final = 15
"""How much later than the service the process gets its turn (``nice``): later than the one that
makes pages, for which somebody waits.
"""


class Asked(NamedTuple):
    """A trial of the policy of ``text`` on the requests from stamp ``since`` on."""

    population: str
    text: str
    since: int


class Otherwise(Struct, frozen=True):
    """A request that would be answered otherwise: allow, flag, approve or block, because of a rule
    ("" if none fired).
    """

    sequence: int
    time: str
    by: str
    dataset: str
    then: str
    now: str
    rule: str


class Looked(Struct, frozen=True, kw_only=True):
    """What a trial has found. ``whole``: all requests since then were decided again; otherwise only
    those up to event ``last``. ``on``: by dataset, how many requests named it, how many of these
    were refused, and would be.
    """

    since: str
    last: int
    whole: bool
    requests: int
    refused_then: int
    refused_now: int
    moved: dict[str, int]
    """By what they were told and would be told: "block allow"."""
    clients: dict[str, int]
    """By client, of those that would be answered otherwise; the most first."""
    rules: dict[str, int]
    """By rule, of those that it would refuse; the most first."""
    on: dict[str, tuple[int, int, int]]
    otherwise: tuple[Otherwise, ...]
    differ: int
    unused: tuple[str, ...]
    """Rules that would have decided nothing."""
    seconds: float = 0
    """How long it took to work this out."""


class Working(NamedTuple):
    """It is being worked out, for so many seconds now."""

    seconds: float


class Failed(NamedTuple):
    """Why it was not worked out, in words."""

    why: str


class _TooLongError(Exception):
    """Reading what was before took too long."""


class Trier:
    """Tries policies on the ledgers of one database. Not for several threads. What a ledger was at
    the beginning of a trial is kept, for the next one from there.
    """

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers = ledgers
        self._begun: dict[tuple[str, int], bytes] = {}

    def answer(self, asked: Asked) -> Looked | Failed:
        """Return what a trial finds. Raise StoreError, or ValueError for a damaged ledger."""
        begun = monotonic()
        until = begun + LONGEST
        try:
            policy, _ = parse_policy(asked.text)
            state = self._before(asked, until)
            if state.population is None:
                return Failed("The ledger has no population yet, and so no request.")
            tested = Backtest(state)
            first = state.sequence
            tested.adopt(policy, max(asked.since, state.time))
            # The adoption took a place that it has not in the ledger.
            events = map(Event.from_bytes, _bodies(self._ledgers, asked.population, first))
            found = _looked(asked, tested, events, until)
            return replace(found, seconds=monotonic() - begun)
        except Problem as problem:
            return Failed(f"{problem.detail[:1].upper()}{problem.detail[1:]}.")
        except _TooLongError as error:
            return Failed(str(error))

    def _before(self, asked: Asked, until: float) -> State:
        """Return the state in which the trial begins. A batch is never cut."""
        place = asked.population, asked.since
        if (kept := self._begun.get(place)) is not None:
            return snapshot.load(asked.population, kept)
        state = State(asked.population)
        for number, body in enumerate(_bodies(self._ledgers, asked.population, 0)):
            event = Event.from_bytes(body)
            if event.time >= asked.since and state.population is not None and state.batch is None:
                break
            apply(state, read(state, event, body))
            if number % _OFTEN == 0 and monotonic() >= until:
                raise _TooLongError(
                    f"Reading the ledger took more than {LONGEST:.0f} seconds: {number:,} events "
                    "were read. Run accountant policy backtest beside the database instead."
                )
        if _sums(state) <= _MOST_SUMS:
            while len(self._begun) >= _MOST_STATES:
                del self._begun[next(iter(self._begun))]
            self._begun[place] = b"".join(snapshot.dump(state))
        return state


def _sums(state: State) -> int:
    cells = 1
    if state.population is not None:
        cells = state.people().cells if state.classes is None else state.classes.count
    return cells * len(state.accounts)


def _bodies(ledgers: Ledgers, population: str, after: int) -> Iterator[bytes]:
    return (row.body for row in ledgers.stream(population, after))


class _Timed:
    """Events until the time is over, but whole batches."""

    def __init__(self, events: Iterable[Event], until: float) -> None:
        self._events, self._until = events, until
        self.last, self.whole = -1, True

    def __iter__(self) -> Iterator[Event]:
        inside = 0
        for number, event in enumerate(self._events):
            if not inside and number % _OFTEN == 0 and monotonic() >= self._until:
                self.whole = False
                return
            inside = max(0, inside - 1)
            if event.type == "batch.opened.v1":
                inside = event.body["command"]["size"]
            self.last = event.sequence
            yield event


def _looked(asked: Asked, tested: Backtest, events: Iterable[Event], until: float) -> Looked:
    timed = _Timed(events, until)
    moved, clients, rules = Counter[str](), Counter[str](), Counter[str]()
    on: dict[str, list[int]] = {}
    listed: list[Otherwise] = []
    decided = set[str]()
    for one in tested.compare(timed):
        then, now = one.then.outcome, one.now.outcome
        moved[f"{then} {now}"] += 1
        decided |= {one.now.rule or ""}
        if now == "block":
            rules[one.now.rule or ""] += 1
        for name in one.dataset.split(", "):
            if name in on or len(on) < MOST_NAMES:
                counts = on.setdefault(name, [0, 0, 0])
                counts[0] += 1
                counts[1] += then == "block"
                counts[2] += now == "block"
        if then != now:
            clients[one.by] += 1
            if len(listed) < MOST_LISTED:
                listed.append(_otherwise(one))
    adopted = tested.state.adopted
    names = [rule.id for rule in adopted.policy.rules] if adopted else []
    return Looked(
        since=rfc3339(asked.since),
        last=timed.last,
        whole=timed.whole,
        requests=moved.total(),
        refused_then=sum(n for key, n in moved.items() if key.startswith("block ")),
        refused_now=sum(n for key, n in moved.items() if key.endswith(" block")),
        moved=dict(moved),
        clients=dict(clients.most_common(MOST_LISTED)),
        rules=dict(rules.most_common(MOST_LISTED)),
        on={name: (a, b, c) for name, (a, b, c) in on.items()},
        otherwise=tuple(listed),
        differ=clients.total(),
        unused=tuple(name for name in names if name not in decided),
    )


def _otherwise(one: Compared) -> Otherwise:
    return Otherwise(
        sequence=one.sequence,
        time=rfc3339(one.time),
        by=one.by,
        dataset=one.dataset,
        then=one.then.outcome,
        now=one.now.outcome,
        rule=one.now.rule or one.then.rule or "",
    )


class _Job(NamedTuple):
    future: Future[Looked | Failed]
    begun: float
    ended: list[float]


class Trials:
    """Tries policies for the pages of a service. Thread-safe."""

    def __init__(self, ledgers: Ledgers) -> None:
        self._ledgers, self._lock, self._one = ledgers, Lock(), Lock()
        self._jobs: dict[Asked, _Job] = {}
        self._helpers: Helpers | None = None
        self._near = Trier(ledgers)

    def ask(self, asked: Asked, patience: float = 0.25) -> Looked | Working | Failed:
        """Return what came of a trial, or how far it is after ``patience`` seconds."""
        with self._lock:
            self._forget()
            if (job := self._jobs.get(asked)) is None:
                if sum(not one.ended for one in self._jobs.values()) >= MOST_WAITING:
                    return Failed("Other trials are being worked out; try again in a minute.")
                job = self._jobs[asked] = _Job(Future(), monotonic(), [])
                Thread(target=self._run, args=(asked, job), daemon=True).start()
        try:
            return job.future.result(timeout=patience)
        except NotYet:
            return Working(monotonic() - job.begun)

    def close(self) -> None:
        """End the process, and what it works at."""
        if (helpers := self._helpers) is not None:
            helpers.close()

    def _run(self, asked: Asked, job: _Job) -> None:
        with self._one:
            found = self._work(asked)
        job.ended.append(monotonic())
        job.future.set_result(found)

    def _forget(self) -> None:
        now = monotonic()
        self._jobs = {
            asked: job
            for asked, job in self._jobs.items()
            if not job.ended or now - job.ended[0] < KEPT
        }

    def _work(self, asked: Asked) -> Looked | Failed:
        """Work in the process, or here: on few events, and where that knows other rules."""
        try:
            size = self._ledgers.head(asked.population).size
            if size < WORTH or home_made() or os.name != "posix":
                return self._near.answer(asked)
            return self._far(asked)
        except Exception as error:  # noqa: BLE001 whoever asked is told
            return Failed(f"It was not worked out: {error}.")

    def _far(self, asked: Asked) -> Looked | Failed:
        try:
            if self._helpers is None:
                self._helpers = Helpers("accountant.reporting.trying", 1)
                self._helpers.post((self._ledgers.url, cores.USABLE))
            self._helpers.post(asked)
            [(_, answer)] = self._helpers.exchange(wait=True)
        except HelperError as error:
            self._helpers = None
            return Failed(f"It was not worked out: {error}.")
        found: Looked | Failed = answer
        return found


def help_service() -> None:
    """Answer what the parent asks, after everything else that wants a core."""
    parent = Parent()
    messages: Iterator[Any] = iter(parent)
    url, usable = next(messages)
    os.nice(_LOWER)
    with suppress(OSError, AttributeError):
        os.sched_setaffinity(0, usable)
    ledgers = open_ledgers(url)
    trier = Trier(ledgers)
    try:
        for asked in messages:
            try:
                answer = trier.answer(asked)
            except Exception as error:  # noqa: BLE001 the page says it
                answer = Failed(f"It was not worked out: {type(error).__name__}: {error}.")
            parent.post(answer)
    finally:
        ledgers.close()


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.reporting.trying").help_service()
