"""One account over a run of requests: what each of them finds there, told for all at once.

Sums only grow while grants are reserved and invocations recorded, so what stands before each
request is a running sum. What it finds is told as long as one cell has used most in every currency,
for then that one is the tightest (``views.view``). Where none has, or something has no finite cost,
nothing is told of that request and of those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accountant.budget.express.atoms import Atom
from accountant.budget.express.tallies import Tally
from accountant.budget.meter import Integers
from accountant.privacy.units import Currency, amount

Bounds = tuple[int, ...]
"""The most that a cell may hold, in three currencies; below zero where there is none."""
Seen = tuple[tuple[int, ...], tuple[bytes, ...]]
"""What one request finds: of each comparison what holds, and the group, as ``gauges`` says it; and
the used sums in three currencies, spent before and after.
"""
_BITS: Final = np.array([1, 2, 4])
"""Of each currency, the bit that says that it holds."""


class _Said(dict[int | None, bytes]):
    """Sums of one currency in words; None is infinite."""

    def __init__(self, currency: Currency) -> None:
        super().__init__()
        self._currency = currency

    def __missing__(self, units: int | None) -> bytes:
        said = self[units] = amount(units, self._currency).encode()
        return said


class Words(dict[Currency, _Said]):
    """What sums are in words. Each is said once: accounts of one run often have the same."""

    def __missing__(self, currency: Currency) -> _Said:
        said = self[currency] = _Said(currency)
        return said

    def of(self, sums: Iterable[int | None], currency: Currency) -> Iterable[bytes]:
        """Each of ``sums``."""
        return map(self[currency].__getitem__, sums)


class Lane:
    """The requests of a run that are counted in one account."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._bounds: list[Bounds] = []
        self._kinds: list[tuple[int, Atom]] = []
        self._which: list[int] = []
        self._after: Integers = np.zeros(0, dtype=np.int64)

    def kind(self, selection: int, charge: Atom) -> int:
        """The number of a new kind of requests: those that charge a known selection so much."""
        self._kinds.append((selection, charge))
        return len(self._kinds) - 1

    def compare(self, bounds: Bounds) -> int:
        """The number of a comparison with ``bounds``."""
        if bounds not in self._bounds:
            self._bounds.append(bounds)
        return self._bounds.index(bounds)

    def add(self, kind: int) -> None:
        """A request of that kind comes next."""
        self._which.append(kind)

    def look(self, words: Words) -> Iterator[Seen]:
        """What the requests find, one after another, as far as it can be told."""
        atoms, charges = self._tally.atoms, [charge for _, charge in self._kinds]
        if any(b or d or f for _, b, _, d, _, f in (*atoms, *charges)):
            return iter(())
        which, costs = np.array(self._which), _finite(charges)
        number = {id(atom): i for i, atom in enumerate(atoms)}
        grows = np.zeros((len(charges), len(atoms), 3), dtype=np.int64)
        rows, columns = self._reached(number)
        grows[rows, columns] = costs[rows]
        each = grows[which]
        self._after = _finite(atoms) + each.cumsum(axis=0)
        sums, groups, told = self._tightest(self._after - each, which, number)
        then = sums + costs[which]
        return self._seen(sums[:told], then[:told], groups[:told], words) if told else iter(())

    def _reached(self, number: dict[int, int]) -> tuple[list[int], list[int]]:
        """Each kind as often as there are atoms that it charges, and these."""
        reached = [
            (kind, number[id(atom)])
            for kind, (selection, _) in enumerate(self._kinds)
            for atom in self._tally.inside(selection)
        ]
        return [kind for kind, _ in reached], [atom for _, atom in reached]

    def _tightest(
        self, before: Integers, which: NDArray[np.intp], number: dict[int, int]
    ) -> tuple[Integers, Integers, int]:
        """The sums of the tightest cell, and its group, for each request; and how many come before
        the first that has none.
        """
        n = len(which)
        sums, groups = np.zeros((n, 3), dtype=np.int64), np.zeros(n, dtype=np.int64)
        told = np.zeros(n, dtype=np.bool_)
        selections = np.array([selection for selection, _ in self._kinds])[which]
        for selection in set(selections.tolist()):
            places = self._tally.places(selection)
            if len(places) > 1:  # which box counts depends on how many cells it has (``limits``)
                continue
            members = places[0][1]
            rows = np.flatnonzero(selections == selection)
            columns = np.array([number[id(atom)] for atom, _ in members])
            among = before[rows[:, None], columns]
            first = among[:, :, 0].argmax(axis=1)
            sums[rows] = found = among[np.arange(len(rows)), first]
            told[rows] = (found == among.max(axis=1)).all(axis=1)
            groups[rows] = np.array([group for _, group in members])[first]
        return sums, groups, n if told.all() else int(told.argmin())

    def _seen(
        self, before: Integers, after: Integers, groups: Integers, words: Words
    ) -> Iterator[Seen]:
        holds = [(after <= np.array(bounds)) @ _BITS for bounds in self._bounds]
        outcomes = [(groups << 3 | one).tolist() for one in holds]
        names = self._tally.currencies
        epsilon, delta, second = before.T.tolist()
        more, _, more_second = after.T.tolist()
        used = [words.of(*one) for one in zip((epsilon, delta, second), names, strict=False)]
        if len(names) < len(_BITS):  # the gate has no currency of its own
            used, second, more_second = [*used, repeat(b"")], repeat(None), repeat(None)
        befores = list(zip(epsilon, second, strict=False))
        afters = list(zip(more, more_second, strict=False))
        gate, limit = self._tally.limit
        spent = {sums: gate.spent(limit, *sums) for sums in {*befores, *afters}}
        said = [words.of(map(spent.__getitem__, each), names[0]) for each in (befores, afters)]
        texts = zip(*used, *said, strict=False)
        return zip(zip(*outcomes, strict=True), texts, strict=True)

    def book(self, count: int) -> None:
        """Adds the first ``count`` of the requests to the account's atoms."""
        if count:
            self._tally.replace(self._after[count - 1].tolist())


def _finite(atoms: list[Atom]) -> Integers:
    return np.array([atom[::2] for atom in atoms], dtype=np.int64)
