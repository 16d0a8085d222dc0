"""Answers a batch of commands in order, in one unit of work, each with an outcome of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from accountant.auth.keys import Credentials
from accountant.budget.commands import Envelope, RegisterPopulation
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem, Unavailable
from accountant.runtime.command_queue import Waiting
from accountant.runtime.unit_of_work import Answer, UnitOfWork
from accountant.store.ledgers import Moved, Unknown

_ATTEMPTS: Final = 5  # How often a batch is decided while other processes move the ledger's head
_LONGEST: Final = 0.1  # Seconds until a batch is committed; the commands left go into the next
Transactions = Callable[..., AbstractContextManager[UnitOfWork]]
"""Opens a unit of work (``Service.writing``); raises Moved if another process was first."""


class Dispatcher:
    """Answers batches, each command under a key that is valid when it is decided."""

    def __init__(self, writing: Transactions, credentials: Credentials) -> None:
        self._writing, self._credentials = writing, credentials

    def answer(self, ledger: str, batch: list[Waiting]) -> None:
        """Give each command its outcome. An error of one command concerns no other."""
        left, light, reason = batch, True, ""
        for _ in range(_ATTEMPTS):
            try:
                while left:
                    left = self._unit(ledger, left, light=light)
            except Moved as moved:
                light, reason = False, _given_up(moved)
                continue  # another process was first: decide again, after its events
            except Problem as problem:
                for one in left:
                    one.outcome = one.outcome or _bare(problem)
            return
        for one in left:
            one.outcome = one.outcome or Unavailable("storage-failed", reason)

    def _unit(self, ledger: str, batch: list[Waiting], *, light: bool) -> list[Waiting]:
        """Answer commands in one unit of work, ``light`` if it may be; return those left over."""
        outcomes: list[Answer | Problem] = []
        culprit: Waiting | None = None
        opens = opening([one.asked for one in batch])
        deadline = time.monotonic() + _LONGEST
        try:
            with self._writing(ledger, opens=opens, light=light) as unit:
                unit.upgrade(SYSTEM)
                if any(one.key is not None for one in batch):
                    self._credentials.refresh(unit.writing.beside)
                    admitted = self._admitted(batch)
                    if len(admitted) < len(batch):
                        unit.writing.lock()  # no refusal rests on a state that is only believed
                    batch = admitted
                unit.work_out([one.asked for one in batch])
                for culprit in batch:
                    try:
                        outcomes.append(unit.answer(culprit.asked))
                    except Problem as problem:
                        outcomes.append(_bare(problem))
                    if time.monotonic() > deadline:
                        break
                culprit = None
        except (Problem, Moved):
            raise
        except Exception as error:  # noqa: BLE001 it concerns no other command
            for one in batch if culprit is None else [culprit]:
                one.outcome = error
            return [one for one in batch if one.outcome is None]
        for one, outcome in zip(batch, outcomes, strict=False):
            one.outcome = outcome
        return batch[len(outcomes) :]

    def _admitted(self, batch: list[Waiting]) -> list[Waiting]:
        """Return the commands whose keys are still valid; give the others their outcome."""
        known = self._credentials.remembered
        for one in batch:
            if one.key is not None and known(one.key) is None:
                text = self._credentials.why_not(one.key)
                one.outcome = Problem("unauthenticated", text)
        return [one for one in batch if one.outcome is None]


def _bare(problem: Problem) -> Problem:
    """Return a problem without its traceback and those of what caused it: by one of them it would
    keep, in a cycle, all objects of its unit.
    """
    cause: BaseException | None = problem
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return problem


def _given_up(moved: Moved) -> str:
    """Say why a batch was not committed, after the last attempt."""
    if isinstance(moved.__cause__, Unknown):
        why = f"the ledger could not be written to ({moved}); nothing of this was recorded"
    else:
        why = "other processes keep writing to this ledger"
    return f"{why}: try again with the same Idempotency-Key"


def opening(commands: Sequence[Envelope]) -> bool:
    """Return whether one of the commands may be the first of a ledger."""
    return any(isinstance(asked.command, RegisterPopulation) for asked in commands)
