"""The ledgers of one database, each as far as it was followed, for questions about them.

What was followed of a long ledger is kept in a file, so that another process begins there: if the
file is authentic, the same code wrote it, and the ledger still begins with these events. The hashes
of these are then read again while nobody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from time import monotonic, thread_time
from typing import Any, Final, Generic, NamedTuple, TypeVar

from accountant.config.logs import logger
from accountant.ledger.merkle import MissingHash, Tree, leaf_hash, tree_of
from accountant.reporting import keeping
from accountant.reporting.following import Followed
from accountant.reporting.texts import Texts
from accountant.runtime.memory import collection_paused
from accountant.store.ledgers import Ledgers, Signed, Stored
from accountant.store.snapshots import Snapshots, code_digest

_LEAST: Final = 0.05
"""Seconds of the processor for which events are read, so that those of a short ledger are all read
at once on a busy machine, too.
"""
_SOON: Final = 1_000
"""Events of which it may be expected that they are read while somebody waits."""
_PIECE: Final = 0.05
"""Seconds that are read on before somebody who asks gets a turn."""
_WORTH: Final = 500
"""Events by which a ledger has grown when it is kept again."""
_SHARE: Final = 30
"""Between two times pass at least so many times what keeping took."""
_QUIET: Final = 2.0
"""Seconds without a question after which a ledger is kept: with many open grants that takes some
seconds, in which nobody is answered.
"""
_OVERDUE: Final = 50_000
"""Events by which a ledger has grown, or a fifth of it, when it is kept whoever asks."""
_MOST_STRAYS: Final = 3
"""Times that a ledger is followed anew because the database goes on otherwise."""
_PAGE: Final = 5_000
"""Events whose hashes are read again at a time."""
FOLDER: Final = "followed"

T = TypeVar("T")
_log = logger()


class Behind(NamedTuple):
    """A ledger of ``size`` events, of which ``read`` were read so far."""

    read: int
    size: int


class Page(NamedTuple):
    """What a question is asked of: the ledger, its texts, and the present stamp."""

    followed: Followed
    texts: Texts
    now: int


Question = Callable[[Page], T]
"""Asked of a process of its own it is pickled: a function of a module, or a ``partial`` of one."""


class Asked(NamedTuple):
    """A question about a population at stamp ``now``. ``early``: it may be answered before the
    ledger is read to its end.
    """

    population: str
    question: Question[Any]
    published: Signed | None
    now: int
    patience: float
    early: bool = False


class Seen(NamedTuple, Generic[T]):
    """An answer, None if there is none yet; and how far the ledger was read, if not to its end."""

    found: T | None
    behind: Behind | None = None


class _Kept(NamedTuple):
    """When a ledger was kept: number of events, time, duration."""

    size: int = 0
    at: float = 0.0
    seconds: float = 0.0


def _until(events: Iterable[Stored], end: float) -> Iterator[Stored]:
    """Yield events until a time on the monotonic clock, and for some time of the processor: in a
    population of many cells one may take as long as hundreds in another.
    """
    began = thread_time()
    for one in events:
        yield one
        if monotonic() >= end and thread_time() - began >= _LEAST:
            return


class Follower:
    """Follows ledgers as it is asked about them. Not for several threads."""

    def __init__(self, ledgers: Ledgers, snapshots: Snapshots | None = None) -> None:
        self._ledgers, self._snapshots = ledgers, snapshots
        self._followed: dict[str, Followed] = {}
        self._kept: dict[str, _Kept] = {}
        self._behind: dict[str, Asked] = {}
        """The last question about each ledger that is not read to its end."""
        self._strays = Counter[str]()
        self._asked = -inf
        """When the last question came."""
        self._unchecked: dict[str, tuple[Tree, Tree]] = {}
        """Of ledgers that were begun from a file: the tree that their bytes have so far, and the
        one that they had."""

    def answer(self, asked: Asked) -> Seen[Any]:
        """Return the answer. Raise StoreError, or ValueError for a damaged ledger."""
        name, ledgers, self._asked = asked.population, self._ledgers, monotonic()
        size = ledgers.head(name).size  # what comes while events are read is for the next one
        if asked.early and self._far(name, size):
            asked = asked._replace(patience=0.0)
        followed = self._up_to_date(asked)
        behind = None
        if followed.state.sequence < size:
            behind = Behind(followed.state.sequence, size)
            self._behind[name] = asked
            if not asked.early or followed.state.population is None or followed.state.batch:
                return Seen(None, behind)
        followed.state.now = asked.now
        texts = Texts(partial(ledgers.texts, name))
        page = Page(followed, texts, max(asked.now, followed.state.time))
        return Seen(asked.question(page), behind)

    def read_on(self) -> bool:
        """Do a small piece of what is left to do while nobody asks; return whether there was any:
        reading on, reading hashes again, keeping what was followed.
        """
        for name, asked in self._behind.items():
            try:
                followed = self._up_to_date(asked._replace(patience=_PIECE))
                done = self._ledgers.head(name).size <= followed.state.sequence
            except Exception as error:  # noqa: BLE001 whoever asks next is told
                _log.warning("a ledger was not read on", population=name, reason=str(error))
                done = True
            if done:
                del self._behind[name]
            self._keep(name)
            return True
        for name in self._unchecked:
            self._check(name)
            return True
        return any(map(self._keep, list(self._followed)))

    def _far(self, name: str, size: int) -> bool:
        """Return whether something is known of a ledger, and more is left to read than anybody has
        the patience for: then whoever takes what is known need not wait.
        """
        if (followed := self._followed.get(name)) is None or followed.state.population is None:
            return False
        return size - followed.state.sequence > _SOON

    @property
    def quiet_for(self) -> float | None:
        """For how many seconds nobody may ask before a ledger is kept; None if none has to be."""
        if not any(map(self._due, self._followed)):
            return None
        return max(0.0, self._asked + _QUIET - monotonic())

    def cells(self, population: str) -> int:
        """Return how many cells a population that is followed has; 0 if it is not."""
        followed = self._followed.get(population)
        found = None if followed is None else followed.state.population
        return 0 if found is None else found.cells

    def forget(self, population: str) -> None:
        """Follow a population no longer."""
        self._forget(population)

    def keep(self) -> None:
        """Keep what is not kept, before the end."""
        for name in list(self._followed):
            self._keep(name, now=True)

    # -- following -------------------------------------------------------------------------------

    def _up_to_date(self, asked: Asked) -> Followed:
        """Return the ledger, read on for as long as ``asked`` has patience. Begin anew if a text
        was erased since, and if the ledger does not go on as it was followed.
        """
        name = asked.population
        if (before := self._followed.get(name)) is not None and self._strayed(before):
            self._forget(name)
        try:
            if self._follow(asked).outdated:
                self._forget(name)
                self._follow(asked)
        except Exception:
            self._forget(name)  # it may hold half of an event
            raise
        return self._followed[name]

    def _follow(self, asked: Asked) -> Followed:
        name, until = asked.population, monotonic() + asked.patience
        if (followed := self._followed.get(name)) is None:
            followed = self._followed[name] = self._begun(name)
        texts = Texts(partial(self._ledgers.texts, name), placed=self._snapshots is not None)
        events = self._ledgers.stream(name, followed.state.sequence)
        rooted = partial(self._root, name)
        followed.follow(_until(events, until), texts, asked.published, rooted)
        return followed

    def _begun(self, name: str) -> Followed:
        """Return the ledger as it was kept, or from before its first event."""
        if (followed := self._from_file(name)) is not None:
            return followed
        # Texts that are erased by now are in no answer.
        return Followed(name, self._ledgers.head(name).size)

    def _strayed(self, followed: Followed) -> bool:
        """Return whether the database has other events than those that were followed. Where its
        hashes are not those of its own events, that is not asked for ever.
        """
        tree, name = followed.custody.tree, followed.state.ledger
        head = self._ledgers.head(name)
        if head == tree or followed.custody.broken or self._strays[name] >= _MOST_STRAYS:
            return False
        if head.size >= tree.size and self._root(name, tree.size) == tree.root:
            return False
        self._strays[name] += 1
        return True

    def _forget(self, name: str) -> None:
        for each in (self._followed, self._kept, self._behind, self._unchecked):
            each.pop(name, None)

    def _root(self, name: str, size: int) -> bytes | None:
        """Return the root over the first ``size`` leaves, by the hashes that are kept."""
        try:
            return tree_of(partial(self._ledgers.hashes, name), size).root
        except MissingHash:
            return None

    # -- keeping ---------------------------------------------------------------------------------

    def _keep(self, name: str, *, now: bool = False) -> bool:
        """Keep a ledger if that is due; return whether it was."""
        followed, begun = self._followed.get(name), monotonic()
        if self._snapshots is None or followed is None or not self._due(name, now=now):
            return False
        tree, kept = followed.custody.tree, self._kept.get(name, _Kept())
        overdue = tree.size >= kept.size + max(_OVERDUE, kept.size // 5)
        if not (now or overdue or begun >= self._asked + _QUIET):
            return False
        with collection_paused():
            self._snapshots.keep(name, tree, keeping.written(followed))
        ended = monotonic()
        self._kept[name] = _Kept(tree.size, ended, ended - begun)
        return True

    def _due(self, name: str, *, now: bool = False) -> bool:
        """Return whether a ledger has grown, and time has passed, since it was kept, and can be."""
        followed, kept = self._followed.get(name), self._kept.get(name, _Kept())
        if self._snapshots is None or followed is None or not keeping.worth_keeping(followed):
            return False
        grown = followed.custody.tree.size >= kept.size + _WORTH and name not in self._unchecked
        return grown and (now or monotonic() >= kept.at + _SHARE * kept.seconds)

    def _from_file(self, name: str) -> Followed | None:
        """Return what was kept of a ledger, if that is of use."""
        found = self._snapshots.read(name) if self._snapshots else None
        if found is None:
            return None
        tree, data = found
        try:
            size = self._ledgers.head(name).size
            if size < tree.size or self._root(name, tree.size) != tree.root:
                raise ValueError("the database does not continue it")
            with collection_paused():
                followed = keeping.read(name, tree, data, partial(self._ledgers.texts, name))
        except (ValueError, LookupError, TypeError) as error:
            _log.warning("not begun from a file", population=name, reason=str(error))
            return None
        self._kept[name] = _Kept(tree.size)
        self._unchecked[name] = Tree(), tree
        return followed

    def _check(self, name: str) -> None:
        """Read the hashes of some more events again. Whoever asks about a ledger that has changed
        is told by following it anew.
        """
        grown, tree = self._unchecked.pop(name)
        rows = islice(self._ledgers.stream(name, grown.size), min(_PAGE, tree.size - grown.size))
        leaves = []
        for row in rows:
            leaves.append(leaf_hash(row.body))
            if leaves[-1] != row.leaf:
                break
        grown, _ = grown.grown(leaves)
        if grown.size < tree.size and leaves and leaves[-1] == row.leaf:
            self._unchecked[name] = grown, tree
        elif grown != tree:
            _log.warning("events have changed since they were read", population=name)
            self._forget(name)
            if self._snapshots is not None:
                self._snapshots.drop(name)


def kept_in(home: Path) -> Snapshots:
    """Return the files in which what was followed is kept."""
    return Snapshots(home, code_digest(folding=keeping.CODE), FOLDER)
