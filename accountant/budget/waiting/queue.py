"""Requests that wait for budget, and the index in which each is filed under what holds it up.

The requests are a part of the state. The index is not: it follows from the state, and only says
which requests need not be looked at. A request that does not fit fails at some cell of some
account, its *witness*: until that cell has more left, the request cannot fit. So it is filed there
with what it needs, and is looked at again when the file has *risen*: something came back to the
cell (``gave_back``), or time passed (``at``). A file is a tree in the policy's order: the first
request in order that needs at most what is left is found in O(log n), and the others are passed
over. What cannot be ruled out that way is asked of the evaluator (``due.py``).

An index is a value. ``apply`` keeps the one before each event, and ``rollback`` puts it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import prod
from operator import attrgetter
from typing import Any, Final, NamedTuple

from accountant.budget.errors import Conflict
from accountant.budget.grants import AccountKey
from accountant.budget.population.selection import Selection
from accountant.budget.waiting.asked import About, Waiting
from accountant.budget.waiting.tree import Key, Need, Node, Tree, find, first, least, put, walk
from accountant.budget.waiting.tree import remove as without

MOST: Final = 100_000
"""Requests that wait in one ledger."""
MOST_OF_ONE: Final = 20_000
"""Requests of one client that wait in one ledger."""

PATIENCE: Final = 256
_ALIKE: Final = 16
"""Requests that are filed anew in the time that it takes to look at one."""
_CELLS: Final = 256
_ACCOUNTS: Final = 4_096
"""Cells of an account that are remembered to be tight, and such accounts."""

Cell = tuple[int, ...]
Place = tuple[AccountKey, Cell]
"""A cell of an account."""
When = Callable[[Place, Need], int | None]
"""The first stamp from which a place may have a need left by time alone; None if it never has. Of
all cells of an account (``WHOLE``), with no need, the next at which something comes back.
"""
WHOLE: Final[Cell] = (-1,)
"""Stands for all cells."""
Tight = dict[AccountKey, dict[Cell, None]]
"""Cells that have held something up, the latest last."""


class Index(NamedTuple):
    """Where each waiting request is filed. Never changed in place."""

    unfiled: Tree = None
    """Requests to be looked at, in order; the values are their sequences."""
    files: Tree = None
    """By place, the tree of the requests that it holds up, in order."""
    risen: Tree = None
    """Files that have risen: by the key from which on they are still to be looked at."""
    kept: Tree = None
    """Requests that no budget would help: only what concerns the whole ledger does."""
    always: Tree = None
    """Requests held up by a rule that may change its mind with any event."""
    places: Tree = None
    """By sequence, the key of the request in its order and the place that it is filed under."""
    timed: Tree = None
    """By stamp, the places whose files may have what they need from then on."""
    scheduled: Tree = None
    """The places in ``timed``, with their stamps."""
    stamp: int = 0
    """The last stamp at which it was looked through."""

    @property
    def quiet(self) -> bool:
        """True if nothing is to be looked at before time passes."""
        return self.unfiled is None and self.risen is None and self.always is None

    @property
    def timed_from(self) -> int:
        """The first stamp in ``timed``, which is not empty."""
        soonest = least(self.timed)
        assert soonest is not None  # noqa: S101 for the type checker
        stamp: int = soonest.key[0]
        return stamp

    def ask_again(self) -> Index:
        """Return the index with what may have changed its mind to be looked at."""
        unfiled = self.unfiled
        for node in walk(self.always):
            unfiled = put(unfiled, node.key, node.value)
        return self._replace(unfiled=unfiled, always=None)

    def add(self, key: Key, sequence: int) -> Index:
        """Return the index with a request to be looked at."""
        places = put(self.places, (sequence,), (key, None))
        return self._replace(unfiled=put(self.unfiled, key, sequence), places=places)

    def remove(self, sequence: int) -> Index:
        """Return the index without a request."""
        found = find(self.places, (sequence,))
        if found is None:
            return self
        key, place = found.value
        left = self._replace(
            unfiled=without(self.unfiled, key),
            kept=without(self.kept, key),
            always=without(self.always, key),
            places=without(self.places, (sequence,)),
        )
        return left if place is None else left._unfiled(key, place)

    def _unfiled(self, key: Key, place: Place) -> Index:
        file = find(self.files, place)
        rest = without(file.value, key) if file is not None else None
        if rest is None:
            return self._replace(files=without(self.files, place))
        return self._replace(files=put(self.files, place, rest))

    def file(self, sequence: int, key: Key, place: Place, need: Need) -> Index:
        """Return the index with a request filed under a place, which does not have what it needs
        left, and looked through up to it.
        """
        left = self.remove(sequence)
        file = find(left.files, place)
        after = put(file.value if file is not None else None, key, sequence, need)
        places = put(left.places, (sequence,), (key, place))
        return left._replace(files=put(left.files, place, after), places=places)

    def keep(self, sequence: int, key: Key, *, always: bool) -> Index:
        """Return the index with a request that is filed under no place."""
        left = self.remove(sequence)
        left = left._replace(places=put(left.places, (sequence,), (key, None)))
        if always:
            return left._replace(always=put(left.always, key, sequence))
        return left._replace(kept=put(left.kept, key, sequence))

    def rise(self, account: AccountKey, cells: Selection | None, shape: Cell) -> Index:
        """Return the index with the files of an account risen, those on ``cells`` if given."""
        if cells is None or cells.everyone:
            places = [node.key for node in self._files_of(account)]
        elif sum(prod(map(len, box)) for box in cells.boxes) <= _FEW:
            every = ((account, cell) for box in cells.boxes for cell in _cells(box))
            places = [place for place in every if find(self.files, place) is not None]
        else:
            mask = cells.mask(shape)
            places = [node.key for node in self._files_of(account) if mask.item(node.key[1])]
        risen = self.risen
        for place in places:
            risen = put(risen, ((), place))
        return self._replace(risen=risen)

    def _files_of(self, account: AccountKey) -> Iterator[Node]:
        for node in walk(self.files, (account,)):
            if node.key[0] != account:
                return
            yield node

    def holds(self, account: AccountKey) -> bool:
        """Return whether a request is filed under a cell of ``account``."""
        return next(self._files_of(account), None) is not None

    def schedule(self, place: Place, stamp: int | None) -> Index:
        """Return the index with the file of a place to rise at a stamp, or before; ``WHOLE`` stands
        for the files of an account.
        """
        known = find(self.scheduled, place)
        if stamp is None or (known is not None and known.value <= stamp):
            return self
        timed = self.timed if known is None else without(self.timed, (known.value, place))
        scheduled = put(self.scheduled, place, stamp)
        return self._replace(timed=put(timed, (stamp, place)), scheduled=scheduled)

    def at(self, now: int, when: When) -> Index:
        """Return the index at stamp ``now``: what may have more left by then has risen."""
        index = self._replace(stamp=max(self.stamp, now))
        while (soonest := least(index.timed)) is not None and soonest.key[0] <= now:
            place = soonest.key[1]
            index = index._replace(
                timed=without(index.timed, soonest.key),
                scheduled=without(index.scheduled, place),
            )
            account, cell = place
            files = [*index._files_of(account)] if cell == WHOLE else [find(index.files, place)]
            risen = index.risen
            for file in filter(None, files):
                risen = put(risen, ((), file.key))
            index = index._replace(risen=risen)
            if cell == WHOLE and files:
                index = index.schedule(place, when(place, ()))
        return index

    def next(
        self, left: Callable[[Place], Callable[[Need], bool]], when: When
    ) -> tuple[Index, Key, int]:
        """Return the first request that is to be looked at: its key, and its sequence, -1 if there
        is none. ``left`` says whether a place has a need left. The index is the same, less what was
        ruled out, which is to rise once it may have what the least of it needs.
        """
        index = self
        while True:
            head, file = least(index.unfiled), least(index.risen)
            if file is None or (head is not None and head.key < file.key[0]):
                return (index, (), -1) if head is None else (index, head.key, head.value)
            since, place = file.key
            tree = find(index.files, place)
            found = first(tree.value, left(place), since) if tree is not None else None
            risen = without(index.risen, file.key)
            if found is not None and found.key != since:
                index = index._replace(risen=put(risen, (found.key, place)))
            elif found is not None:
                return index, found.key, found.value
            else:
                index = index._replace(risen=risen)
                if tree is not None:
                    index = index.schedule(place, when(place, tree.value.least))

    def passed(self, key: Key) -> Index:
        """Return the index with the file that was found at ``key`` looked through beyond it."""
        risen = self.risen
        for node in walk(self.risen, (key,)):
            if node.key[0] != key:
                break
            risen = put(without(risen, node.key), ((*key, 0), node.key[1]))
        return self._replace(risen=risen)


_FEW: Final = 64
"""Cells that are looked up one by one."""


def _cells(box: Iterable[Iterable[int]]) -> Iterator[Cell]:
    found: list[Cell] = [()]
    for side in box:
        found = [(*cell, place) for cell in found for place in side]
    return iter(found)


@dataclass(slots=True)
class Queue:
    """The waiting requests of a ledger, by name."""

    requests: dict[str, Waiting] = field(default_factory=dict)
    index: Index | None = field(default=None, compare=False, repr=False)
    """None: everything is to be looked at anew."""
    _of: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    about: Counter[About] = field(default_factory=Counter, compare=False, repr=False)
    """How many are about the same."""
    prices: Any = field(default=None, compare=False, repr=False)
    """What is known of prices on the terms in force (prices.py)."""
    groups: Any = field(default=None, compare=False, repr=False)
    """The subject groups of the population, as far as they are compiled (groups.py)."""
    tight: Tight = field(default_factory=dict, compare=False, repr=False)
    """Where to look first. Nobody is passed over by it."""
    lines: Any = field(default=None, compare=False, repr=False)
    """What is known of requests that are about the same (lines.py)."""
    vain: int = field(default=0, compare=False, repr=False)
    """Requests that were looked at in vain since nothing was left to be looked at."""
    patience: int = field(default=PATIENCE, compare=False, repr=False)
    """How many may be before all that waits is filed anew, by what they have shown to be tight."""
    _calendar: list[tuple[int, str]] | None = field(default=None, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.requests)

    def check(self, by: str) -> None:
        """Raise Conflict if ``by`` may not let another request wait."""
        mine = self._of.get(by, 0)
        if mine >= MOST_OF_ONE or len(self) >= MOST:
            who, most = (by, MOST_OF_ONE) if mine >= MOST_OF_ONE else ("this population", MOST)
            raise Conflict(
                "too-many-wait",
                f"{len(self)} requests wait in this population, {mine} of them of {by}; the most "
                f"of {who} is {most}: ask without wait, or cancel some (POST …/release)",
                waiting=len(self),
                own=mine,
                most=most,
            )

    def keep(self, waiting: Waiting) -> None:
        """Add a request."""
        self.requests[waiting.id] = waiting
        self._of[waiting.by] = self._of.get(waiting.by, 0) + 1
        self.about[waiting.about] += 1
        if self._calendar is not None:
            heappush(self._calendar, (waiting.expires, waiting.id))

    def forget(self, name: str) -> Waiting:
        """Remove a request. Raises KeyError if it does not wait."""
        waiting = self.requests.pop(name)
        self._of[waiting.by] -= 1
        if not self._of[waiting.by]:
            del self._of[waiting.by]
        self.about[waiting.about] -= 1
        if not self.about[waiting.about]:
            del self.about[waiting.about]
        if self.prices is not None:
            self.prices.forget(waiting.sequence)
        return waiting

    def impatient(self) -> bool:
        """Count a request that was looked at in vain. Return whether it is time to file anew; the
        next time will be later, for what is known to be tight may not tell who fails.
        """
        self.vain += 1
        if self.vain < max(self.patience, len(self) // _ALIKE):
            return False
        self.vain, self.patience = 0, 4 * self.patience
        return True

    def hold(self, place: Place) -> None:
        """Remember a place that has held something up."""
        key, cell = place
        if len(self.tight) >= _ACCOUNTS:
            self.tight.clear()
        cells = self.tight.setdefault(key, {})
        cells.pop(cell, None)
        cells[cell] = None
        if len(cells) > _CELLS:
            del cells[next(iter(cells))]

    def in_order(self) -> list[Waiting]:
        """Return the requests by sequence."""
        return sorted(self.requests.values(), key=attrgetter("sequence"))

    def due(self, now: int, most: int) -> list[Waiting]:
        """Return at most ``most`` requests whose time has passed, soonest first."""
        if self._calendar is None:
            self._calendar = [(one.expires, name) for name, one in self.requests.items()]
            heapify(self._calendar)
        found = dict[str, Waiting]()
        while self._calendar and self._calendar[0][0] <= now and len(found) < most:
            _, name = heappop(self._calendar)
            if (waiting := self.requests.get(name)) is not None:
                found[name] = waiting
        for name, waiting in found.items():  # they wait until the event that ends them
            heappush(self._calendar, (waiting.expires, name))
        return list(found.values())

    def frozen(self) -> Queue:
        """Return a copy for readers: the index is a value, and is shared."""
        return Queue(dict(self.requests), self.index, dict(self._of), about=Counter(self.about))


def queue_of(requests: Iterable[Waiting]) -> Queue:
    """Return the queue of these requests."""
    queue = Queue()
    for one in requests:
        queue.keep(one)
    return queue
