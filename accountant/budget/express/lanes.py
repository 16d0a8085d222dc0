"""One account over a run of requests: what each of them finds there, told for all at once.

Sums only grow while grants are reserved and invocations recorded, so what stands before each
request is a running sum. What it finds is told as long as one cell has used most in every currency,
for then that one is the tightest (``views.view``). Where none has, or something has no finite cost,
nothing is told of that request and of those behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from accountant.budget.express.atoms import Atom
from accountant.budget.express.tallies import Most, Tally
from accountant.budget.meter import Integers
from accountant.privacy.units import Currency, show_each

Seen = tuple[tuple[int, ...], tuple[bytes, ...]]
"""What one request finds: of each comparison what holds, and the group, as ``gauges`` says it; and
the used sums in three currencies, spent before and after.
"""
_CURRENCIES: Final = 3
_ALL: Final = 7
"""Of each currency one bit that says that it holds: 1, 2, 4."""


class Words:
    """What sums are in words. Each is said once: accounts of one run often have the same."""

    def __init__(self) -> None:
        self._said: dict[Currency, dict[int, bytes]] = {}
        self._columns: dict[tuple[Currency, tuple[int, ...]], list[bytes]] = {}

    def of(self, sums: Sequence[int], currency: Currency) -> list[bytes]:
        """Each of ``sums``."""
        column = currency, tuple(sums)
        if (words := self._columns.get(column)) is None:
            said = self._said.setdefault(currency, {})
            new = list(set(sums).difference(said))
            said.update(zip(new, show_each(new, currency), strict=True))
            words = self._columns[column] = [said[units] for units in sums]
        return words


class Lane:
    """The requests of a run that are counted in one account."""

    __slots__ = ("_after", "_costs", "_finite", "_selections", "_tally", "seen", "which")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._selections: list[int] = []
        self._costs: list[Atom] = []
        """Of each kind, in three currencies."""
        self._finite = not any(any(atom[1::2]) for atom in tally.atoms)
        """So is all that is added up."""
        self._after: Integers = np.zeros(0, dtype=np.int64)
        self.which: list[int] = []
        """The kinds of the requests, one after another."""
        self.seen: Iterator[Seen] = iter(())
        """What they find, as far as it can be told."""

    def kind(self, selection: int, charge: Atom) -> int:
        """The number of a new kind of requests: those that charge a known selection so much."""
        self._selections.append(selection)
        self._costs.append(charge[::2])
        self._finite = self._finite and not any(charge[1::2])
        return len(self._costs) - 1

    def look(self, words: Words) -> None:
        """Tells what the requests find."""
        if not self._finite:
            return
        grid, which = self._tally.grid, np.array(self.which)
        atoms = np.array(self._tally.atoms, dtype=np.int64)
        costs, selections = np.array(self._costs, dtype=np.int64), np.array(self._selections)
        each = (costs[:, None] * grid.reached[selections][:, :, None])[which]
        self._after = atoms[:, ::2] + each.cumsum(axis=0)
        sums, groups, told = grid.tightest(self._after - each, selections[which])
        if told:
            then = sums + costs[which]
            self.seen = self._seen(sums[:told], then[:told], groups[:told], words)

    def _seen(
        self, before: Integers, after: Integers, groups: Integers, words: Words
    ) -> Iterator[Seen]:
        outcomes = [
            (groups << _CURRENCIES | _holds(after, most)).tolist() for most in self._tally.compared
        ]
        names = self._tally.currencies
        epsilon, delta, second = before.T.tolist()
        more, _, more_second = after.T.tolist()
        used = [words.of(*one) for one in zip((epsilon, delta, second), names, strict=False)]
        if len(names) < _CURRENCIES:  # the gate has no currency of its own
            used.append([b""] * len(more))
        gate, limit = self._tally.limit
        # Sums without an infinity among them spend a finite epsilon: before each, and after it.
        spent = gate.spent_each(limit, epsilon + more, second + more_second)
        said = words.of(spent, names[0])
        texts = zip(*used, said[: len(more)], said[len(more) :], strict=True)
        return zip(zip(*outcomes, strict=True), texts, strict=True)

    def book(self, count: int) -> None:
        """Adds the first ``count`` of the requests to the account's atoms."""
        if count:
            self._tally.replace(self._after[count - 1].tolist())


def _holds(sums: Integers, most: Most) -> Integers | int:
    """The bits of the currencies in which ``sums`` are allowed."""
    holds = sums <= np.array(most)
    return _ALL if holds.all() else holds @ np.array([1, 2, 4])
