"""Requests that come one after another, answered from forms in one step.

What each of them finds is told for all of them at once (``lanes``). What is written is the same to
the byte, and what is booked the same to the unit, as if they had been asked one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from accountant.budget.commands import Asked, AskGrant, RecordInvocations
from accountant.budget.express.asking import REFUSED, Asking
from accountant.budget.express.forms import Form, values_of
from accountant.budget.express.known import Known
from accountant.budget.express.lanes import Lane, Words
from accountant.budget.express.running import Running
from accountant.budget.express.stamps import Stamps
from accountant.budget.sealing import Opened
from accountant.ledger.events import MAX_BYTES

TOGETHER: Final = (AskGrant, RecordInvocations)
"""What runs consist of."""
FEWEST: Final = 24
"""Requests whose answers are told at once: fewer are answered as fast one by one."""
_MOST: Final = 512
"""Requests in a run."""
_FURTHER: Final = 4
"""What comes after a known key is read in vain. So it is looked whether keys are known when so many
times as many have been read as the last time.
"""
_LEAST_PAUSE: Final = 64
_LONGEST_PAUSE: Final = 4_096
"""Events after a run that came to nothing before the next is tried; each time twice as many."""


class Runs:
    """The runs of one ledger."""

    def __init__(self, running: Running, asking: Asking, stamps: Stamps) -> None:
        self._running, self._asking, self._stamps = running, asking, stamps
        self._most = _MOST
        self._pause, self._pause_to = _LEAST_PAUSE, 0

    def forget(self, running: Running) -> None:
        """Starts afresh."""
        self._running = running

    def decide(self, asked: Iterable[Asked], now: int, salt: Callable[[], bytes]) -> Run:
        """The first of those ``asked``, whose texts are not sealed yet, answered and booked: as
        many as have new keys and known words, maybe none.
        """
        running, opened = self._running, self._asking.opened
        sequence = running.state.sequence
        some = islice(asked, self._most)
        run = self._run(opened(one, salt) if _plain(one) else None for one in some)
        if sequence >= self._pause_to and _worth(run.known):
            run.write(now, sequence, self._stamps)
            run.book(now, running)
            self._asking.earned(len(run.events))
            self._pause_after(len(run.events))
        while len(run.events) < len(run.known):
            found = self._asking.answer(run.known[len(run.events)], now)
            if found is None:
                break
            run.events.append(found)
        # What was looked at in vain is looked at again: next time it is not much more of it.
        answered, whole = len(run.events), len(run.events) == len(run.known)
        self._most = min(2 * self._most, _MOST) if whole else max(1, answered)
        return run

    def _pause_after(self, answered: int) -> None:
        """Where nothing can be told of many at once that is not tried each time."""
        if answered >= FEWEST:
            self._pause = _LEAST_PAUSE
        else:
            self._pause_to = self._running.state.sequence + self._pause
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def items(self, asked: Sequence[Asked], now: int, header: int) -> list[tuple[str, bytes]]:
        """Type and bytes of the events of all items of the batch that begins at ``header``, which
        are booked; none, and nothing is booked, if one of them has to be asked about alone.
        """
        if len(asked) < FEWEST:
            return []
        run = self._run(map(self._asking.known, asked))
        if len(run.known) == len(asked) and _worth(run.known):
            run.write(now, self._running.state.sequence, self._stamps, header)
        if len(run.events) < len(asked):
            return []
        run.book(now, self._running)
        self._asking.earned(len(run.events))
        return run.events

    def _run(self, asked: Iterable[Known | None]) -> Run:
        """The first of those ``asked`` that are known, and have room in their accounts together."""
        running, answers, room = self._running, self._running.state.answers, 0
        known: list[Known] = []
        names: dict[bytes, None] = {}
        ready: set[Form] = set()
        new, look = 0, 1
        for one in asked:
            if one is None or not (one.form in ready or running.ready(one.form)):
                break
            ready.add(one.form)
            room += one.form.weight
            if room > running.room:
                break
            if one.key:
                name = answers.name(one.by, one.key)
                if name in names:
                    break
                names[name] = None
            known.append(one)
            if len(names) == look:
                new += answers.new(list(names)[new:])
                if new < look:
                    break
                look *= _FURTHER
        keys = list(names)  # all of them have one, or none has
        new = new + answers.new(keys[new:]) if keys else len(known)
        return Run(known[:new], keys[:new])


def _plain(asked: Asked) -> bool:
    return bool(asked.key) and type(asked.command) in TOGETHER


def _worth(known: list[Known]) -> bool:
    """They are faster together. A run costs what three accounts do, beside its accounts; each costs
    what a fifth of ``FEWEST`` requests save (measured between commits, when caches are cold).
    """
    if len(known) < FEWEST:
        return False
    lanes = {id(tally) for form in {one.form for one in known} for tally, _, _ in form.tallies}
    return 5 * len(known) >= FEWEST * (len(lanes) + 3)


class _Way(NamedTuple):
    """Where the requests of one form are counted."""

    lanes: list[tuple[Lane, int]]
    """In the order of its tallies; and which kind they are there."""
    expires: bytes


class Run:
    """Requests of known forms, with different keys that are new, in the order of their answers."""

    def __init__(self, known: list[Known], names: list[bytes]) -> None:
        """``names`` stand for their keys, if they have some."""
        self.known = known
        self.events: list[tuple[str, bytes]] = []
        """Type and bytes of what answers them, as far as they are answered."""
        self._names = names
        self._lanes: dict[int, Lane] = {}
        self._ways: dict[Form, _Way] = {}

    def write(self, now: int, first: int, stamps: Stamps, header: int | None = None) -> None:
        """Writes the events, from the sequence ``first`` on, up to the first request that has to be
        asked about alone.
        """
        try:
            self._line_up(now, stamps)
        except OverflowError:  # a grant would expire when no stamp can be written any more
            return
        words = Words()
        for lane in self._lanes.values():
            lane.look(words)
        stamp, batch = stamps.write(now), b"" if header is None else b"%d" % header
        for sequence, one in enumerate(self.known, first):
            form, way = one.form, self._ways[one.form]
            try:
                found = [next(lane.seen) for lane, _ in way.lanes]
            except StopIteration:
                return
            outcomes = tuple([found[at][0][number] for at, number in form.reads])
            answer = form.answer(outcomes, header is not None)
            if answer is None or not answer.tried or answer.event == REFUSED:
                return
            values = values_of(sequence, stamp, way.expires, one.key, one.by, batch, one.holes)
            for at, _ in form.reads:
                values += found[at][1]
            data = answer.wording.filled(values)
            if len(data) > MAX_BYTES:
                return
            self.events.append((answer.event, data))

    def _line_up(self, now: int, stamps: Stamps) -> None:
        ways = self._ways
        for one in self.known:
            way = ways.get(one.form) or self._way(one.form, now, stamps)
            for lane, kind in way.lanes:
                lane.which.append(kind)

    def _way(self, form: Form, now: int, stamps: Stamps) -> _Way:
        lanes = []
        for tally, selection, charge in form.tallies:
            if (lane := self._lanes.get(id(tally))) is None:
                lane = self._lanes[id(tally)] = Lane(tally)
            lanes.append((lane, lane.kind(selection, charge)))
        expires = stamps.write(now + form.lasts) if form.lasts else b""
        way = self._ways[form] = _Way(lanes, expires)
        return way

    def book(self, now: int, running: Running) -> None:
        """Books what was written."""
        booked, first = self.known[: len(self.events)], running.state.sequence
        taken = Counter[Lane]()
        for form, count in Counter([one.form for one in booked]).items():
            running.count(form, count)
            for lane, _ in self._ways[form].lanes:
                taken[lane] += count
        for lane, count in taken.items():
            lane.book(count)
        for sequence, one in enumerate(booked, first):
            if one.form.reserves:
                running.hold(sequence, one.form, one.rest(now))
        if self._names:
            fingerprints = [one.fingerprint for one in booked]
            running.state.answers.add(self._names[: len(booked)], fingerprints, first)
        if booked:
            running.passed(len(booked), now)

    def texts(self, first: int) -> list[tuple[int, str, Opened]]:
        """The free texts of what was written from the sequence ``first`` on, with their fields."""
        return [
            (sequence, field, text)
            for sequence, (_, one) in enumerate(zip(self.events, self.known, strict=False), first)
            for field, text in one.opened.items()
        ]
