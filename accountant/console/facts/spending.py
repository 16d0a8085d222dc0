"""Where a budget went: by client, purpose and mechanism, in the currency that counts.

Charges about different people add up here. So the whole of these shares is all that was booked on
the data, which may be more than any one person has lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from accountant.budget.state import ALL, Counted, State
from accountant.console.facts.parts import Part, laid_out
from accountant.reporting.counting import Basis
from accountant.reporting.history import History
from accountant.reporting.model import basis_under
from accountant.reporting.schema import Usage, as_number
from accountant.reporting.words import sums_of

MOST: Final = 8
"""Names under a heading that are listed singly."""


class Heading(Struct, frozen=True):
    """The parts under one heading: client, purpose, mechanism or dataset."""

    name: str
    parts: tuple[Part, ...]


class Spending(Struct, frozen=True):
    """``sums``: what adds up, in words; ``adds``: each charge raises what is spent by its part, and
    before the first one that is at ``starts_at``, "" for zero; ``several``: a charge on several
    datasets stands in each.
    """

    sums: str
    adds: bool
    starts_at: str
    several: bool
    headings: tuple[Heading, ...]

    @property
    def empty(self) -> bool:
        """Nothing was booked yet."""
        return not any(heading.parts for heading in self.headings)


_HEADINGS: Final = (("client", "Client"), ("purpose", "Purpose"), ("kind", "Mechanism"))


def spending(state: State, history: History, dataset: str, counted: Counted | None) -> Spending:
    """Return where what was booked on a dataset went; on all of them, by dataset."""
    basis = Basis() if counted is None else basis_under(state, history, counted)
    if dataset == ALL:
        headings = [Heading("Dataset", laid_out(_by_dataset(state, history, counted, basis), MOST))]
    else:
        headings = [
            Heading(name, laid_out(_parts(history.tallies.usages(dataset, key, basis), key), MOST))
            for key, name in _HEADINGS
        ]
    return Spending(
        sums=sums_of(basis.measure.currency),
        adds=not basis.capped,
        starts_at="" if as_number(basis.starts_at or "0") == 0 else basis.starts_at or "",
        several=dataset == ALL and len(state.datasets) > 1,
        headings=tuple(headings),
    )


def _parts(usages: Sequence[Usage], heading: str) -> Iterable[Part]:
    unnamed = {"purpose": "no purpose was stated", "kind": "not named by the event"}
    for one in usages:
        name = one.name or ("all other names" if one.other else unnamed.get(heading, "unknown"))
        if heading == "kind":
            name = name.replace("_", " ")
        yield Part(name, one.counted, one.adds, one.requests, named=bool(one.name))


def _by_dataset(
    state: State, history: History, counted: Counted | None, basis: Basis
) -> list[Part]:
    covered = counted.rule.scope.holds if counted is not None else lambda _: True
    found = []
    for name, dataset in sorted(state.datasets.items()):
        if covered(dataset):
            one = history.tallies.total(name, basis)
            found.append(Part(name, one.counted, one.adds, one.requests))
    return found
