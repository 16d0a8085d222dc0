"""Commands that wait are answered together: in order, within one transaction, each with an outcome
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Final, Protocol

from accountant.budget.commands import Asked, RegisterPopulation
from accountant.budget.decide import SYSTEM
from accountant.budget.errors import Problem, Unavailable
from accountant.credentials import Credentials
from accountant.rounds import Answer, Round
from accountant.sequencer import Waiting
from accountant.store.ledgers import Moved

_ATTEMPTS: Final = 5
"""How often a batch is decided if others move the ledger's head meanwhile."""
_LONGEST: Final = 0.1
"""Seconds after which a batch is committed; who is left goes on in the next."""


class Turns(Protocol):
    """Opens a transaction on a ledger, which commits at the end; raises Moved if somebody else was
    first.
    """

    def __call__(self, ledger: str, *, opens: bool = False) -> AbstractContextManager[Round]: ...  # noqa: D102


class Answering:
    """Answers batches, under keys that are valid when they are decided."""

    def __init__(self, writing: Turns, credentials: Credentials) -> None:
        self._writing, self._credentials = writing, credentials

    def answer(self, ledger: str, batch: list[Waiting]) -> None:
        """Gives each command its outcome. What fails fails alone; what fails together, together."""
        left = batch
        for _ in range(_ATTEMPTS):
            try:
                while left:
                    left = self._round(ledger, left)
            except Moved:
                continue  # another process was first: decide again, from what it wrote
            except Problem as problem:
                for one in left:
                    one.outcome = problem
            return
        moved = "others write to this ledger all the time; try again with the same Idempotency-Key"
        for one in left:
            one.outcome = Unavailable("storage-failed", moved)

    def _round(self, ledger: str, batch: list[Waiting]) -> list[Waiting]:
        """One transaction; who is left for the next."""
        outcomes: list[tuple[Waiting, Answer | Problem]] = []
        culprit: Waiting | None = None
        opens = opening([one.asked for one in batch])
        deadline = time.monotonic() + _LONGEST
        try:
            with self._writing(ledger, opens=opens) as turn:
                turn.go_over(SYSTEM)
                if any(one.key is not None for one in batch):
                    self._credentials.refresh(turn.writing.beside)
                for one in batch:
                    culprit = one
                    try:
                        outcomes.append((one, self._told_one(turn, one)))
                    except Problem as problem:
                        outcomes.append((one, problem))
                    culprit = None
                    if time.monotonic() > deadline:
                        break
        except (Problem, Moved):
            raise
        except Exception as error:  # noqa: BLE001 whatever it is, the others are not to blame
            for one in batch if culprit is None else [culprit]:
                one.outcome = error
            return [one for one in batch if one.outcome is None]
        for one, outcome in outcomes:
            one.outcome = outcome
        return batch[len(outcomes) :]

    def _told_one(self, turn: Round, one: Waiting) -> Answer:
        """The answer to one command, unless its key was revoked since it was looked at."""
        if one.key is not None and self._credentials.remembered(one.key) is None:
            raise Problem("unauthenticated", "the key is not valid, or was revoked")
        return turn.answer(one.asked)


def opening(commands: Sequence[Asked]) -> bool:
    """Whether one of them may be the first of a ledger."""
    return any(isinstance(asked.command, RegisterPopulation) for asked in commands)
