"""Grants: open ones whole, settled ones as three numbers in columns.

Nothing but the owner, the end and the time of a settled grant bears on later decisions; what it
was asked for and charged stands in the two events whose sequences are kept.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import orjson

from accountant.budget.columns import Take, growing, raw
from accountant.budget.open_grants import Calendar, Listing
from accountant.budget.population.selection import Selection
from accountant.privacy.units import Charge


class AccountKey(NamedTuple):
    """Which accumulator: a rule's (or "" for the lifetime), its epoch, dataset and client."""

    rule: str
    epoch: int
    dataset: str
    client: str = ""


Bookings = tuple[tuple[AccountKey, Charge], ...]
Ending = Literal["committed", "released", "expired"]
Status = Literal["reserved"] | Ending
_ENDINGS: Final[tuple[Ending, ...]] = ("committed", "released", "expired")

# A settled grant in one number: 1 + its ending, two flags, the numbers of its owner and dataset.
_SESSION, _LATE, _WHO, _WHERE = 1 << 2, 1 << 3, 4, 28


class Grant(NamedTuple):
    """An open reservation. ``bookings`` are the accounts that hold it."""

    id: str
    by: str
    dataset: str
    selection: Selection
    command: bytes
    """What was asked for, canonical."""
    total: Charge
    opened: int
    expires: int
    sequence: int
    bookings: Bookings
    session: bool = False
    positives: int = 0
    negatives: int = 0

    @property
    def status(self) -> Status:
        """Reserved, for as long as it is open."""
        return "reserved"

    @property
    def document(self) -> dict[str, Any]:
        """What was asked for."""
        document: dict[str, Any] = orjson.loads(self.command)
        return document

    def due(self, now: int) -> bool:
        """Past its time: expired, noticed or not."""
        return now >= self.expires

    def ended(self, ending: Ending, at: int) -> Settled:
        """The grant after the event at ``at`` ended it."""
        return Settled(
            self.id,
            self.by,
            self.dataset,
            ending,
            self.expires,
            self.sequence,
            at,
            session=self.session,
        )


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a grant: ``sequence`` reserved it, ``settled`` ended it."""

    id: str
    by: str
    dataset: str
    status: Ending
    expires: int
    sequence: int
    settled: int
    session: bool = False
    late_note: bool = False

    def due(self, now: int) -> bool:
        """Never again: it has ended."""
        return False


class Names:
    """Few names that stand in many places, numbered."""

    __slots__ = ("_names", "_numbers")

    def __init__(self) -> None:
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of ``name``, a new one if need be."""
        number = self._numbers.setdefault(name, len(self._names))
        if number == len(self._names):
            self._names.append(name)
        return number

    def __getitem__(self, number: int) -> str:
        return self._names[number]

    def listed(self) -> tuple[str, ...]:
        """All names, by number."""
        return tuple(self._names)


@dataclass(frozen=True, slots=True)
class Legend:
    """What the columns of settled grants do not say themselves: how long they are, the names that
    their numbers stand for, and the grants that have no place in them.
    """

    length: int
    people: tuple[str, ...]
    datasets: tuple[str, ...]
    odd: tuple[Settled, ...]


_MOST_NAMES: Final = 1 << 24
_CHUNK: Final = 1024


class Grants:
    """All grants of a ledger by name; ``open`` are those not settled yet."""

    __slots__ = (
        "_about",
        "_datasets",
        "_expires",
        "_odd",
        "_people",
        "_settled",
        "calendar",
        "listing",
        "open",
    )

    def __init__(self) -> None:
        self.open: MutableMapping[str, Grant] = {}
        self.calendar: Calendar | None = None
        """When the open ones expire, once somebody has asked."""
        self.listing: Listing | None = None
        """The open ones by client and dataset, once somebody has asked."""
        # By the sequence that reserved the grant, which is its name; zero where there is none.
        self._about, self._expires, self._settled = array("q"), array("q"), array("q")
        self._people, self._datasets = Names(), Names()
        self._odd: dict[str, Settled] = {}
        """Those that are not called by their sequence; a sound ledger has none."""

    def get(self, name: str) -> Grant | Settled | None:
        """The grant of that name, whatever became of it."""
        found = self.open.get(name) or self._odd.get(name)
        if found is None and (sequence := _sequence_of(name)) is not None:
            return self._read(name, sequence)
        return found

    def __getitem__(self, name: str) -> Grant | Settled:
        found = self.get(name)
        if found is None:
            raise KeyError(name)
        return found

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def frozen(self) -> Grants:
        """Grants whose open ones stay as they are now. The columns of settled ones go on growing:
        who looks for one of those looks here.
        """
        twin = Grants()
        twin.open, twin._odd = dict(self.open), dict(self._odd)
        twin._about, twin._expires, twin._settled = self._about, self._expires, self._settled
        twin._people, twin._datasets = self._people, self._datasets
        return twin

    def due(self, now: int, most: int) -> list[str]:
        """At most so many of the open grants whose time has passed, by name, soonest first."""
        if self.calendar is None:
            self.calendar = Calendar((grant.expires, name) for name, grant in self.open.items())
        return self.calendar.due(now, most, self._expires_at)

    def in_order(self) -> list[Grant]:
        """The open ones in the order in which they were opened, whichever of them were settled and
        opened again meanwhile.
        """
        return sorted(self.open.values(), key=attrgetter("sequence"))

    def _expires_at(self, name: str) -> int | None:
        grant = self.open.get(name)
        return None if grant is None else grant.expires

    def page(self, client: str | None, dataset: str | None, after: int, most: int) -> list[Grant]:
        """At most so many open grants, of one client or dataset or of all, by sequence, those
        beyond ``after``.
        """
        if self.listing is None:
            self.listing = Listing()
            for grant in self.in_order():
                self.listing.put(grant.sequence, grant.by, grant.dataset)

        def is_open(sequence: int) -> bool:
            # The name may be another grant's now: the first was not opened after all.
            grant = self.open.get(f"g{sequence}")
            return (
                grant is not None
                and client in (None, grant.by)
                and dataset in (None, grant.dataset)
            )

        found = self.listing.page((client, dataset), after, most, is_open)
        return [self.open[f"g{sequence}"] for sequence in found]

    def keep(self, grant: Grant) -> None:
        """Adds an open grant, or changes it; when it expires never changes."""
        if grant.id not in self.open:
            if self.calendar is not None:
                self.calendar.put(grant.expires, grant.id)
            if self.listing is not None:
                self.listing.put(grant.sequence, grant.by, grant.dataset)
                if len(self.listing) > 2 * len(self.open) + _CHUNK:
                    self.listing = None  # most have ended: made anew when somebody asks again
        self.open[grant.id] = grant

    def settle(self, grant: Grant, ending: Ending, at: int) -> None:
        """The event at ``at`` ended an open grant."""
        self.open.pop(grant.id, None)
        about = self.about(grant.by, grant.dataset, ending, session=grant.session)
        if about is not None and _sequence_of(grant.id) == grant.sequence:
            self.write(grant.sequence, about, grant.expires, at)
            self._odd.pop(grant.id, None)
            return
        self._odd[grant.id] = grant.ended(ending, at)

    def forget(self, name: str) -> None:
        """The grant was not opened after all."""
        self.open.pop(name, None)

    def note(self, name: str, *, noted: bool = True) -> None:
        """A late commit of an expired grant was noted, or was not after all. Raises ValueError for
        any other.
        """
        found = self.get(name)
        if not isinstance(found, Settled):
            raise ValueError(f"{name} is no settled grant")
        if name in self._odd:
            self._odd[name] = replace(found, late_note=noted)
        elif noted:
            self._about[found.sequence] |= _LATE
        else:
            self._about[found.sequence] &= ~_LATE

    def about(self, by: str, dataset: str, ending: Ending, *, session: bool = False) -> int | None:
        """What a settled grant's first column holds; None if there are too many names."""
        who, where = self._people.number(by), self._datasets.number(dataset)
        if max(who, where) >= _MOST_NAMES:
            return None
        flags = 1 + _ENDINGS.index(ending) | session * _SESSION
        return flags | who << _WHO | where << _WHERE

    def write(self, sequence: int, about: int, expires: int, at: int) -> None:
        """Settles the grant that the event at ``sequence`` reserved."""
        while len(self._about) <= sequence:
            for column in (self._about, self._expires, self._settled):
                column.frombytes(bytes(column.itemsize * _CHUNK))
        self._about[sequence] = about
        self._expires[sequence] = expires
        self._settled[sequence] = at

    def reopen(self, grant: Grant) -> None:
        """A grant that was open was not settled after all."""
        self._odd.pop(grant.id, None)
        if _sequence_of(grant.id) == grant.sequence < len(self._about):
            for column in (self._about, self._expires, self._settled):
                column[grant.sequence] = 0
        self.keep(grant)

    def _read(self, name: str, sequence: int) -> Settled | None:
        about = self._about[sequence] if sequence < len(self._about) else 0
        if about == 0:
            return None
        return Settled(
            name,
            self._people[about >> _WHO & _MOST_NAMES - 1],
            self._datasets[about >> _WHERE],
            _ENDINGS[(about & 3) - 1],
            self._expires[sequence],
            sequence,
            self._settled[sequence],
            session=bool(about & _SESSION),
            late_note=bool(about & _LATE),
        )

    def settled(self) -> Iterator[Settled]:
        """All settled grants, in the order of their names' sequences."""
        yield from self._odd.values()
        for sequence in range(len(self._about)):
            if (found := self._read(f"g{sequence}", sequence)) is not None:
                yield found

    def legend(self) -> Legend:
        """What belongs to the columns."""
        names = self._people.listed(), self._datasets.listed()
        return Legend(len(self._about), *names, tuple(self._odd.values()))

    def dump(self) -> Iterator[bytes]:
        """Yield the columns of settled grants, for ``load``."""
        return map(raw, (self._about, self._expires, self._settled))

    @classmethod
    def load(cls, take: Take, legend: Legend, opened: Iterable[Grant]) -> Grants:
        """What ``dump`` wrote, with the grants ``opened``. Raises ValueError if it is damaged."""
        grants = cls()
        grants.open = {grant.id: grant for grant in opened}
        grants._odd = {settled.id: settled for settled in legend.odd}
        grants._about, grants._expires, grants._settled = (
            growing(take, "q", legend.length) for _ in range(3)
        )
        for names, listed in ((grants._people, legend.people), (grants._datasets, legend.datasets)):
            for name in listed:
                names.number(name)
        grants._check()
        return grants

    def _check(self) -> None:
        """Raises ValueError if the first column says something that ``about`` does not."""
        about = np.asarray(self._about)
        about = about[about != 0]
        who, where = about >> _WHO & _MOST_NAMES - 1, about >> _WHERE
        bounds = ((who, len(self._people.listed())), (where, len(self._datasets.listed())))
        if (about & 3 == 0).any() or any(((n < 0) | (n >= most)).any() for n, most in bounds):
            raise ValueError("a settled grant has no ending, or a number without a name")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grants):
            return NotImplemented
        return self.open == other.open and list(self.settled()) == list(other.settled())

    __hash__ = None  # type: ignore[assignment] # it changes


def _sequence_of(name: str) -> int | None:
    """The sequence that ``name`` is made of, if it is made of one."""
    digits = name[1:]
    plain = name[:1] == "g" and digits.isascii() and digits.isdigit() and len(digits) < 17
    return int(digits) if plain and (digits == "0" or digits[0] != "0") else None
