"""Commands that wait are answered together: in order, within one transaction, each with an outcome
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, Protocol

from accountant.auth.credentials import Credentials
from accountant.budget.commands import Asked, RegisterPopulation
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem, Unavailable
from accountant.runtime.command_queue import Waiting
from accountant.runtime.unit_of_work import Answer, Round
from accountant.store.ledgers import Moved

_ATTEMPTS: Final = 5
"""How often a batch is decided if others move the ledger's head meanwhile."""
_LONGEST: Final = 0.1
"""Seconds after which a batch is committed; who is left goes on in the next."""


class Turns(Protocol):
    """Opens a transaction on a ledger, which commits at the end; raises Moved if somebody else was
    first.
    """

    def __call__(  # noqa: D102
        self, ledger: str, *, opens: bool = False, light: bool = False
    ) -> AbstractContextManager[Round]: ...


class Answering:
    """Answers batches, under keys that are valid when they are decided."""

    def __init__(self, writing: Turns, credentials: Credentials) -> None:
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

    def _round(
        self, ledger: str, batch: list[Waiting], *, light: bool, alone: bool = False
    ) -> list[Waiting]:
        """One transaction; who is left for the next. ``light``: perhaps from what is in memory.
        ``alone``: one after another, so that it shows who is to blame.
        """
        steps = _Steps(alone=alone)
        opens = opening([one.asked for one in batch])
        deadline = time.monotonic() + _LONGEST
        try:
            with self._writing(ledger, opens=opens, light=light) as turn:
                turn.go_over(SYSTEM)
                if any(one.key is not None for one in batch):
                    self._credentials.refresh(turn.writing.beside)
                    admitted = self._admitted(batch)
                    if len(admitted) < len(batch):
                        turn.writing.begin()  # nobody is refused by what is only believed
                    batch = admitted
                asked = [one.asked for one in batch]
                while len(steps.outcomes) < len(asked):
                    steps.next(turn, asked)
                    if time.monotonic() > deadline:
                        break
        except (Problem, Moved):
            raise
        except Exception as error:  # noqa: BLE001 whatever it is, the others are not to blame
            if steps.together:
                return self._round(ledger, batch, light=light, alone=True)
            for one in batch if steps.culprit is None else [batch[steps.culprit]]:
                one.outcome = error
            return [one for one in batch if one.outcome is None]
        for one, outcome in zip(batch, steps.outcomes, strict=False):
            one.outcome = outcome
        return batch[len(steps.outcomes) :]

    def _admitted(self, batch: list[Waiting]) -> list[Waiting]:
        """Those whose keys are valid still; the others are told."""
        known = self._credentials.remembered
        for one in batch:
            if one.key is not None and known(one.key) is None:
                one.outcome = Problem("unauthenticated", "the key is not valid, or was revoked")
        return [one for one in batch if one.outcome is None]


@dataclass(slots=True)
class _Steps:
    """How far a round has come."""

    alone: bool
    outcomes: list[Answer | Problem] = field(default_factory=list)
    together: bool = False
    """Several are being answered in one step."""
    culprit: int | None = None
    """Who is being answered alone."""

    def next(self, turn: Round, asked: Sequence[Asked]) -> None:
        """Answers one more of those ``asked`` at least."""
        first = len(self.outcomes)
        self.together = not self.alone
        run = turn.answer_run(asked, first) if self.together else []
        self.together = False
        self.outcomes += run
        if run:
            return
        self.culprit = first
        try:
            self.outcomes.append(turn.answer(asked[first]))
        except Problem as problem:
            self.outcomes.append(_told(problem))
        self.culprit = None


def _told(problem: Problem) -> Problem:
    """An outcome that holds on to nothing: by its traceback it would keep the whole round, which
    keeps it, until the collector comes.
    """
    return problem.with_traceback(None)


def opening(commands: Sequence[Asked]) -> bool:
    """Whether one of them may be the first of a ledger."""
    return any(isinstance(asked.command, RegisterPopulation) for asked in commands)
