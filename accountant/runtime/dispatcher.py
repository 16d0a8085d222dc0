"""Commands that wait are answered together: in order, within one transaction, each with an outcome
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from accountant.auth.keys import Credentials
from accountant.budget.commands import Envelope, RegisterPopulation
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem, Unavailable
from accountant.runtime.command_queue import Waiting
from accountant.runtime.unit_of_work import Answer, UnitOfWork
from accountant.store.ledgers import Moved

_ATTEMPTS: Final = 5
"""How often a batch is decided if others move the ledger's head meanwhile."""
_LONGEST: Final = 0.1
"""Seconds after which a batch is committed; who is left goes on in the next."""


class Transactions(Protocol):
    """Opens a transaction on a ledger, which commits at the end; raises Moved if somebody else was
    first.
    """

    def __call__(  # noqa: D102
        self, ledger: str, *, opens: bool = False, light: bool = False
    ) -> AbstractContextManager[UnitOfWork]: ...


class Dispatcher:
    """Answers batches, under keys that are valid when they are decided."""

    def __init__(self, writing: Transactions, credentials: Credentials) -> None:
        self._writing, self._credentials = writing, credentials

    def answer(self, ledger: str, batch: list[Waiting]) -> None:
        """Gives each command its outcome. What fails fails alone; what fails together, together."""
        left, light = batch, True
        for _ in range(_ATTEMPTS):
            try:
                while left:
                    left = self._round(ledger, left, light=light)
            except Moved:
                light = False
                continue  # another process was first: decide again, from what it wrote
            except Problem as problem:
                for one in left:
                    one.outcome = _told(problem)
            return
        moved = "others write to this ledger all the time; try again with the same Idempotency-Key"
        for one in left:
            one.outcome = Unavailable("storage-failed", moved)

    def _round(self, ledger: str, batch: list[Waiting], *, light: bool) -> list[Waiting]:
        """One transaction; who is left for the next. ``light``: perhaps from what is in memory."""
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
                        unit.writing.begin()  # nobody is refused by what is only believed
                    batch = admitted
                unit.work_out([one.asked for one in batch])
                for culprit in batch:
                    outcomes.append(_answered(unit, culprit.asked))
                    if time.monotonic() > deadline:
                        break
                culprit = None
        except (Problem, Moved):
            raise
        except Exception as error:  # noqa: BLE001 whatever it is, the others are not to blame
            for one in batch if culprit is None else [culprit]:
                one.outcome = error
            return [one for one in batch if one.outcome is None]
        for one, outcome in zip(batch, outcomes, strict=False):
            one.outcome = outcome
        return batch[len(outcomes) :]

    def _admitted(self, batch: list[Waiting]) -> list[Waiting]:
        """Those whose keys are valid still; the others are told."""
        known = self._credentials.remembered
        for one in batch:
            if one.key is not None and known(one.key) is None:
                one.outcome = Problem("unauthenticated", "the key is not valid, or was revoked")
        return [one for one in batch if one.outcome is None]


def _answered(unit: UnitOfWork, asked: Envelope) -> Answer | Problem:
    try:
        return unit.answer(asked)
    except Problem as problem:
        return _told(problem)


def _told(problem: Problem) -> Problem:
    """An outcome that holds on to nothing: by its traceback it would keep the whole round, which
    keeps it, until the collector comes.
    """
    return problem.with_traceback(None)


def opening(commands: Sequence[Envelope]) -> bool:
    """Whether one of them may be the first of a ledger."""
    return any(isinstance(asked.command, RegisterPopulation) for asked in commands)
