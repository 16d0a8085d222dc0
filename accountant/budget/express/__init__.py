"""The express way of a replay: what repeats an earlier event but for numbers is compared with what
the rules make of those numbers, byte by byte, and booked by counting.

It only ever says yes to bytes that it has written itself, as ``decide`` would write them; for
everything else the way goes through ``decide``, and so does whatever is worded for the first time.
What it has booked stands in the state after ``write_back``.

It knows five kinds of rules. While a policy has a rule of any other kind it answers nothing, books
nothing and learns nothing: a form would leave that rule out.

It remembers at most ``MOST_FORMS`` forms, with ``MOST_SETTLEMENTS`` ways to settle their grants,
and a few numbers for each open grant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Final

from accountant.budget.calendar import Calendar
from accountant.budget.commands import (
    Asked,
    AskGrant,
    CommitGrant,
    ExpireGrant,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.budget.express.asking import ASKED, Asking
from accountant.budget.express.ending import Ending
from accountant.budget.express.reading import Read, read
from accountant.budget.express.running import Mark, Running
from accountant.budget.express.runs import TOGETHER, Run, Runs
from accountant.budget.express.settlements import ENDINGS
from accountant.budget.express.stamps import Stamps
from accountant.budget.express.together import Together
from accountant.budget.policy import (
    LimitRule,
    MechanismRule,
    PurposeRule,
    RequireRule,
    ThresholdRule,
)
from accountant.budget.state import State
from accountant.ledger.events import MAX_BYTES, Event

__all__ = ["TOGETHER", "Express", "Mark"]

_ENDED: Final = frozenset(kind.decode() for kind in ENDINGS)
_HARMLESS: Final = frozenset(
    {
        "batch.opened.v1",
        "batch.refused.v1",
        "grant.noted.v1",
        "sparse_vector.answered.v1",
        "sparse_vector.closed.v1",
    }
)
_RULES: Final = frozenset({LimitRule, ThresholdRule, MechanismRule, RequireRule, PurposeRule})
"""The kinds of rules that forms tell the words of; what is derived from one is another kind."""
_FEW_ENDED: Final = 10_000
"""Grants that have ended and may stand in the calendar, beside as many as are open."""
_NAME: Final = re.compile("g(0|[1-9][0-9]{0,15})")


class Express:
    """The express way through one ledger, from ``state`` on."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._stamps = Stamps()
        self._running = Running(state)
        self._asking = Asking(self._running, self._stamps)
        self._ending = Ending(self._running, self._stamps)
        self._runs = Runs(self._running, self._asking, self._stamps)
        self._together = Together(self._running, self._asking, self._runs)
        self._last: Read | None = None

    def decide(self, asked: Asked, now: int) -> list[tuple[str, bytes]] | None:
        """Decides and folds in: type and bytes of each event that answers ``asked``, whose key is
        new; None if it has to be decided at length.
        """
        if self._idle or now < self._state.time:
            return None
        if asked.items:
            return self._together.decide(asked, now)
        found = self._alone(asked, now)
        return None if found is None else [found]

    def decide_run(self, asked: Iterable[Asked], now: int, salt: Callable[[], bytes]) -> Run:
        """``decide`` for the first of those ``asked``, whose texts are not sealed yet: as many as
        have new keys and known words, maybe none.
        """
        if self._idle or now < self._state.time:
            return Run([], [])
        return self._runs.decide(asked, now, salt)

    @property
    def _idle(self) -> bool:
        """Everything goes the way at length: a batch is open, or a rule is of an unknown kind."""
        return self._state.batch is not None or not self._knows_rules

    @property
    def _knows_rules(self) -> bool:
        adopted = self._state.adopted
        return adopted is None or adopted.kinds <= _RULES

    def noted(self) -> AbstractContextManager[Mark]:
        """What is decided until the end can be taken back, as long as all of it goes this way."""
        return self._running.noted()

    def take_back(self, mark: Mark) -> None:
        """Takes back all that was decided since ``mark``."""
        self._running.take_back(mark)

    def _alone(self, asked: Asked, now: int) -> tuple[str, bytes] | None:
        if isinstance(asked.command, AskGrant | RecordInvocations):
            return self._asking.decide(asked, now)
        if isinstance(asked.command, CommitGrant | ReleaseGrant | ExpireGrant):
            return self._ending.decide(asked, now)
        return None

    def due(self, now: int, most: int) -> list[str]:
        """At most so many open grants whose time has passed, by name, soonest first. Nothing need
        be written back: who asks every second would have all that was booked written.
        """
        grants, held = self._state.grants, self._running.held
        calendar = grants.calendar
        if calendar is None or len(calendar) > 2 * (len(grants.open) + len(held)) + _FEW_ENDED:
            entries = {(expires, f"g{number}") for expires, number in held.all()}
            entries |= {(grant.expires, name) for name, grant in grants.open.items()}
            calendar = grants.calendar = Calendar(entries)
        return calendar.due(now, most, self._expires)

    def _expires(self, name: str) -> int | None:
        held = self._running.held.expires(int(name[1:])) if _NAME.fullmatch(name) else None
        if held is None and (grant := self._state.open.get(name)) is not None:
            return grant.expires
        return held

    def take(self, data: bytes) -> bool:
        """Folds the event in if its bytes are what the next one's have to be; else says no."""
        self._last = None
        if not self._knows_rules or not isinstance(data, bytes) or len(data) > MAX_BYTES:
            return False
        found = self._last = read(data, self._stamps)
        if found is None or found.now < self._state.time:
            return False
        way = self._ending if found.kind in ENDINGS else self._asking
        return way.take(found)

    def before(self, event: Event) -> None:
        """Writes to the state what deciding about ``event`` will read."""
        command = event.body.get("command")
        if event.type not in ASKED | _ENDED or not isinstance(command, dict):
            self.write_back()
            return
        grants = event.body.get("grant"), command.get("grant")
        self._write(event.by, command.get("dataset"), grants)

    def _write(self, by: str, dataset: object, grants: Iterable[object]) -> None:
        """Writes to the state the accounts of ``dataset`` that rules read, and open ``grants``."""
        if isinstance(dataset, str):
            for counted in self._state.limits_on(dataset, by):
                if (tally := self._running.tallies.get(counted.key)) is not None:
                    tally.write()
        for name in grants:
            if isinstance(name, str) and (found := _NAME.fullmatch(name)):
                self._running.grant(int(found[1]))

    def before_asked(self, asked: Asked) -> None:
        """Writes to the state what deciding about ``asked`` will read."""
        kind = type(asked.command)
        if kind in (AskGrant, RecordInvocations):
            self._write(asked.by, getattr(asked.command, "dataset", None), ())
        elif kind in (CommitGrant, ReleaseGrant, ExpireGrant):
            self._write(asked.by, None, (getattr(asked.command, "grant", None),))
        else:
            self.write_back()

    def take_written(self, data: bytes, event: Event, asked: Asked | None = None) -> bool:
        """Folds in an event that was written as the rules demand, if it knows how: one that was
        ``asked`` and decided at length just now, or (without that) one that says itself what has to
        follow from its command.
        """
        self._last = read(data, self._stamps)
        if asked is None and event.type in _ENDED:
            return False  # what it was charged is only believed: nothing is learnt from it
        return self.take_decided(event, asked)

    def learns(self, event: Event) -> bool:
        """Deciding about ``event`` again would tell how more of its kind end."""
        return event.type in _ENDED and self._last is not None and self._ending.learns(self._last)

    def take_decided(self, event: Event, asked: Asked | None) -> bool:
        """Folds in an event that was decided at length and found right, if it knows how."""
        found = self._last
        if found is None or found.now < self._state.time or not self._knows_rules:
            return False
        if event.type in _ENDED:
            if self._state.batch is not None:
                return False
            return self._ending.take_decided(found, event)
        return event.type in ASKED and self._asking.take_decided(found, event, asked)

    def folded(self, event: Event) -> None:
        """``event`` was folded in at length, and was right."""
        if event.type in ASKED | _ENDED | _HARMLESS:
            self._running.grew(_units(event.body))
            name = event.body.get("grant")
            if isinstance(name, str) and (found := _NAME.fullmatch(name)):
                self._running.held.drop(int(found[1]))
        else:
            self.forget()

    def forget(self) -> None:
        """Starts afresh; nothing may be pending."""
        self._running = Running(self._state)
        self._asking.forget(self._running)
        self._ending.forget(self._running)
        self._runs.forget(self._running)
        self._together.forget(self._running)

    def write_back(self) -> None:
        """Writes to the state all that was booked."""
        self._running.write()


def _units(body: dict[str, Any]) -> int:
    """What no account's bound grew by more than."""
    booked = body.get("total") or body.get("charge") or {}
    return max((int(units) for name, units in booked.items() if name != "infinite"), default=0)
