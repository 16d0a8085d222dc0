"""What each event means to those who wait: called by ``apply`` after it has folded one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from accountant.budget.changes import Admit, Arrive, Counted, End, Leave, Record, Reserve, Wait
from accountant.budget.grants import AccountKey
from accountant.budget.outcome import REGISTERED
from accountant.budget.waiting.due import joined
from accountant.budget.waiting.looking import when
from accountant.budget.waiting.queue import WHOLE, Index
from accountant.ledger.events import Event

if TYPE_CHECKING:
    from accountant.budget.outcome import Change
    from accountant.budget.state import State
    from accountant.ledger.events import Entry

_QUIET: Final = frozenset(
    {
        "signing_key.adopted.v1",
        "publication.stopped.v1",
        "publication.resumed.v1",
        "text.erased.v1",
        "report.filed.v1",
        "ledger.verified.v1",
        "clock.accepted.v1",
        "batch.opened.v1",
        "batch.part.v1",
        "change.proposed.v1",
        "change.declined.v1",
    }
)
"""Events about the ledger as a whole that no comparison depends on."""


def wake(state: State, change: Change, before: Any, entry: Entry) -> None:
    """Bring the index in step with an event that was folded; ``before`` is what ``fold`` returned.
    What it may have let in is looked at when somebody asks what is due.
    """
    queue = state.waiting
    if (index := queue.index) is None:
        return
    if not queue.requests:
        queue.index = None
    elif isinstance(change, Wait | Arrive | Reserve):
        queue.index = _arrived(state, index, change, before, entry.time)
    elif isinstance(change, Admit | Leave):
        queue.index = index.remove(change.sequence)
    elif isinstance(change, End):
        grant = before[0]
        keys = [key for key, _ in grant.bookings]
        if change.final != grant.total:
            shape = state.people().shape
            for key in keys:
                index = index.rise(key, state.cells(key.unit, grant.selection), shape)
        queue.index = _scheduled(state, index, keys, entry.time)
    elif isinstance(change, Record):
        keys = [key for booked in before.booked for key in booked.keys]
        queue.index = _scheduled(state, index, keys, entry.time)
    elif not _quiet(state, entry):
        queue.index = None


def _quiet(state: State, entry: Entry) -> bool:
    """Return whether an event about the ledger as a whole lets nothing in.

    So does the registration of a dataset that no request is charged to: of a limit across datasets
    it may only bring into the total what the dataset was used for outside of it (rules/limit.py).
    """
    if entry.type != REGISTERED:  # what one that charges has booked may pass with time
        return entry.type in _QUIET or entry.type.startswith(("grant.", "sparse_vector."))
    dataset = Event.from_bytes(entry.body).body["command"]["id"]
    lists = {about.named for about in state.waiting.about}
    return not any(dataset in state.reach(list(named)).charged for named in lists)


def _arrived(
    state: State, index: Index, change: Wait | Arrive | Reserve, before: Any, now: int
) -> Index:
    """Return the index in which what arriving requests have unlocked has risen."""
    if isinstance(change, Wait):
        index = joined(state, index, change.waiting, change.witness, now)
    arrived: Sequence[Counted] = (before.arrived if isinstance(change, Reserve) else before) or []
    for one in arrived:
        index = index.rise(one.key, one.selection, state.people().shape)
    return index


def _scheduled(state: State, index: Index, keys: Iterable[AccountKey], now: int) -> Index:
    """Return the index that looks again when what was just spent passes."""
    for key in keys:
        every = key, WHOLE
        if (stamp := when(state, every, (), now)) is not None and index.holds(key):
            index = index.schedule(every, stamp)
    return index
