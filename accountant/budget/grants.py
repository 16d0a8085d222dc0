"""Grants: open ones whole, settled ones as three numbers in columns.

The two events whose sequences are kept hold all else of a settled grant. Indexes of open grants
drop one that has ended when a reader meets it: sooner would take longer.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import product
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import orjson
from msgspec import Struct

from accountant.budget.bill import Bill, Per
from accountant.budget.columns import Take, growing, raw
from accountant.budget.population.selection import Selection
from accountant.budget.reach import Reach
from accountant.privacy.units import Charge

if TYPE_CHECKING:
    from accountant.budget.waiting.asked import Waiting


class Asked(Protocol):
    """What a client has asked for, and is open until its time has passed."""

    @property
    def command(self) -> bytes:
        """The request, canonical."""

    @property
    def expires(self) -> int:
        """The stamp from which its time has passed."""


def request_of(one: Asked) -> dict[str, Any]:
    """Return the request."""
    document: dict[str, Any] = orjson.loads(one.command)
    return document


def is_due(one: Asked, now: int) -> bool:
    """Return whether its time has passed, whether or not an event says so already."""
    return now >= one.expires


class AccountKey(NamedTuple):
    """The key of an account: its rule ("" for the lifetime), epoch, dataset and client, the further
    unit of privacy that it counts for ("" for the first), and the purpose ("" for all others).
    """

    rule: str
    epoch: int
    dataset: str
    client: str = ""
    unit: str = ""
    purpose: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the key as documents spell it: without the first unit, and without no purpose."""
        found = self._asdict().items()
        return {name: v for name, v in found if v or name not in ("unit", "purpose")}


Bookings = tuple[tuple[AccountKey, Charge], ...]
Ending = Literal[
    "committed", "released", "expired", "admitted", "timed out", "cancelled", "declined"
]
"""How a grant ends; the last four are the endings of a request that waits."""
Status = Literal["reserved"] | Ending
_ENDINGS: Final[tuple[Ending, ...]] = (
    "committed",
    "released",
    "expired",
    "admitted",
    "timed out",
    "cancelled",
    "declined",
)

# A settled grant in one number: 1 + its ending, two flags, the numbers of its owner and dataset.
_ENDED, _SESSION, _LATE, _OWNER, _DATASET = 7, 1 << 3, 1 << 4, 5, 29
_MOST_OWNERS: Final = 1 << _DATASET - _OWNER
_CHUNK: Final = 1024


class Grant(Struct, frozen=True, gc=False):
    """An open reservation. ``bookings`` are the accounts that hold it."""

    id: str
    """Always ``g`` and the sequence."""
    by: str
    on: Reach
    """The datasets that it names, and those that it is charged to: when it was reserved, and what
    was found since to be an ancestor of these."""
    selection: Selection
    command: bytes
    """The request, canonical."""
    total: Charge
    opened: int
    expires: int
    sequence: int
    bookings: Bookings = ()
    session: bool = False
    positives: int = 0
    negatives: int = 0
    per: Per = ()
    """What it holds of further units, where that is not ``total``."""

    def holding(self, bookings: Bookings) -> Grant:
        """Return the grant that holds these. It is kept without what is derived of its cells."""
        return Grant(
            self.id,
            self.by,
            self.on,
            self.selection.bare(),
            self.command,
            self.total,
            self.opened,
            self.expires,
            self.sequence,
            bookings,
            self.session,
            self.positives,
            self.negatives,
            self.per,
        )

    @property
    def bill(self) -> Bill:
        """What it holds."""
        return Bill(self.total, self.per)

    @property
    def status(self) -> Status:
        """Reserved, for as long as it is open."""
        return "reserved"

    @property
    def document(self) -> dict[str, Any]:
        """The request."""
        return request_of(self)

    def due(self, now: int) -> bool:
        """Return whether its time has passed."""
        return is_due(self, now)


@dataclass(frozen=True, slots=True)
class Settled:
    """A grant that has ended: ``sequence`` reserved it, ``settled`` ended it. So has a request that
    waits: of one that was admitted ``settled`` is the sequence of its grant.
    """

    id: str
    by: str
    on: Reach
    status: Ending
    expires: int
    sequence: int
    settled: int
    session: bool = False
    late_note: bool = False

    def due(self, now: int) -> bool:
        """Return False: it has ended."""
        return False


class Names(list[str]):
    """Few names that stand in many places, by number."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        super().__init__()
        self._numbers: dict[str, int] = {}
        for name in names:
            self.number(name)

    def number(self, name: str) -> int:
        """Return the number of ``name``, a new one if need be."""
        number = self._numbers.setdefault(name, len(self))
        if number == len(self):
            self.append(name)
        return number


@dataclass(frozen=True, slots=True)
class Legend:
    """The length of the columns of settled grants, and the names that their numbers stand for."""

    length: int
    people: tuple[str, ...]
    datasets: tuple[str, ...]


class Listing:
    """Ascending sequences of the grants among ``opened`` by client and dataset."""

    def __init__(self, opened: Mapping[str, Grant]) -> None:
        self._opened = opened
        self._entries: dict[tuple[str | None, str | None], list[int]] = {}

    def __len__(self) -> int:
        return len(self._entries.get((None, None), ()))

    def put(self, grant: Grant) -> None:
        """Add a grant; it may be listed already."""
        by, sequence = grant.by, grant.sequence
        for wanted in product((None, by), (None, *grant.on.named)):
            entries = self._entries.setdefault(wanted, [])
            at = bisect_left(entries, sequence)
            if entries[at : at + 1] != [sequence]:
                entries.insert(at, sequence)

    def page(self, client: str | None, dataset: str | None, after: int, most: int) -> list[Grant]:
        """Return at most ``most`` of the grants beyond ``after``."""
        entries, found = self._entries.get((client, dataset), []), list[Grant]()
        first = at = bisect_right(entries, after)
        while at < len(entries) and len(found) < most:
            grant = self._opened.get(f"g{entries[at]}")
            # The name may be another grant's now: the first was not opened after all.
            if grant and client in (None, grant.by) and dataset in (None, *grant.on.named):
                found.append(grant)
            at += 1
        entries[first:at] = [grant.sequence for grant in found]
        return found


class Grants:
    """All grants of a ledger by name; ``open`` are those not settled yet."""

    def __init__(self) -> None:
        self.open: MutableMapping[str, Grant] = {}
        self._calendar: list[tuple[int, str]] | None = None
        """A heap of the stamps at which open grants expire, from the first call of ``due`` on."""
        self.listing: Listing | None = None
        """The open grants by client and dataset, from the first call of ``page`` on."""
        # By the sequence that reserved the grant, which is its name; zero where there is none.
        self._about, self._expires, self._settled = array("q"), array("q"), array("q")
        self._clients, self._datasets = Names(), Names()

    def get(self, name: str) -> Grant | Settled | None:
        """Return the grant of that name, open or settled."""
        if (found := self.open.get(name)) is not None:
            return found
        sequence = _sequence_of(name)
        return None if sequence is None else self._read(sequence)

    def frozen(self) -> Grants:
        """Return grants whose open ones stay as they are now. The columns of settled ones are
        shared and go on growing: a grant that is not open in the copy may be found settled.
        """
        twin = Grants()
        twin.open = dict(self.open)
        twin._about, twin._expires, twin._settled = self._about, self._expires, self._settled
        twin._clients, twin._datasets = self._clients, self._datasets
        return twin

    def due(self, now: int, most: int) -> list[str]:
        """Return at most ``most`` open grants whose time has passed, by name, soonest first."""
        if self._calendar is None:
            self._calendar = [(grant.expires, name) for name, grant in self.open.items()]
            heapify(self._calendar)
        entries, found = self._calendar, dict[str, int]()
        while entries and entries[0][0] <= now and len(found) < most:
            at, name = heappop(entries)
            if (grant := self.open.get(name)) is not None and grant.expires == at:
                found[name] = at
        for name, at in found.items():  # they stay open until they are settled
            heappush(entries, (at, name))
        return list(found)

    def in_order(self) -> list[Grant]:
        """Return the open grants by sequence, which may differ from the order of ``open``."""
        return sorted(self.open.values(), key=attrgetter("sequence"))

    def page(self, client: str | None, dataset: str | None, after: int, most: int) -> list[Grant]:
        """Return at most ``most`` open grants beyond ``after``, by sequence; None means all."""
        if self.listing is None:
            self.listing = Listing(self.open)
            for grant in self.in_order():
                self.listing.put(grant)
        return self.listing.page(client, dataset, after, most)

    def keep(self, grant: Grant) -> None:
        """Add an open grant, or change it; the stamp at which it expires never changes."""
        if grant.id not in self.open:
            if self._calendar is not None:
                heappush(self._calendar, (grant.expires, grant.id))
            if self.listing is not None:
                self.listing.put(grant)
                if len(self.listing) > 2 * len(self.open) + _CHUNK:
                    self.listing = None  # most have ended: the next page makes it anew
        self.open[grant.id] = grant

    def settle(self, grant: Grant | Waiting, ending: Ending, at: int) -> None:
        """End an open grant, or a waiting request, by the event at ``at``. Raises OverflowError for
        too many owners.
        """
        self.open.pop(grant.id, None)
        owner, dataset = self._clients.number(grant.by), self._datasets.number(grant.on.text)
        if owner >= _MOST_OWNERS:
            raise OverflowError(f"a ledger settles grants of at most {_MOST_OWNERS} clients")
        flags = 1 + _ENDINGS.index(ending) | grant.session * _SESSION
        while len(self._about) <= grant.sequence:
            for column in (self._about, self._expires, self._settled):
                column.frombytes(bytes(column.itemsize * _CHUNK))
        self._about[grant.sequence] = flags | owner << _OWNER | dataset << _DATASET
        self._expires[grant.sequence] = grant.expires
        self._settled[grant.sequence] = at

    def reopen(self, grant: Grant) -> None:
        """Take ``settle`` back."""
        self.unsettle(grant.sequence)
        self.keep(grant)

    def unsettle(self, sequence: int) -> None:
        """Forget the ending of what the event at ``sequence`` asked for."""
        for column in (self._about, self._expires, self._settled):
            column[sequence] = 0

    def forget(self, name: str) -> None:
        """Take ``keep`` of a new grant back."""
        self.open.pop(name, None)

    def note(self, name: str, *, noted: bool = True) -> None:
        """Note a late commit of a settled grant, or take the note back. Raises ValueError."""
        found = self.get(name)
        if not isinstance(found, Settled):
            raise ValueError(f"{name} is no settled grant")
        if noted:
            self._about[found.sequence] |= _LATE
        else:
            self._about[found.sequence] &= ~_LATE

    def _read(self, sequence: int) -> Settled | None:
        about = self._about[sequence] if sequence < len(self._about) else 0
        if about == 0:
            return None
        return Settled(
            f"g{sequence}",
            self._clients[about >> _OWNER & _MOST_OWNERS - 1],
            Reach.read(self._datasets[about >> _DATASET]),
            _ENDINGS[(about & _ENDED) - 1],
            self._expires[sequence],
            sequence,
            self._settled[sequence],
            session=bool(about & _SESSION),
            late_note=bool(about & _LATE),
        )

    def settled(self) -> Iterator[Settled]:
        """Yield all settled grants, by sequence."""
        return filter(None, map(self._read, range(len(self._about))))

    def legend(self) -> Legend:
        """Return the legend of the columns."""
        return Legend(len(self._about), tuple(self._clients), tuple(self._datasets))

    def dump(self) -> Iterator[bytes]:
        """Yield the columns of settled grants, for ``load``."""
        return map(raw, (self._about, self._expires, self._settled))

    @classmethod
    def load(cls, take: Take, legend: Legend, opened: Iterable[Grant]) -> Grants:
        """Read what ``dump`` wrote; ``opened`` are the open grants. Raises ValueError."""
        grants = cls()
        grants.open = {grant.id: grant for grant in opened}
        grants._about, grants._expires, grants._settled = (
            growing(take, "q", legend.length) for _ in range(3)
        )
        grants._clients, grants._datasets = Names(legend.people), Names(legend.datasets)
        grants._check()
        return grants

    def _check(self) -> None:
        """Raise ValueError unless each number of the first column has an ending and two names."""
        about = np.asarray(self._about)
        about = about[about != 0]
        owner, dataset = about >> _OWNER & _MOST_OWNERS - 1, about >> _DATASET
        bounds = (owner, len(self._clients)), (dataset, len(self._datasets))
        ends = about & _ENDED
        if ((ends == 0) | (ends > len(_ENDINGS))).any() or any(
            ((n < 0) | (n >= most)).any() for n, most in bounds
        ):
            raise ValueError("a settled grant has no ending, or a number without a name")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grants):
            return NotImplemented
        return self.open == other.open and list(self.settled()) == list(other.settled())

    __hash__ = None  # type: ignore[assignment] # it changes


def _sequence_of(name: str) -> int | None:
    """Return the sequence that a grant's name is made of; None if it is no grant's name."""
    digits = name[1:]
    plain = name[:1] == "g" and digits.isascii() and digits.isdigit() and len(digits) < 17
    return int(digits) if plain and (digits == "0" or digits[0] != "0") else None
