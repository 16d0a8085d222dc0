"""One account over a run of requests: what each of them finds there, told for all at once.

Sums only grow while grants are reserved and invocations recorded, so what stands before each
request is a running sum. What it finds is told as long as one cell has used most in every currency,
for then that one is the tightest (``views.view``). Where none has, or something has no finite cost,
nothing is told of that request and of those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Final, cast

import numpy as np

from accountant.budget.express.atoms import Atom
from accountant.budget.express.tallies import Tally
from accountant.budget.meter import Integers
from accountant.privacy.units import Currency, show_each

Seen = tuple[tuple[int, ...], tuple[bytes, ...]]
"""What one request finds: of each comparison what holds, and the group, as ``gauges`` says it; and
the used sums in three currencies, spent before and after.
"""
_BITS: Final = np.array([1, 2, 4])
"""Of each currency, the bit that says that it holds."""


class Words(dict[Currency, dict[int, bytes]]):
    """What sums are in words. Each is said once: accounts of one run often have the same."""

    def of(self, sums: Sequence[int], currency: Currency) -> Iterable[bytes]:
        """Each of ``sums``."""
        said = self.setdefault(currency, {})
        new = list(set(sums).difference(said))
        said.update(zip(new, show_each(new, currency), strict=True))
        return map(said.__getitem__, sums)


class Lane:
    """The requests of a run that are counted in one account."""

    __slots__ = ("_after", "_kinds", "_tally", "seen", "which")

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._kinds: list[tuple[int, Atom]] = []
        self._after: Integers = np.zeros(0, dtype=np.int64)
        self.which: list[int] = []
        """The kinds of the requests, one after another."""
        self.seen: Iterator[Seen] = iter(())
        """What they find, as far as it can be told."""

    def kind(self, selection: int, charge: Atom) -> int:
        """The number of a new kind of requests: those that charge a known selection so much."""
        self._kinds.append((selection, charge))
        return len(self._kinds) - 1

    def look(self, words: Words) -> None:
        """Tells what the requests find."""
        atoms = np.array(self._tally.atoms, dtype=np.int64)
        charges = np.array([charge for _, charge in self._kinds], dtype=np.int64)
        if atoms[:, 1::2].any() or charges[:, 1::2].any():
            return
        grid, which, costs = self._tally.grid, np.array(self.which), charges[:, ::2]
        selections = np.array([selection for selection, _ in self._kinds])
        each = (costs[:, None] * grid.reached[selections][:, :, None])[which]
        self._after = atoms[:, ::2] + each.cumsum(axis=0)
        sums, groups, told = grid.tightest(self._after - each, selections[which])
        if told:
            then = sums + costs[which]
            self.seen = self._seen(sums[:told], then[:told], groups[:told], words)

    def _seen(
        self, before: Integers, after: Integers, groups: Integers, words: Words
    ) -> Iterator[Seen]:
        holds = [(after <= np.array(most)) @ _BITS for most in self._tally.compared]
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
        # Sums without an infinity among them spend a finite epsilon.
        spent = {sums: cast("int", gate.spent(limit, *sums)) for sums in {*befores, *afters}}
        said = [words.of([spent[sums] for sums in each], names[0]) for each in (befores, afters)]
        texts = zip(*used, *said, strict=False)
        return zip(zip(*outcomes, strict=True), texts, strict=True)

    def book(self, count: int) -> None:
        """Adds the first ``count`` of the requests to the account's atoms."""
        if count:
            self._tally.replace(self._after[count - 1].tolist())
