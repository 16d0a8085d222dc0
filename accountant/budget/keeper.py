"""A ledger's state with the express way beside it: decides commands, folds what others decided.

What ``decide`` and ``folding`` do at length is the definition; the express way does the same for
what repeats (``express``). Between two calls a part of what was booked may stand beside the state:
whoever reads the state asks for ``whole``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

from accountant.budget.batches import REFUSED
from accountant.budget.commands import Asked
from accountant.budget.decide import Repeated, decide, repeated
from accountant.budget.errors import Problem
from accountant.budget.express import Express, Mark
from accountant.budget.folding import apply
from accountant.budget.sealing import Opened
from accountant.budget.state import State, asked_of
from accountant.ledger.events import Entry, Event


class Keeper:
    """Keeps a state. After any exception but a Problem of ``decide`` it may be half changed."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._express = Express(state)

    @property
    def sequence(self) -> int:
        """The next event's."""
        return self.state.sequence

    def whole(self) -> State:
        """The state with all that was booked."""
        self._express.write_back()
        return self.state

    def due(self, now: int, most: int) -> list[str]:
        """At most so many of the open grants whose time has passed, by name, soonest first."""
        return self._express.due(now, most)

    def noted(self) -> AbstractContextManager[Mark]:
        """What is decided from forms until the end can be taken back, as long as nothing else is
        decided or folded in.
        """
        return self._express.noted()

    def take_back(self, mark: Mark) -> None:
        """Takes back all that was decided since ``mark``, while it is ``noted``: the state is as it
        was then.
        """
        self._express.take_back(mark)

    def decide(
        self, asked: Asked, now: int, at_length: Callable[[], object] = lambda: None
    ) -> list[Entry] | Repeated:
        """Decides and folds in: what answers ``asked`` at stamp ``now`` or the last one, if that is
        later. Raises Problem; then nothing has changed. Raises EventTooLarge likewise.

        ``at_length`` is called before anything that cannot be taken back; if it raises, nothing has
        changed.
        """
        if (before := repeated(self.state, asked)) is not None:
            return before
        now = max(now, self.state.time)
        first = self.state.sequence
        if (known := self._express.decide(asked, now)) is not None:
            return [Entry(first + n, kind, now, data) for n, (kind, data) in enumerate(known)]
        at_length()
        self._express.before_asked(asked)
        decided = decide(self.state, asked, now)
        if isinstance(decided, Repeated):
            return decided
        written = [Entry.of(e) for e in decided]
        for one, answers in zip(written, _asked_by(asked, written), strict=True):
            self._fold(one.body, Event.from_bytes(one.body), answers)
        return written

    def decide_run(
        self, asked: Iterable[Asked], now: int, salt: Callable[[], bytes]
    ) -> tuple[list[Entry], list[tuple[int, str, Opened]]]:
        """``decide`` for the first of those ``asked``, whose texts are not sealed yet: as many as
        have new keys and known words, each answered by one event; maybe none. Their texts too.
        """
        first, now = self.state.sequence, max(now, self.state.time)
        run = self._express.decide_run(asked, now, salt)
        entries = [Entry(n, kind, now, data) for n, (kind, data) in enumerate(run.events, first)]
        return entries, run.texts(first)

    def follow(self, data: bytes) -> None:
        """Folds in the next event, as somebody else has decided it. Raises ValueError if it is not
        the next one, or cannot be folded.
        """
        if self.state.batch is None and self._express.take(data):
            return  # items of a batch go the way at length
        event = Event.from_bytes(data)
        if self.state.batch is not None:
            self._fold(data, event, None)
            return
        self._express.before(event)
        asked = asked_of(event) if self._express.learns(event) else None
        self._fold(data, event, asked if asked and self._decided(asked, event, data) else None)

    def _decided(self, asked: Asked, event: Event, data: bytes) -> bool:
        """True if this program would have decided the same."""
        try:
            events = decide(self.state, asked, event.time)
        except Problem:
            return False
        return not isinstance(events, Repeated) and [e.to_bytes() for e in events] == [data]

    def _fold(self, data: bytes, event: Event, asked: Asked | None) -> None:
        """What is folded is what was written, to the byte; the next of its form goes by the express
        way, if its words can be told.
        """
        if self._express.take_written(data, event, asked):
            return
        self._express.write_back()
        apply(self.state, event)
        self._express.folded(event)


def _asked_by(asked: Asked, written: list[Entry]) -> Sequence[Asked | None]:
    """What each event answers, as far as one is answered by it alone."""
    if asked.items:
        alone = () if written[-1].type == REFUSED else asked.parts
    else:
        alone = (asked,) if len(written) == 1 else ()
    return [*[None] * (len(written) - len(alone)), *alone]
