"""Read the change that an event records from its bytes: what it books, opens or ends.

A ledger is folded from its events alone, a million of them where no snapshot is left. So of an
event only what changes something is read; what is long is looked up by its bytes, and the sums that
were compared, more than half of an event, are passed over. What an event says was booked is
believed; ``replay`` checks it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import orjson
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from accountant.budget import batches
from accountant.budget.batches import Gathered, OpenBatch
from accountant.budget.bill import Bill, Per, per_in
from accountant.budget.changes import (
    NOTHING,
    Admit,
    Arrive,
    Count,
    End,
    Leave,
    Note,
    Nothing,
    Record,
    Reserve,
    Wait,
    arrival,
)
from accountant.budget.commands import (
    APPROVAL_WAIT,
    DEFAULT_TTL,
    Batch,
    OpenSparseVector,
    command_from_json,
)
from accountant.budget.commands.plain import read_plain
from accountant.budget.facts import SECOND
from accountant.budget.grants import Ending, Grant
from accountant.budget.handlers import HANDLERS, selection_of
from accountant.budget.outcome import (
    ADMITTED,
    ANSWERED,
    CANCELLED,
    CLOSED,
    COMMITTED,
    DECLINED,
    EXPIRED,
    NOT_APPROVED,
    NOTED,
    PROPOSED,
    RECORDED,
    REFUSED,
    RELEASED,
    REPUBLISHED,
    RESERVED,
    TIMED_OUT,
    WAITING,
    Change,
    Outcome,
)
from accountant.budget.population.selection import EVERYONE
from accountant.budget.reach import Reach, reach_on
from accountant.budget.state import State, envelope_of
from accountant.budget.waiting.asked import Waiting, waiting_for
from accountant.ledger.events import Entry, Event, microseconds
from accountant.privacy.units import Charge

_REMEMBERED: Final = 1_024
"""Charges that are kept as they were read."""


class _Command(Struct, gc=False):
    """What is read of a command, whatever it is: what two commands call alike is alike."""

    type: Any = UNSET
    dataset: str | list[str] | UnsetType = UNSET
    subjects: Raw | UnsetType = UNSET
    purpose: Any = None
    allotment: Any = None
    ttl_seconds: int = DEFAULT_TTL
    wait: int = APPROVAL_WAIT
    grant: str | UnsetType = UNSET
    client: str | UnsetType = UNSET
    request: Raw | UnsetType = UNSET

    @property
    def group(self) -> Raw | None:
        """The subject group; None is everyone."""
        return None if self.subjects is UNSET else self.subjects


class _Told(Struct, gc=False):
    """What is read of an event. A field on which the change does not rest may be anything: replay
    finds what is wrong with it, and goes on.
    """

    by: str
    command: Raw
    ledger: str
    sequence: int
    time: str
    type: str
    key: Any = None
    batch: Any = UNSET
    fired: Any = ()
    total: Raw | UnsetType = UNSET
    charge: Raw | UnsetType = UNSET
    charged: Any = UNSET
    charged_to: Any = ""
    per: Raw | UnsetType = UNSET
    positives: Any = UNSET
    negatives: Any = UNSET

    @property
    def stamp(self) -> int:
        """The stamp, in microseconds since 1970."""
        return _stamp(self.time)

    @property
    def bill(self) -> Bill:
        """What was booked."""
        return Bill(_charge(_stated(self.total, "total")), self.charges)

    @property
    def charges(self) -> Per:
        """What was booked for further units."""
        return () if self.per is UNSET else per_in({"per": orjson.loads(bytes(self.per))})

    def reach(self, command: _Command) -> Reach:
        """Return the datasets that it was charged to, by the request ``command``."""
        if (asked := command.dataset) is UNSET:
            raise ValueError("the event lacks the field 'dataset'")
        return reach_on(asked, None if self.charged is UNSET else _names(self.charged))


T = TypeVar("T")


def _names(charged: Any) -> list[str]:
    """Return the names in a field. Raises ValueError if it is no list of names."""
    if type(charged) is not list or not all(type(name) is str for name in charged):
        raise ValueError("the field 'charged' is no list of datasets")
    return charged


def _stated(value: T | UnsetType, name: str) -> T:
    """Return the value of a field that such an event has. Raises ValueError if it is not there."""
    if value is UNSET:
        raise ValueError(f"the event lacks the field {name!r}")
    return value


_TOLD: Final = msgspec.json.Decoder(_Told)
_COMMAND: Final = msgspec.json.Decoder(_Command)
_stamp = lru_cache(maxsize=64)(microseconds)  # the events of a unit of work have one


class Happened(NamedTuple):
    """A change of the ledger as a whole, by the event that says it. It cannot be taken back."""

    event: Event

    def fold(self, state: State, entry: Entry) -> None:
        """Run the handler of the event's type."""
        HANDLERS[self.event.type](state, self.event)

    def undo(self, state: State, before: None) -> None:
        """Never called: ``rollback`` refuses."""


def read(state: State, event: Event, data: bytes | None = None) -> Outcome:
    """Return what ``event``, of bytes ``data``, records. Raises ValueError if it cannot follow."""
    return read_checked(state, data or event.to_bytes(), event)


def read_checked(state: State, data: bytes, event: Event | None = None) -> Outcome:
    """Return what the event of ``data`` records, which ``check_canonical`` has taken; ``event`` if
    it was parsed already. Raises ValueError if it cannot follow.
    """
    try:
        told = _TOLD.decode(data)
        stamp = told.stamp
        _check(state, told, stamp)
        change = _change(state, told, data, event)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the event lacks a field or has a wrong one: {error}") from None
    entry = Entry(told.sequence, told.type, stamp, data)
    kept = change.grant.command if isinstance(change, Reserve) else bytes(told.command)
    batch = None if told.batch is UNSET else told.batch
    return Outcome(entry, told.by, told.key, kept, change, batch, told.fired)


def _check(state: State, told: _Told, stamp: int) -> None:
    """Raise ValueError if the event cannot be the next one."""
    if told.sequence != state.sequence or told.ledger != state.ledger:
        raise ValueError(
            f"{told.ledger}/{told.sequence} does not follow {state.ledger}/{state.sequence - 1}"
        )
    if stamp < state.time:
        raise ValueError(f"event {told.sequence} is stamped before the one it follows")
    if state.batch is None and told.batch is not UNSET:
        raise ValueError(f"event {told.sequence} is an item of a batch that is not open")


def _change(state: State, told: _Told, data: bytes, event: Event | None) -> Change:
    if (plain := _PLAIN.get(told.type)) is not None:
        return plain(state, told)
    event = event or Event.from_bytes(data, compared=True)
    if (reader := _WHOLE.get(told.type)) is not None:
        return reader(state, event)
    if told.type in HANDLERS:
        return Happened(event)
    raise ValueError(f"event {told.sequence} has the unknown type {told.type!r}")


# -- requests and grants ---------------------------------------------------------------------


def _reserve(state: State, told: _Told) -> Reserve:
    reserve = _grant(state, told, told.by, told.command)
    return replace(reserve, arriving=reserve.grant.selection) if _unlocks(state) else reserve


def _grant(state: State, told: _Told, by: str, asked: Raw) -> Reserve:
    """Return the grant that an event opens for the request ``asked`` of ``by``."""
    command, stamp, bill = _COMMAND.decode(asked), told.stamp, told.bill
    grant = Grant(
        id=f"g{told.sequence}",
        by=by,
        on=told.reach(command),
        selection=selection_of(state, command.group),
        command=bytes(asked),
        total=bill.total,
        opened=stamp,
        expires=stamp + command.ttl_seconds * SECOND,
        sequence=told.sequence,
        session=_stated(command.type, "type") == OpenSparseVector.command,
        per=bill.per,
    )
    return Reserve(grant, command.purpose, command.allotment)


def _record(state: State, told: _Told) -> Change:
    command, bill = _COMMAND.decode(told.command), told.bill
    selection = EVERYONE if told.charged_to == "everyone" else selection_of(state, command.group)
    asked = command.purpose, command.allotment
    about = told.reach(command).charged, told.by, selection, bill.total, *asked
    return Record(*about, per=bill.per)


def _end(ending: Ending) -> Callable[[State, _Told], Change]:
    def read_end(state: State, told: _Told) -> Change:
        name = _named(told)
        if told.charge is not UNSET:
            return End(name, ending, _charge(told.charge), told.charges)
        if (grant := state.open.get(name)) is None:
            raise ValueError(f"no grant called {name} is open")
        return End(name, ending, Charge().on(grant.total.axis))

    return read_end


def _note(state: State, told: _Told) -> Change:
    return Note(_named(told))


def _answered(state: State, told: _Told) -> Change:
    positives, negatives = told.positives, told.negatives
    counts = _stated(positives, "positives"), _stated(negatives, "negatives")
    if not all(type(count) is int for count in counts):
        raise ValueError("the fields 'positives' and 'negatives' are no whole numbers")
    return Count(_named(told), *counts)


# -- what waits, and what only arrives -------------------------------------------------------


def _wait(state: State, told: _Told) -> Change:
    command, stamp = _COMMAND.decode(told.command), told.stamp
    waiting = waiting_for(
        told.by,
        told.reach(command),
        bytes(told.command),
        (stamp, stamp + command.wait * SECOND, told.sequence),
        (told.bill, state.custody.engine),
    )
    return Wait(waiting, arriving=_arrive(state, told))


def _admit(state: State, told: _Told) -> Change:
    command = _COMMAND.decode(told.command)
    client, asked = _stated(command.client, "client"), _stated(command.request, "request")
    waiting = _waiting(state, _stated(command.grant, "grant"))
    return Admit(waiting.sequence, _grant(state, told, client, asked))


def _leave(ending: Ending) -> Callable[[State, _Told], Change]:
    def read_leave(state: State, told: _Told) -> Change:
        return Leave(_waiting(state, _named(told)).sequence, ending)

    return read_leave


def _arrive(state: State, told: _Told) -> Arrive | Nothing:
    if not _unlocks(state):
        return NOTHING
    document = orjson.loads(bytes(told.command))
    command = read_plain(document) or command_from_json(document)
    return arrival(state, told.by, [command])


def _nothing(state: State, told: _Told) -> Change:
    return NOTHING


def _unlocks(state: State) -> bool:
    """Return whether requests unlock something when they arrive."""
    return state.adopted is not None and state.adopted.policy.unlocking


def _waiting(state: State, name: str) -> Waiting:
    if (waiting := state.waiting.requests.get(name)) is None:
        raise ValueError(f"no request called {name} waits")
    return waiting


def _named(told: _Told) -> str:
    """Return the name of the grant that an event is about."""
    return _stated(_COMMAND.decode(told.command).grant, "grant")


def _charge(data: Raw) -> Charge:
    return _charge_of(bytes(data))


@lru_cache(maxsize=_REMEMBERED)
def _charge_of(data: bytes) -> Charge:
    document = orjson.loads(data)
    if not isinstance(document, dict):
        raise ValueError("what was booked is no object")
    return Charge.from_json(document)


# -- batches, which are read whole -----------------------------------------------------------


def _part(state: State, event: Event) -> Gathered:
    before = state.batch if isinstance(state.batch, Gathered) else None
    return Gathered.after(before, event.sequence, event.time, envelope_of(event))


def _refused_batch(state: State, event: Event) -> Change:
    asked = envelope_of(event)
    if isinstance(state.batch, Gathered):
        asked = state.batch.whole(asked)
    elif "parts" in event.body:
        raise ValueError(f"event {event.sequence} lacks the parts of its batch")
    judged = asked.parts[: batches.first_of(event) + event.body["item"] + 1]
    return arrival(state, event.by, [one.command for one in judged])


def _open_batch(state: State, event: Event) -> Change:
    asked = envelope_of(event).command
    if not isinstance(asked, Batch):
        raise ValueError(f"event {event.sequence} answers {asked.command}, which is no batch")
    return OpenBatch(event.sequence, event.time, event.by, asked)


_PLAIN: Final[dict[str, Callable[[State, _Told], Change]]] = {
    RESERVED: _reserve,
    REFUSED: _arrive,
    PROPOSED: _nothing,
    DECLINED: _nothing,
    COMMITTED: _end("committed"),
    RELEASED: _end("released"),
    EXPIRED: _end("expired"),
    REPUBLISHED: _nothing,
    NOTED: _note,
    ANSWERED: _answered,
    CLOSED: _end("committed"),
    RECORDED: _record,
    WAITING: _wait,
    ADMITTED: _admit,
    TIMED_OUT: _leave("timed out"),
    CANCELLED: _leave("cancelled"),
    NOT_APPROVED: _leave("declined"),
}
_WHOLE: Final[dict[str, Callable[[State, Event], Change]]] = {
    batches.OPENED: _open_batch,
    batches.PART: _part,
    batches.REFUSED: _refused_batch,
}
TYPES: Final = frozenset(_PLAIN) | frozenset(_WHOLE) | frozenset(HANDLERS)
"""All types of events that can be folded in."""
