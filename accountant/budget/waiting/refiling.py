"""Filing all that waits anew: after a policy, a registration or a start, which change what holds
requests up.

It goes by limit, not by request: of each account the tightest cell in the group of each request is
found for all together (groups.py), and what a request needs there is compared with what is left.
Most are held up there. The most costly of the others of a line (lines.py) is asked of the
evaluator; what holds it up is compared with those of the line that are charged there, too. The most
costly of those that are left is next.

No decision is made here. A request that fails at a place is filed there, as if the evaluator had
said so: a limit fails where a cell does not have left what a request costs (``Within.need`` is no
more than that). Whatever else is filed under any place of its line, and the place is looked at.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from accountant.budget.errors import Problem
from accountant.budget.waiting.groups import Boxes, Group, Groups
from accountant.budget.waiting.lines import Line, groups_of, lines_of
from accountant.budget.waiting.looking import ENDLESS, Room, Witness, look_at, when
from accountant.budget.waiting.prices import Prices, prices_of
from accountant.budget.waiting.queue import WHOLE, Cell, Index, Place, Queue
from accountant.budget.waiting.tight import rankings
from accountant.budget.waiting.tree import Item, Key, Need, Tree, built

if TYPE_CHECKING:
    from accountant.budget.accounts.integers import Integers
    from accountant.budget.bill import Bill
    from accountant.budget.grants import AccountKey
    from accountant.budget.state import State
    from accountant.budget.waiting.asked import About, Waiting
    from accountant.privacy.units import Charge

_TRIED: Final = 32
"""Requests of a line that the evaluator is asked about here. Others are looked at in their turn."""
_TRIED_IN_ALL: Final = 1_024
_IN_VAIN: Final = 4
"""How many of them, one after the other, may hold up no other of their line."""
_FITTING: Final = 8
"""Requests of a line that fit, which others are compared with."""
_REMEMBERED: Final = 64
"""Cells of an account that have held something up, which are tried."""
_PLACES: Final = 4
"""How many of them a request is compared with."""
_WORTH: Final = 2**14
"""Cells of an account that are put in order for each request: of more the evaluator looks at those
that are asked for alone."""


class Member(NamedTuple):
    """A request of a line that may fit."""

    waiting: Waiting
    bill: Bill
    key: Key
    line: Line


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
        self._members: list[Member] = []
        self._groups: list[Group] = []
        self._open = np.zeros(0, dtype=np.bool_)
        """Which of the members are not filed yet."""
        self._some: dict[int, Place] = {}
        """A place at which a member counts."""
        self._tried = 0

    def index(self) -> Index:
        """File all that waits."""
        lines = self._read()
        self._open = np.ones(len(self._members), dtype=np.bool_)
        shape = self._state.people().shape
        boxes = Boxes.among(self._groups, len(shape))
        counting: dict[AccountKey, list[int]] = defaultdict(list)
        for line, numbers in lines:
            for account in line.within:
                counting[account] += numbers
        self._by_limits(counting, boxes)
        if self._price():
            self._by_limits(counting, boxes)
        for line, numbers in lines:
            self._by_line(line, [one for one in numbers if self._open[one]], boxes)
        return self._built()

    def _built(self) -> Index:
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

    def _read(self) -> list[tuple[Line, list[int]]]:
        """Read all that waits. Return the lines, with the numbers of those that may fit."""
        state = self._state
        lines, groups, prices = lines_of(state), groups_of(state), prices_of(state)
        found: dict[About, list[int]] = {}
        for waiting in self._queue.requests.values():
            if waiting.due(self._stamp):
                continue
            line = lines.of(state, waiting.about)
            asks = None if line is None else self._asks(waiting, groups, prices)
            if line is None or asks is None:  # it cannot be asked on the terms in force
                self._keep(waiting, (ENDLESS, waiting.sequence), self._kept)
                continue
            group, bill = asks
            key = line.key(bill, waiting, groups)
            if line.open or line.screened(waiting, bill):
                self._keep(waiting, key, self._kept)
                continue
            found.setdefault(waiting.about, []).append(len(self._members))
            self._members.append(Member(waiting, bill, key, line))
            self._groups.append(group)
        return [(self._members[numbers[0]].line, numbers) for numbers in found.values()]

    def _asks(self, waiting: Waiting, groups: Groups, prices: Prices) -> tuple[Group, Bill] | None:
        try:
            return groups.of(waiting.subjects), prices.least(self._state, waiting)
        except Problem:
            return None

    def _price(self) -> bool:
        """Price all that is left and was compared without a part of its price. Return whether there
        is any.
        """
        groups, prices, found = groups_of(self._state), prices_of(self._state), False
        for number in np.flatnonzero(self._open).tolist():
            waiting, _, _, line = self._members[number]
            if prices.known(waiting) is not None:
                continue
            found = True
            try:
                bill = prices.of(self._state, waiting)
            except Problem:
                self._open[number] = False
                self._keep(waiting, (ENDLESS, waiting.sequence), self._kept)
                continue
            self._members[number] = Member(waiting, bill, line.key(bill, waiting, groups), line)
        return found

    def _by_limits(self, counting: Mapping[AccountKey, list[int]], boxes: Boxes) -> None:
        for account, numbers in counting.items():
            self._by_limit(account, np.array(sorted(numbers)), boxes)

    def _by_limit(self, account: AccountKey, numbers: Integers, boxes: Boxes) -> None:
        """File the members that an account holds up at the tightest cell of their group."""
        numbers = numbers[self._open[numbers]]
        if not numbers.size:
            return
        state, within = self._state, self._members[numbers[0]].line.within[account]
        charged, shape = within.charged(boxes.some(numbers)), state.people().shape
        nothing, cells = np.zeros(0, dtype=np.int64), state.people().cells
        orders: Iterable[Integers] = [nothing]
        if len(numbers) * _WORTH >= cells:
            orders = rankings(state, within.counted, self._stamp)
        for places in orders:
            self._try(account, numbers, charged.cells(places, shape))
        left = np.flatnonzero(self._open[numbers])
        numbers, charged = numbers[left], charged.some(left)
        tried = np.zeros(len(numbers), dtype=np.int64)
        for cell in reversed(list(self._queue.tight.get(account, ()))[-_REMEMBERED:]):
            here = charged.holding(cell)
            here = here[self._open[numbers[here]] & (tried[here] < _PLACES)]
            tried[here] += 1
            self._try(account, numbers[here], [cell] * len(here))

    def _try(self, account: AccountKey, numbers: Integers, cells: Sequence[Cell | None]) -> int:
        """File each of the members under a cell of an account that does not have left what it
        needs. Return how many there are.
        """
        spots: dict[Cell, tuple[Place, Any]] = {}
        found = 0
        for number, cell in zip(numbers.tolist(), cells, strict=True):
            if cell is None or not self._open[number]:
                continue
            if (spot := spots.get(cell)) is None:
                place = account, cell
                spot = spots[cell] = place, self._room.at(place)
            place, has = spot
            waiting, bill, key, line = self._members[number]
            need = line.within[account].need(bill, waiting.counts)
            if has(need):
                self._some.setdefault(number, place)
            else:
                self._open[number] = False
                self._file(waiting, key, place, need)
                found += 1
        return found

    def _by_line(self, line: Line, numbers: list[int], boxes: Boxes) -> None:
        """File the members of a line that are left: the evaluator is asked about some."""
        if not numbers:
            return
        left = np.array(numbers)
        mine = boxes.some(left)
        fitting: list[Charge] = []
        tried = vain = 0
        for number in sorted(numbers, key=self._epsilon, reverse=True):
            if not self._open[number]:
                continue
            waiting, bill, _, _ = self._members[number]
            plain = not bill.per and waiting.counts[0] == waiting.counts[1]
            more = tried < _TRIED and vain < _IN_VAIN and self._tried < _TRIED_IN_ALL
            if more and not (plain and _below(bill.total, fitting)):
                tried += 1
                self._tried += 1
                found, witness = look_at(self._state, waiting, self._stamp)
                if found is None:
                    vain = 0 if self._held_up(number, witness, left, mine) else vain + 1
                    continue
                if plain and len(fitting) < _FITTING:
                    fitting.append(bill.total)
            self._look_at(number)

    def _held_up(self, number: int, witness: Witness, numbers: Integers, boxes: Boxes) -> int:
        """File a request that the evaluator does not admit, and others of its line, ``numbers``,
        that the same place holds up. Return how many these are.
        """
        waiting, _, key, line = self._members[number]
        self._open[number] = False
        if witness.place is None:
            self._keep(waiting, key, self._always if witness.always else self._kept)
            return 0
        self._file(waiting, key, witness.place, witness.need)
        self._queue.hold(witness.place)
        account, cell = witness.place
        if (within := line.within.get(account)) is None:
            return 0
        here = numbers[within.charged(boxes).holding(cell)]
        return self._try(account, here, [cell] * len(here))

    def _look_at(self, number: int) -> None:
        """File a request that may fit so that it is looked at in its turn."""
        waiting, bill, key, line = self._members[number]
        self._open[number] = False
        place = self._some.get(number)
        if place is None:
            self._keep(waiting, key, self._unfiled)
            return
        need = line.within[place[0]].need(bill, waiting.counts)
        self._file(waiting, key, place, need)
        self._risen.add(place)

    def _file(self, waiting: Waiting, key: Key, place: Place, need: Need) -> None:
        self._files[place].append((key, waiting.sequence, need))
        self._places.append(((waiting.sequence,), (key, place), ()))

    def _keep(self, waiting: Waiting, key: Key, among: list[Item]) -> None:
        among.append((key, waiting.sequence, ()))
        self._places.append(((waiting.sequence,), (key, None), ()))

    def _epsilon(self, number: int) -> tuple[int, int]:
        charge = self._members[number].bill.total
        return charge.infinite[0], charge.finite[0]


def _tree(items: Sequence[Item]) -> Tree:
    return built(sorted(items, key=_first))


def _first(item: tuple[Any, ...]) -> Any:
    return item[0]


def _below(charge: Charge, others: Iterable[Charge]) -> bool:
    """Return whether a charge is nowhere more than one of ``others``."""
    return any(
        charge.axis == other.axis
        and all(a <= b for a, b in zip(charge.infinite, other.infinite, strict=True))
        and all(a <= b for a, b in zip(charge.finite, other.finite, strict=True))
        for other in others
    )
