"""Tell people what needs them: each alert once to each channel, until it was taken or given up.

What is to be told stands in a table beside the events. A process claims a row by compare-and-swap
before it sends, so that of several one does; one that is killed between sending and noting it
leaves the row due, and the same message comes again, with the same id. No lock is held while
something is sent. What is muted is not entered, and told afterwards if it is still so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from threading import Event
from typing import Final, NamedTuple

import orjson
from msgspec import Struct

from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.config.alerts import KINDS, Channel, Kind
from accountant.config.logs import logger
from accountant.ledger.events import rfc3339
from accountant.notifying.webhook import Undelivered
from accountant.runtime.clock import wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import AlertRow, Ledgers, StoreError
from accountant.store.queries import Queries

_log = logger()
_AT_ONCE: Final = 8
_SINGLY: Final = 5
"""Alerts that became due together and go to people one by one; more of them go as one message."""
_MOST_PARTS: Final = 100
"""Sentences of a message; further alerts are counted."""
_ROUNDS: Final = 5
"""Of so many messages in a ledger, of one run of the job; the rest go with the next."""
PAUSES: Final = (60, 300, 1_800, 7_200, *(6 * 3_600 for _ in range(11)))
"""Seconds between attempts: after the last one it is given up, after some three days. The first is
longer than a message takes, so that nothing is sent again that is being sent.
"""
_FARTHEST: Final = max(PAUSES) * SECOND
"""What is due later than this from now was put off by a clock that has gone back since."""
DAY: Final = 86_400 * SECOND
ALL: Final = "all"
"""Instead of a kind: alerts of all kinds are muted."""


class Alert(Struct, frozen=True):
    """Something to tell once. ``name`` is the same for as long as it is the same thing; ``place``:
    its page, below the population's; ``covers``: the names of alerts that are not worth telling any
    more.
    """

    kind: Kind
    name: str
    sentence: str
    place: str = ""
    dataset: str = ""
    rule: str = ""
    covers: tuple[str, ...] = ()

    def said(self) -> bytes:
        """Return what is kept of it, and told."""
        words = {"kind": self.kind, "sentence": self.sentence, "place": self.place}
        about = {"dataset": self.dataset, "rule": self.rule}
        return orjson.dumps(words | {name: value for name, value in about.items() if value})


class Told(NamedTuple):
    """An alert as a channel gets it. ``id`` is the same for each attempt and each channel; ``time``
    is when it was first seen, in RFC 3339; ``page`` is the address of its page, empty if none is
    known.
    """

    id: str
    time: str
    population: str
    kind: str
    sentence: str
    page: str
    dataset: str = ""
    rule: str = ""
    parts: tuple[str, ...] = ()
    """Of several alerts that are told as one: their sentences, the gravest first."""


class Way(NamedTuple):
    """A channel, and what sends one message there, or raises Undelivered. People get many alerts as
    one; programs, to whose webhooks events go, get each.
    """

    channel: Channel
    send: Callable[[Told], None]

    @property
    def gathers(self) -> bool:
        """Whether many alerts go there as one."""
        return self.channel.webhook is None


Message = tuple[AlertRow, ...]
"""The alerts of one message to one channel, the gravest first."""


Rest = Callable[[float], bool]
"""Waits so many seconds; returns True at once if the service stops."""
Look = Callable[[Rest], Iterable[tuple[str, list[Alert]]]]
"""Gives what is worth an alert now, by population."""


class Alerting:
    """Enters what is new, and sends what is due. Several processes may do it at once. ``console``
    is the address of the console, empty if none is known; ``origin`` makes the ids of this service
    its own.
    """

    def __init__(
        self, service: Service, look: Look, ways: Sequence[Way], console: str, origin: str
    ) -> None:
        self._ledgers, self._populations = service.ledgers, service.populations
        self._look, self._ways = look, {way.channel.name: way for way in ways}
        self._console, self._origin = console, origin
        self._stopping = Event()
        self._touched: set[str] = set()
        """Ledgers that are no population of users, of which there was something to tell."""

    def run(self) -> int:
        """Look, and send what is due in all ledgers; return how many messages were delivered. A
        ledger that cannot be written to now keeps no other waiting. Raise StoreError.
        """
        for population, alerts in self._look(self._stopping.wait):
            self._touched.add(population)
            with _tried(population):
                self.enter(population, alerts)
        sent = 0
        for population in sorted({*self._populations(), *self._touched}):
            with _tried(population):
                sent += self.send_due(population)
        return sent

    def stop(self) -> None:
        """Begin nothing new: the service stops."""
        self._stopping.set()

    def enter(self, ledger: str, alerts: Sequence[Alert]) -> int:
        """Enter the alerts that are new; return how many rows. Without any nothing is written."""
        now = wall_clock()
        muted = muted_in(self._ledgers, ledger, now)
        told = [one for one in alerts if muted.isdisjoint((one.kind, ALL))]
        wanted = self._wanted(ledger, told, now)
        if not _new(self._ledgers, ledger, wanted):
            return 0
        with self._ledgers.writing(ledger) as writing:  # others may have entered them meanwhile
            if rows := _new(writing, ledger, wanted):
                writing.keep_alerts(ledger, rows)
                writing.commit()
        return len(rows)

    def _wanted(self, ledger: str, alerts: Sequence[Alert], now: int) -> list[AlertRow]:
        """Return the rows of some alerts. What is covered stands there as delivered."""
        found: dict[tuple[str, str], AlertRow] = {}
        for one in alerts:
            for name in self._ways:
                if self._ways[name].channel.takes(ledger, one.kind):
                    row = AlertRow(one.name, name, now, now, 0, 0, one.said())
                    found[one.name, name] = row
                    for covered in one.covers:
                        found[covered, name] = row._replace(name=covered, delivered=now)
        return list(found.values())

    def send_due(self, ledger: str) -> int:
        """Send what is due in one ledger; return how many messages were delivered."""
        sent = 0
        for _ in range(_ROUNDS):
            now = wall_clock()
            if self._stopping.is_set() or not (due := self._due(ledger, now)):
                break
            sent += self._round(ledger, due, now)
        return sent

    def _round(self, ledger: str, due: list[Message], now: int) -> int:
        """Claim the alerts of some messages, and send at once those that no other process has
        claimed.
        """
        claimed = list[Message]()
        with self._ledgers.writing(ledger) as writing:
            for message in due:
                later = now + PAUSES[min(message[0].attempts, len(PAUSES) - 1)] * SECOND
                mine = [row for row in message if writing.claim_alert(ledger, row, later)]
                claimed += [tuple(mine)] if mine else []
            writing.commit()
        with ThreadPoolExecutor(_AT_ONCE, "alerts") as threads:  # no lock is held
            sent = list(threads.map(lambda message: self._send(ledger, message), claimed))
        ended = [(one, end) for one, end in zip(claimed, sent, strict=True) if end is not None]
        if ended:
            with self._ledgers.writing(ledger) as writing:
                for message, end in ended:
                    for row in message:
                        writing.end_alert(ledger, row, end)
                writing.commit()
        return sum(bool(end) for _, end in ended)

    def _due(self, ledger: str, now: int) -> list[Message]:
        """Return the messages that are due, some of them: those that fail do not keep the others
        waiting. What failed together stays together, as it is due at the same stamp again.
        """
        found = [
            row
            for row in self._ledgers.open_alerts(ledger)
            if row.channel in self._ways and not now < row.due <= now + _FARTHEST
        ]
        if not found:
            return []
        muted = muted_in(self._ledgers, ledger, now)
        kinds = (orjson.loads(row.said)["kind"] for row in found)
        heard = [
            row
            for row, kind in zip(found, kinds, strict=True)
            if muted.isdisjoint((kind, ALL)) and self._ways[row.channel].channel.takes(ledger, kind)
        ]
        together = defaultdict[tuple[int, int, str], list[AlertRow]](list)
        for row in heard:
            together[row.due, row.attempts, row.channel].append(row)
        messages = list[Message]()
        for _, rows in sorted(together.items()):
            gathered = len(rows) > _SINGLY and self._ways[rows[0].channel].gathers
            whole = [tuple(sorted(rows, key=_gravity))] if gathered else [(row,) for row in rows]
            messages += whole
        return messages[:_AT_ONCE]

    def _send(self, ledger: str, message: Message) -> int | None:
        """Send a message once. Return when it was delivered, 0 to give it up, None to try again."""
        row, more = message[0], len(message) - 1
        told = self.together(ledger, message) if more else self.told(ledger, row)
        try:
            self._ways[row.channel].send(told)
        except Undelivered as error:
            last = error.for_good or row.attempts >= len(PAUSES)
            tell = _log.error if last else _log.warning
            name = f"{row.name} and {more} more" if more else row.name
            about = {"ledger": ledger, "alert": name, "channel": row.channel}
            what = "an alert is given up" if last else "an alert was not taken"
            tell(what, **about, reason=str(error))
            return 0 if last else None
        return wall_clock()

    def told(self, ledger: str, row: AlertRow) -> Told:
        """Return what a channel gets of a row."""
        said = orjson.loads(row.said)
        digest = sha256("\0".join((self._origin, ledger, row.name)).encode()).hexdigest()
        place = said.pop("place")
        page = f"{self._console}/{ledger}/{place}" if self._console and place else self._console
        if ledger not in self._populations():  # keys have pages, and the service's clock has none
            of_keys = self._console and place.startswith("proposals/")
            page = f"{self._console}/-/{place}" if of_keys else self._console
        return Told(f"alert_{digest[:32]}", rfc3339(row.seen), ledger, page=page, **said)

    def together(self, ledger: str, message: Message) -> Told:
        """Return what a channel of people gets of several alerts: how many of which kind, and the
        sentence of each. Its id is the same for the same alerts.
        """
        each = [self.told(ledger, row) for row in message]
        digest = sha256("\0".join(one.id for one in each).encode()).hexdigest()
        kinds = Counter(one.kind for one in each)
        counts = ", ".join(f"{number:,} {kind}" for kind, number in kinds.items())
        parts = [one.sentence for one in each[:_MOST_PARTS]]
        if len(each) > _MOST_PARTS:
            parts.append(f"and {len(each) - _MOST_PARTS:,} more")
        return Told(
            f"alerts_{digest[:32]}",
            min(one.time for one in each),
            ledger,
            kind=", ".join(kinds),
            sentence=f"{ledger}: {len(each):,} alerts at once ({counts}).",
            page=self._console,
            parts=tuple(parts),
        )


def _gravity(row: AlertRow) -> tuple[int, str]:
    return KINDS.index(orjson.loads(row.said)["kind"]), row.name


@contextmanager
def _tried(ledger: str) -> Iterator[None]:
    """Log that the alerts of a ledger have to wait for the next run."""
    try:
        yield
    except StoreError as error:
        _log.warning("alerts of a ledger wait", ledger=ledger, reason=str(error))


def _new(known: Queries, ledger: str, wanted: list[AlertRow]) -> list[AlertRow]:
    """Return the rows that are not there yet."""
    there = known.known_alerts(ledger, [row.name for row in wanted])
    return [row for row in wanted if (row.name, row.channel) not in there]


def muted_in(ledgers: Ledgers, ledger: str, now: int) -> set[str]:
    """Return the kinds that are muted at a stamp."""
    return {one.kind for one in ledgers.mutes(ledger) if one.holds(now)}


def tell(alerting: Alerting) -> None:
    """Look, and send what is due, as a job."""
    try:
        if sent := alerting.run():
            _log.info("alerts sent", messages=sent)
    except (Problem, StoreError) as error:  # they are due still
        _log.warning("alerts were not sent", reason=str(error))
