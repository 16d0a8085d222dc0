"""Filing all that waits anew: after a policy, a registration or a start, which change what holds
requests up.

Of the requests of a line (lines.py) the most costly one is asked of the evaluator first. What holds
it up is compared with all others of the line, by integers; the most costly of those that it does
not hold up is next. So a line takes as many evaluations as places hold some of it up, and one of
each request that fits.

No decision is made here. A request that fails at a place is filed there, as if the evaluator had
said so: a limit fails where a cell does not have left what a request costs (``Within.need`` is no
more than that). Whatever else is filed under any place of its line, and the place is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from accountant.budget.errors import Problem
from accountant.budget.waiting.lines import Line, Lines, bill_of
from accountant.budget.waiting.looking import ENDLESS, Room, Witness, look_at, when
from accountant.budget.waiting.queue import WHOLE, Index, Place, Queue
from accountant.budget.waiting.tree import Item, Key, Need, Tree, built

if TYPE_CHECKING:
    from accountant.budget.bill import Bill
    from accountant.budget.state import State
    from accountant.budget.waiting.asked import About, Waiting
    from accountant.privacy.units import Charge

_TRIED: Final = 32
"""Requests of a line that the evaluator is asked about here. Others are looked at in their turn."""
_FITTING: Final = 8
"""Requests of a line that fit, which others are compared with."""

Member = tuple["Waiting", "Bill", Key]


def lines_of(state: State) -> Lines:
    """Return what the ledger says now of requests that are about the same."""
    queue = state.waiting
    if queue.lines is None or not queue.lines.still(state):
        queue.lines = Lines(state)
    lines: Lines = queue.lines
    return lines


def filed_anew(state: State, stamp: int) -> Index:
    """Return an index in which everything that waits is filed by what the ledger says at a stamp;
    what may fit is to be looked at.
    """
    return _Filing(state, stamp).index()


class _Filing:
    """Where requests are filed, while they are."""

    def __init__(self, state: State, stamp: int) -> None:
        self._state, self._stamp = state, stamp
        self._queue: Queue = state.waiting
        self._room = Room(state, stamp)
        self._files: dict[Place, list[Item]] = defaultdict(list)
        self._risen: set[Place] = set()
        self._unfiled: list[Item] = []
        self._kept: list[Item] = []
        self._always: list[Item] = []
        self._places: list[Item] = []

    def index(self) -> Index:
        """File all that waits."""
        lines = lines_of(self._state)
        groups: dict[About, list[Waiting]] = defaultdict(list)
        for waiting in self._queue.requests.values():
            if not waiting.due(self._stamp):
                groups[waiting.about].append(waiting)
        for group in groups.values():
            self._line(lines.of(self._state, group[0]), group)
        files = [
            (place, _tree(items), ()) for place, items in sorted(self._files.items(), key=_first)
        ]
        risen = [(((), place), None, ()) for place in sorted(self._risen)]
        index = Index(
            unfiled=_tree(self._unfiled),
            files=built(files),
            risen=built(risen),
            kept=_tree(self._kept),
            always=_tree(self._always),
            places=_tree(self._places),
        )
        for account in {account: None for account, _ in self._files}:
            index = self._scheduled(index, (account, WHOLE), ())
        for place, tree, _ in files:
            index = self._scheduled(index, place, tree.least if tree else ())
        return index

    def _scheduled(self, index: Index, place: Place, need: Need) -> Index:
        return index.schedule(place, when(self._state, place, need, self._stamp))

    def _line(self, line: Line | None, group: Iterable[Waiting]) -> None:
        """File the requests of a line."""
        members: list[Member] = []
        for waiting in group:
            bill = None if line is None else self._bill(waiting)
            if line is None or bill is None:  # it cannot be asked on the terms in force
                self._keep(waiting, (ENDLESS, waiting.sequence), self._kept)
                continue
            key = line.key(bill, waiting.sequence)
            if line.open or line.screened(waiting, bill):
                self._keep(waiting, key, self._kept)
            else:
                members.append((waiting, bill, key))
        if line is not None and members:
            members.sort(key=_epsilon, reverse=True)
            self._members(line, members)

    def _members(self, line: Line, members: list[Member]) -> None:
        waiting, bill, _ = members[0]
        places = list(line.failing(self._queue.tight, self._room, waiting, bill))
        fitting: list[Charge] = []
        tried = 0
        for waiting, bill, key in members:
            if self._fails(line, places, waiting, bill, key):
                continue
            plain = not bill.per and waiting.counts[0] == waiting.counts[1]
            if tried < _TRIED and not (plain and _below(bill.total, fitting)):
                tried += 1
                found, witness = look_at(self._state, waiting, self._stamp)
                if found is None:
                    self._held_up(line, places, waiting, key, witness)
                    continue
                if plain and len(fitting) < _FITTING:
                    fitting.append(bill.total)
            self._look_at(line, places, waiting, bill, key)

    def _fails(
        self, line: Line, places: list[Place], waiting: Waiting, bill: Bill, key: Key
    ) -> bool:
        """File a request under the first of the places that does not have left what it needs."""
        for place in places:
            need = line.need(place, waiting, bill)
            if not self._room.at(place)(need):
                self._file(waiting, key, place, need)
                return True
        return False

    def _held_up(
        self, line: Line, places: list[Place], waiting: Waiting, key: Key, witness: Witness
    ) -> None:
        """File a request that the evaluator does not admit; try others of its line there."""
        if witness.place is None:
            self._keep(waiting, key, self._always if witness.always else self._kept)
            return
        self._file(waiting, key, witness.place, witness.need)
        self._queue.hold(witness.place)
        if witness.place[0] in line.within:
            places.append(witness.place)

    def _look_at(
        self, line: Line, places: list[Place], waiting: Waiting, bill: Bill, key: Key
    ) -> None:
        """File a request that may fit so that it is looked at in its turn."""
        place = places[0] if places else line.some(self._state)
        if place is None:
            self._keep(waiting, key, self._unfiled)
            return
        self._file(waiting, key, place, line.need(place, waiting, bill))
        self._risen.add(place)

    def _file(self, waiting: Waiting, key: Key, place: Place, need: Need) -> None:
        self._files[place].append((key, waiting.sequence, need))
        self._places.append(((waiting.sequence,), (key, place), ()))

    def _keep(self, waiting: Waiting, key: Key, among: list[Item]) -> None:
        among.append((key, waiting.sequence, ()))
        self._places.append(((waiting.sequence,), (key, None), ()))

    def _bill(self, waiting: Waiting) -> Bill | None:
        try:
            return bill_of(self._state, waiting)
        except Problem:
            return None


def _tree(items: Sequence[Item]) -> Tree:
    return built(sorted(items, key=_first))


def _first(item: tuple[Any, ...]) -> Any:
    return item[0]


def _epsilon(member: Member) -> tuple[int, int]:
    charge = member[1].total
    return charge.infinite[0], charge.finite[0]


def _below(charge: Charge, others: Iterable[Charge]) -> bool:
    """Return whether a charge is nowhere more than one of ``others``."""
    return any(
        charge.axis == other.axis
        and all(a <= b for a, b in zip(charge.infinite, other.infinite, strict=True))
        and all(a <= b for a, b in zip(charge.finite, other.finite, strict=True))
        for other in others
    )
