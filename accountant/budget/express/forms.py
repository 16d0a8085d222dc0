"""Forms: all events that answer one command, as long as no rule changes; of one client only where
a rule counts by client.

Such events differ in their stamp, key and sequence, in what was used before, in the salt of free
texts, and in when something ran; and by what the rules then say, which is a wording of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import orjson

from accountant.budget.accounts import vector
from accountant.budget.commands import Asked, AskGrant, RecordInvocations
from accountant.budget.decide.asking import answered
from accountant.budget.decision import MAX_DETAIL
from accountant.budget.express.atoms import Atom
from accountant.budget.express.gauges import GAUGES, TEXTS, Gauge, first_of, fits
from accountant.budget.express.reading import Holes
from accountant.budget.express.tallies import Count, Pending, Tally
from accountant.budget.express.wording import Wording, bare, slot
from accountant.budget.grants import Bookings, Grant
from accountant.budget.judge import judge
from accountant.budget.limits import Reading, compared
from accountant.budget.request import Request, prepare
from accountant.budget.state import ALL, AccountKey, Counted, State, lifetime
from accountant.ledger.events import Event
from accountant.privacy.filters import Capacity
from accountant.privacy.units import Charge

SEQUENCE, STAMP, EXPIRES, KEY, GRANT, BY, BATCH, SEALED = range(GAUGES - 2)
RAN_AT: Final = GAUGES - 1
"""Slots of the values that events have; ``SEALED`` is the first of two."""

TEXTS_SEALED: Final = ("justification", "purpose")
"""Texts of which an event may hold a salted digest instead, which no rule reads."""

_MOST_WORDINGS: Final = 64
_LONGEST: Final = 64
"""Characters that a slot may take; a sum of 2**62 units has half as many."""

Tallies = Callable[[AccountKey, Counted | None], Tally]


class Answer:
    """One wording of a form. ``tried``: it was once compared with a decision taken at length."""

    __slots__ = ("event", "tried", "wording")

    def __init__(self, event: Event, wording: Wording) -> None:
        self.event = event.type
        self.wording = wording
        self.tried = False


class Form:
    """What is the same for all events of one form."""

    def __init__(
        self, state: State, asked: Asked, command: AskGrant | RecordInvocations, tallies: Tallies
    ) -> None:
        self.command = command
        self.request = prepare(state, asked.by, command, state.time)
        self.document = asked.document
        differs = sealed_in(self.document) or "ran_at" in self.document
        self.fingerprint = None if differs else asked.fingerprint
        self.reserves = isinstance(command, AskGrant)
        self.lasts = command.ttl_seconds * 1_000_000 if isinstance(command, AskGrant) else 0
        self.count = Count()
        self.weight = max(self.request.total.finite)
        """What it takes at most of the room that an account has before its sums could wrap."""
        self.parts: list[tuple[Tally, Pending]] = []
        self.tallies: list[tuple[Tally, int, Atom]] = []
        """Those that are compared, with the selection's number and the charge."""
        self.gauges: list[Gauge] = []
        self.reads: list[tuple[int, int]] = []
        """Of each gauge, which of the tallies it reads, and the number of the comparison there."""
        self.bookings: Bookings = ()
        self.settlements: dict[Any, Any] = {}
        self._state, self._asked = state, asked
        self._answers: dict[tuple[bool, tuple[int, ...]], Answer | None] = {}
        self._book(tallies)
        judge(state, self.request, self._gauge)

    def _book(self, tallies: Tallies) -> None:
        """The accounts that ``folding`` books it in."""
        request = self.request
        counted = self._state.limits_on(request.dataset, self._asked.by)
        sure = [(lifetime(request.dataset), None), (lifetime(ALL), None)]
        for key, rule in [*((c.key, c) for c in counted), *sure]:
            tally = tallies(key, rule)
            charge = request.total.on(tally.account.axis)
            self.bookings += ((key, charge),)
            column = vector(charge)
            self.parts.append((tally, Pending(self.count, request.selection, column, column)))
            if rule is not None:
                number = tally.know(request.selection)
                self.tallies.append((tally, number, atom_of(tally, charge)))

    def wait(self) -> None:
        """What was counted is to be written back."""
        if not self.count.waits:
            self.count.waits = True
            for tally, pending in self.parts:
                tally.wait(pending)

    def _gauge(
        self, _state: State, _request: Request, counted: Counted, capacity: Capacity
    ) -> Reading:
        """Stands in for ``limits.read`` and notes what would be compared."""
        for at, (tally, number, charge) in enumerate(self.tallies):
            if tally.counted == counted:
                self.gauges.append(Gauge(tally, number, capacity, charge, self.gauges))
                self.reads.append((at, self.gauges[-1].comparison))
        n = len(compared(capacity))
        return Reading(True, {}, "0", "0", ("0",) * n, (True,) * n)

    def answer(self, outcomes: tuple[int, ...], item: bool) -> Answer | None:
        """The wording where the gauges have read ``outcomes``, alone or as an item of a batch; None
        if there is no fixed one.
        """
        place = item, outcomes
        if place not in self._answers:
            if len(self._answers) >= _MOST_WORDINGS:
                self._answers.clear()
            self._answers[place] = self._word(outcomes, item)
        return self._answers[place]

    def _word(self, outcomes: tuple[int, ...], item: bool) -> Answer | None:
        numbers = iter(range(len(outcomes)))

        def read(_state: State, _request: Request, _counted: Counted, at: Capacity) -> Reading:
            number = next(numbers)
            return self._reading(number, outcomes[number], len(compared(at)))

        decision = judge(self._state, self.request, read)
        longest = sum(len(orjson.dumps(finding.to_json())) for finding in decision.findings)
        if longest + _LONGEST * 2 * TEXTS * len(outcomes) > MAX_DETAIL:
            return None  # details might be left out, or not, as the numbers are long or short
        event = answered(self._state, self._asked, self.command, self.request, decision, 0)
        return Answer(event, Wording(self._with_slots(event, item)))

    def _reading(self, number: int, outcome: int, n: int) -> Reading:
        first = first_of(number)
        holds = tuple(outcome >> i & 1 == 1 for i in range(n))
        cell = self.gauges[number].tally.cell(outcome >> 3)
        return Reading(
            fits=fits(outcome),
            group=self._state.people().describe(cell) if cell is not None else {},
            before=slot(first + 3),
            after=slot(first + 4),
            used=tuple(slot(first + i) for i in range(n)),
            holds=holds,
        )

    def _with_slots(self, event: Event, item: bool) -> dict[str, Any]:
        document = event.to_json()
        for name in ("batch", "key"):  # of the one that the form was made for
            document.pop(name, None)
        slots: dict[str, Any] = {"sequence": bare(SEQUENCE), "time": slot(STAMP), "by": slot(BY)}
        slots |= {"batch": bare(BATCH)} if item else {"key": slot(KEY)}
        if "grant" in document:
            slots |= {"grant": "g" + slot(SEQUENCE), "expires": slot(EXPIRES)}
        slots["decision"] = document["decision"] | {"id": "d" + slot(SEQUENCE)}
        slots["command"] = with_seals(self.document, [slot(SEALED), slot(SEALED + 1)])
        if "ran_at" in self.document:
            slots["command"] |= {"ran_at": slot(RAN_AT)}
        return document | slots

    def grant(self, sequence: int, held: Held) -> Grant:
        """The grant that was reserved at ``sequence``."""
        return Grant(
            id=f"g{sequence}",
            by=held.by,
            dataset=self.request.dataset,
            selection=self.request.selection,
            command=with_seals(self.document, [seal.decode() for seal in held.seals]),
            total=self.request.total,
            opened=held.opened,
            expires=held.expires,
            sequence=sequence,
            bookings=self.bookings,
        )


class Held(NamedTuple):
    """An open grant of a form."""

    form: Form
    by: str
    expires: int
    opened: int
    seals: tuple[bytes, ...]


def values_of(
    sequence: int, stamp: bytes, expires: bytes, key: bytes, by: bytes, batch: bytes, holes: Holes
) -> list[bytes]:
    """The values of an event beside those of its gauges, in the order of their slots."""
    first, second = (*holes.seals, b"", b"")[:2]
    return [b"%d" % sequence, stamp, expires, key, b"", by, batch, first, second, holes.ran_at]


def sealed_in(command: dict[str, Any]) -> list[str]:
    """The fields whose text is sealed, in the order of the command's bytes."""
    return [name for name in TEXTS_SEALED if isinstance(command.get(name), dict)]


def with_seals(command: dict[str, Any], seals: Sequence[str]) -> dict[str, Any]:
    """The command with other digests of its sealed texts."""
    fields = zip(sealed_in(command), seals, strict=False)
    return command | {name: {"sealed": seal} for name, seal in fields}


def atom_of(tally: Tally, charge: Charge) -> Atom:
    """The part of ``charge`` that is compared."""
    places = [charge.axis.index(currency) for currency in tally.currencies]
    found = [n for i in places for n in (charge.finite[i], charge.infinite[i])]
    return found + [0] * (6 - len(found))
