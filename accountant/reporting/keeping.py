"""What was followed of a ledger as bytes, and back, so that a start reads only what is new.

Beside the state (``budget.snapshot``) these are what reports and pages collect, as JSON. Whoever
reads it has to know that it is authentic, that the same code wrote it, and that the ledger still
begins with these events (``store.snapshots``).
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from accountant.budget import snapshot
from accountant.ledger.events import Event
from accountant.ledger.merkle import Tree
from accountant.reporting.activity import Activity, ActivityKept
from accountant.reporting.burndown import Burndowns, Series
from accountant.reporting.custody import CustodyHistory, CustodyKept
from accountant.reporting.following import Followed
from accountant.reporting.history import History, HistoryKept
from accountant.reporting.packing import Pack, ReadTexts, Tables, Unpack

CODE: Final = ("budget", "privacy", "ledger", "reporting")
"""The code that what is kept depends on, below the package."""
_LENGTH: Final = 8


class FollowedKept(Struct, frozen=True):
    """What was collected beside the state."""

    tables: Tables
    history: HistoryKept
    burndowns: list[tuple[str, str, Series]]
    activity: ActivityKept
    custody: CustodyKept
    adoptions: list[str]


def written(followed: Followed) -> list[bytes]:
    """Return what was followed as parts of one file. Not within a batch, nor when a text was erased
    that may have been read.
    """
    pack = Pack()
    history, custody = followed.history.kept(pack), followed.custody.kept(pack)
    collected = FollowedKept(
        pack.tables(),
        history,
        followed.burndowns.kept(),
        followed.activity.kept(),
        custody,
        [event.to_bytes().decode() for event in followed.adoptions],
    )
    head = msgspec.json.encode(collected)
    return [len(head).to_bytes(_LENGTH, "little"), head, *snapshot.dump(followed.state)]


def read(ledger: str, tree: Tree, data: memoryview, texts: ReadTexts) -> Followed:
    """Return what ``written`` wrote of the events of ``tree``. Raise ValueError for other bytes,
    and for a text that was erased or changed since.
    """
    begin = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    kept = msgspec.json.decode(data[_LENGTH:begin], type=FollowedKept)
    state = snapshot.load(ledger, data[begin:])
    if state.sequence != tree.size:
        raise ValueError(f"the state is after {state.sequence} events, the tree of {tree.size}")
    unpack = Unpack(kept.tables, texts)
    followed = Followed(ledger, tree.size)
    followed.state = state
    followed.history = History.begun(kept.history, unpack, state)
    followed.burndowns = Burndowns.begun(kept.burndowns, state)
    followed.activity = Activity.begun(kept.activity)
    followed.custody = CustodyHistory.begun(kept.custody, unpack, tree)
    followed.adoptions.extend(map(_event, kept.adoptions))
    return followed


def _event(body: str) -> Event:
    return Event.from_bytes(body.encode())


def worth_keeping(followed: Followed) -> bool:
    """Return whether what was followed may be written."""
    return followed.state.batch is None and not followed.outdated
