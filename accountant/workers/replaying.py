"""Replay on every core: each process folds all events, and decides its share of them again.

One process decides a run of events again and compares bytes (``Replay.decide``); the others fold it
in as it says (``Replay.believe``), in a third of the time. If every event is what the state before
it decides, all are, by induction, whichever process has checked that state; so the findings are
those of one process. In the end all processes must have come to the same state, to the byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from importlib import import_module
from typing import Final

from accountant.budget.grants import Grants
from accountant.budget.idempotency import IdempotencyIndex
from accountant.budget.replay import Discrepancy, Replay, replay
from accountant.budget.rules import home_made
from accountant.budget.snapshot import dump
from accountant.budget.state import State
from accountant.workers.helpers import Helpers, Parent, cores

WORTH: Final = 20_000  # Events that take longer to decide again than a process takes to start
_RUN: Final = 256
_RUN_BYTES: Final = 1 << 18  # A run ends with the event that reaches either
_AHEAD: Final = 4  # Runs that were handed out and are not taken up here yet
_BELIEVING: Final = 0.3  # What it takes to fold an event in as it says, beside deciding it again
_BACKLOG: Final = 64  # Runs that may wait for a helper that cannot keep up

Run = list[bytes]


def _digest(state: State) -> bytes:
    """Return the digest of all that a snapshot of the state holds, without a copy of the whole."""
    batch = state.batch and state.batch.so_far
    made = sha256(repr((batch, state.grants.legend())).encode())
    hollow = Grants()
    hollow.open = state.grants.open
    rest = replace(state, grants=hollow, idempotency=IdempotencyIndex(), batch=None)
    for parts in (state.grants.dump, state.idempotency.dump, partial(dump, rest)):
        for part in parts():
            made.update(part)
    return made.digest()


def replay_on(
    ledger: str, bodies: Iterable[bytes], expected: int, processes: int | None = None
) -> Iterator[Replay]:
    """Replay as ``budget.replay.replay``, on every core if that pays. A rule kind that only this
    process has registered keeps the replay in this process. Raises HelperError.
    """
    if processes is None:
        processes = cores() if expected >= WORTH else 1
    if processes < 2 or home_made():
        yield from replay(ledger, bodies)
        return
    with Helpers("accountant.workers.replaying", processes - 1) as helpers:
        yield from Shared(ledger, helpers).run(bodies)


class Shared:
    """A replay that is shared with helpers. Process 0 is this one."""

    def __init__(self, ledger: str, helpers: Helpers) -> None:
        self._helpers = helpers
        self._replay = Replay(State(ledger))
        self._owners: deque[int] = deque()  # The process that decides each run not reported yet
        self._found: list[deque[list[Discrepancy]]] = [
            deque() for _ in range(len(helpers.each) + 1)
        ]
        """The findings of each process in the runs that it decided, not reported yet."""
        self._posted: list[deque[int]] = [deque() for _ in helpers.each]
        """The process that decides each run that a helper has not taken up yet."""
        self._ends: dict[int, bytes] = {}  # The digests of the states that the helpers have come to
        self._sound = True
        for number in range(len(helpers.each)):
            helpers.post((ledger, number + 1), number)

    def run(self, bodies: Iterable[bytes]) -> Iterator[Replay]:
        """Replay, yielding the same Replay after every run that was taken up here."""
        ahead: deque[tuple[int, Run]] = deque()
        for run in _runs(bodies):
            owner = self._choose([one for one, _ in ahead])
            self._owners.append(owner)
            for posted in self._posted:
                posted.append(owner)
            self._helpers.post((owner, run))
            ahead.append((owner, run))
            self._exchange()
            if len(ahead) > _AHEAD:
                yield self._take(*ahead.popleft())
        while ahead:
            self._exchange()
            yield self._take(*ahead.popleft())
        while any(self._posted):
            self._exchange(wait=True)
        self._report().end()
        if self._sound:  # what was forged may lead to a state that has no bytes
            self._compare()
        yield self._replay

    def _choose(self, mine: list[int]) -> int:
        """Return the process that has the least to do; of several the last."""
        loads = [
            (sum(1.0 if owner == process else _BELIEVING for owner in owners), -process)
            for process, owners in enumerate([mine, *self._posted])
        ]
        return -min(loads)[1]

    def _exchange(self, *, wait: bool = False) -> None:
        """Take what helpers have found; wait for those that have too much to do."""
        while True:
            for number, message in self._helpers.exchange(wait=wait):
                if isinstance(message, bytes):
                    self._ends[number] = message
                elif self._posted[number].popleft() == number + 1:
                    self._found[number + 1].append(message)
            if all(len(posted) < _BACKLOG for posted in self._posted):
                return
            wait = True

    def _take(self, owner: int, run: Run) -> Replay:
        found = _taken(self._replay, 0, owner, run)
        if owner == 0:
            self._found[0].append(found)
        return self._report()

    def _report(self) -> Replay:
        """Report what was found, in order, as far as it is known."""
        while self._owners and (found := self._found[self._owners[0]]):
            reported = found.popleft()
            self._replay.findings += reported
            self._sound &= not reported
            self._owners.popleft()
        return self._replay

    def _compare(self) -> None:
        """Compare the states that all processes have come to."""
        self._helpers.post(None)
        while len(self._ends) < len(self._helpers.each):
            self._exchange(wait=True)
        if {_digest(self._replay.state)} != {*self._ends.values()}:
            reason = "processes that folded the same events have come to different states"
            self._replay.findings.append(Discrepancy(self._replay.events - 1, reason))


def _taken(mine: Replay, process: int, owner: int, run: Run) -> list[Discrepancy]:
    """Take up a run, as process ``process``; return what was found in it."""
    before, mine.findings = mine.findings, []
    take = mine.decide if owner == process else mine.believe
    take(run)
    found, mine.findings = mine.findings, before
    return found


def _runs(bodies: Iterable[bytes]) -> Iterator[Run]:
    run: Run = []
    size = 0
    for body in bodies:
        run.append(body)
        size += len(body) if isinstance(body, bytes) else 0  # a database may hand out anything
        if len(run) >= _RUN or size >= _RUN_BYTES:
            yield run
            run, size = [], 0
    if run:
        yield run


class Helping:
    """A helper's part of the replay of ``ledger``: process ``number``."""

    def __init__(self, ledger: str, number: int) -> None:
        self._replay, self._number = Replay(State(ledger)), number

    def answer(self, message: tuple[int, Run] | None) -> list[Discrepancy] | bytes:
        """Take up a run; return its findings if it is this one's. At the end, return the digest."""
        if message is None:
            return _digest(self._replay.state)
        return _taken(self._replay, self._number, *message)


def help_parent() -> None:
    """Be a helper, until the parent needs none any more."""
    parent = Parent()
    messages = iter(parent)
    helping = Helping(*next(messages))
    for message in messages:
        parent.post(helping.answer(message))


if __name__ == "__main__":
    # Messages name their classes by the module, which must not be called __main__ here.
    import_module("accountant.workers.replaying").help_parent()
