"""An adversary who plays against a whole ledger, and sees every answer before each next move.

The ledger is a real one and decides by itself: what may run, what counts, what comes back. The
player asks, waits, holds grants back, returns them and changes policies as it likes. What runs
are finite mechanisms, each exactly as private as it is charged for, whose answers move the privacy
loss by whole ``STEP``s or tell everything. Which moves there are does not depend on answers, only
which one the player takes; so each state of the ledger is looked at once, and has the most that the
player can reach from it for every loss so far. What is reached is the exact delta, at the epsilon
that is promised, of the best strategy of all: a promise of (epsilon, delta) keeps it within delta.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from math import comb, exp
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from support import Book

from accountant.budget.accounts.account import Account
from accountant.budget.accounts.window import WindowAccount
from accountant.budget.apply import keep_journal, rollback
from accountant.budget.snapshot import dump, load

Values = NDArray[np.float64]
"""By loss, from ``-PLACES`` to ``PLACES`` steps."""

STEP: Final = Fraction(1, 20)
PLACES: Final = 160
LOSSES: Final = np.arange(-PLACES, PLACES + 1) * float(STEP)
ROUNDING: Final = 1e-12
"""Of some hundred sums of floats below one."""
GRANTED: Final = "grant.reserved.v1"

sys.setrecursionlimit(10_000)


@dataclass(frozen=True)
class Tells:
    """What one run tells: with which probability, on the data in question, the loss moves by how
    many steps. With the probability that is left everything is told.
    """

    answers: tuple[tuple[float, int], ...] = ((1.0, 0),)

    def before(self, after: Values) -> Values:
        """What is reached before the run, by what is reached after it."""
        told = 1 - sum(chance for chance, _ in self.answers)
        found = np.full(len(after), max(told, 0.0))
        for chance, moves in self.answers:
            assert abs(moves) < PLACES
            at = np.clip(np.arange(len(after)) + moves, 0, len(after) - 1)
            found += chance * after[at]
        return found


NOTHING: Final = Tells()


def response(steps: int, count: int = 1) -> Tells:
    """Randomised response, ``count`` times: the hardest (steps x STEP)-private mechanism."""
    up = 1 / (1 + exp(-steps * float(STEP)))
    ways = ((k, comb(count, k) * up**k * (1 - up) ** (count - k)) for k in range(count + 1))
    return Tells(tuple((chance, (2 * k - count) * steps) for k, chance in ways))


@cache
def rare(steps: int, categories: int) -> tuple[dict[str, Any], Tells]:
    """Randomised response of so many ``categories``: few answers tell anything, but those much."""
    with localcontext(prec=40):
        odds = (Decimal(steps) * Decimal(str(float(STEP)))).exp()
        theta = odds / (odds + categories - 1)
    body = {"kind": "randomized_response", "theta": str(theta + Decimal("1e-39"))}
    p = float(theta)
    q = p / float(odds)
    return body | {"categories": categories}, Tells(((p, steps), (q, -steps), (1 - p - q, 0)))


@dataclass
class Table:
    """Where the game stands: the ledger, and what the player keeps in mind of its own doing.

    ``books`` has one ledger. More stand for a desk that grants what one of them grants, and books
    it in all: a wrong filter made of right ones, for the player to show itself on.
    """

    books: list[Book]
    mind: tuple[Any, ...] = ()

    @property
    def book(self) -> Book:
        """The ledger."""
        return self.books[0]

    def ask(self, *mechanisms: dict[str, Any], **more: Any) -> bool:
        """Whether a request is granted."""
        events = [book.grant(*mechanisms, **more) for book in self.books]
        granted = [event.type == GRANTED for event in events]
        for book, one in zip(self.books, granted, strict=True):
            if any(granted) and not one:
                book.record(*mechanisms, **more)
        return any(granted)

    @property
    def stands(self) -> tuple[Any, ...]:
        """All that later decisions depend on."""
        return (*map(_stands, self.books), self.mind)


def _stands(book: Book) -> tuple[Any, ...]:
    state = book.state
    epochs = state.adopted.epochs if state.adopted else {}
    accounts = [
        (key._replace(epoch=0), account.at(book.now).used.stacked().tobytes(), _passing(account))
        for key, account in state.accounts.items()
        if not key.rule or (key.rule in epochs and key.epoch == epochs[key.rule].number)
    ]
    opened = [(grant.total, grant.expires, len(grant.bookings)) for grant in state.open.values()]
    waiting = [(one.id, one.command, one.expires) for one in state.waiting.in_order()]
    arrived = [(key, one.counts.stacked().tobytes()) for key, one in state.arrivals.items()]
    rules = [(name, one.gate.name, one.limit, one.window) for name, one in epochs.items()]
    return book.now, *map(tuple, (sorted(accounts), opened, waiting, arrived, rules))


def _passing(account: Account) -> tuple[Any, ...]:
    return tuple(account.entries()) if isinstance(account, WindowAccount) else ()


Act = Callable[[Table], "Tells | None"]
"""Makes a move and says what it tells; None if it cannot be made."""


@dataclass
class Game:
    """A promise of ``epsilon``, and the moves that there are: any of ``moves``, and of each family,
    from small to large, the largest that is granted. ``most``: so many moves; None: no end but
    that which the ledger sets.
    """

    epsilon: Fraction
    moves: Sequence[Act]
    families: Sequence[Sequence[Act]] = ()
    most: int | None = None
    known: dict[tuple[Any, ...], Values] = field(default_factory=dict)

    @property
    def stop(self) -> Values:
        """What is reached without another move: how far a loss is beyond the promise counts."""
        return np.maximum(0.0, 1 - np.exp(float(self.epsilon) - LOSSES))

    def best(self, table: Table, left: int | None) -> Values:
        """The most that the player can reach from here, for every loss so far."""
        if left == 0:
            return self.stop
        here = *table.stands, left
        if (found := self.known.get(here)) is not None:
            return found
        best, fewer = self.stop, None if left is None else left - 1
        for move in self._worth_trying(table):
            with tried(table, move) as (tells, after):
                if tells is not None:
                    best = np.maximum(best, tells.before(self.best(after, fewer)))
        self.known[here] = best
        return best

    def _worth_trying(self, table: Table) -> Iterator[Act]:
        yield from self.moves
        for family in self.families:
            low, high = 0, len(family)  # those below low are granted
            while low < high:
                middle = (low + high) // 2
                with tried(table, family[middle]) as (tells, _):
                    low, high = (middle + 1, high) if tells is not None else (low, middle)
            yield from family[low - 1 : low]

    def reached(self, *books: Book) -> float:
        """The exact delta of the best strategy against ledgers as they are."""
        for book in books:
            keep_journal(book.state)
        return float(self.best(Table(list(books)), self.most)[PLACES])


@contextmanager
def tried(table: Table, move: Act) -> Iterator[tuple[Tells | None, Table]]:
    """Makes a move, if it can be made, and takes it back."""
    if getattr(move, "adopts", False):
        after = Table(_copies(table), table.mind)
        yield move(after), after
        return
    held = [(len(b.state.journal or ()), b.now, b.keys, len(b.stored)) for b in table.books]
    after = Table(table.books, table.mind)
    yield move(after), after
    for book, (mark, now, keys, size) in zip(table.books, held, strict=True):
        assert rollback(book.state, mark)
        del book.stored[size:]
        book.now, book.keys = now, keys


def _copies(table: Table) -> list[Book]:
    """Ledgers of their own: an adoption cannot be taken back."""
    copies = []
    for book in table.books:
        other = Book(book.name, book.now, keys=book.keys, seals=book.seals)
        other.state = load(book.name, b"".join(dump(book.state)))
        other.stored = list(book.stored)
        keep_journal(other.state)
        copies.append(other)
    return copies


def running(tells: Tells, *mechanisms: dict[str, Any], **more: Any) -> Act:
    """Asks for mechanisms, and runs them where they are granted."""

    def act(table: Table) -> Tells | None:
        return tells if table.ask(*mechanisms, **more) else None

    return act


def report(steps: int, categories: int, **more: Any) -> Act:
    """Asks for ``rare``, and runs it where it is granted."""
    asked, tells = rare(steps, categories)
    return running(tells, asked, **more)


def adopting(policy: str, once: str) -> Act:
    """Two people adopt a policy, once each by the name of ``once``."""

    def act(table: Table) -> Tells | None:
        if once in table.mind:
            return None
        table.mind = (*table.mind, once)
        for book in table.books:
            book.policy(policy, confirmed_by="officer", closes=True)
        return NOTHING

    act.adopts = True  # type: ignore[attr-defined]
    return act


def within(found: float, delta: Fraction | str) -> bool:
    """Whether ``found`` is at most ``delta``, but for the rounding of floats."""
    return found <= float(Fraction(delta)) + ROUNDING
