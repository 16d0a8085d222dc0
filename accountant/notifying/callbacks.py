"""Tell clients what became of requests that waited, at the address that each has named.

What is to be told stands in a table beside the events, from the commit on that lets a request wait,
until it was taken or given up. So it is told at least once, whatever ends the service in between;
two services that tell it at once send the same id. Only the id of the wait, its outcome and its
address are told: who receives it may be anybody.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import orjson

from accountant.budget.errors import Problem
from accountant.budget.facts import SECOND
from accountant.budget.proposals import digest_of
from accountant.budget.state import Settled
from accountant.config.logs import logger
from accountant.config.origins import Origin, refused
from accountant.ledger.events import rfc3339
from accountant.notifying.webhook import Message, Undelivered, post
from accountant.runtime.clock import wall_clock
from accountant.runtime.service import Service
from accountant.store.ledgers import Callback, StoreError

_log = logger()
_AT_ONCE: Final = 8
_MOST: Final = 200
"""Messages of one run of the job in a ledger; the rest go with the next."""
PAUSES: Final = (5, 30, 120, 600, 3_600, *(6 * 3_600 for _ in range(12)))
"""Seconds between attempts: after the last one it is given up, after some three days."""


class Callbacks:
    """Sends what is due. Several processes may do it at once."""

    def __init__(self, service: Service, allowed: frozenset[Origin], secret: bytes) -> None:
        self._service, self._allowed, self._secret = service, allowed, secret

    def send_due(self) -> int:
        """Send what is due in all ledgers; return how many messages were taken."""
        return sum(map(self._of, self._service.populations()))

    def _of(self, ledger: str) -> int:
        now, ledgers = wall_clock(), self._service.ledgers
        messages: list[tuple[Callback, Message]] = []
        for one in ledgers.callbacks(ledger, now):
            if self._service.waits(ledger, f"g{one.sequence}"):
                continue
            if (message := self._message(ledger, one)) is not None:
                messages.append((one, message))
            if len(messages) == _MOST:
                break
        if not messages:
            return 0

        def send(due: tuple[Callback, Message]) -> Callback:
            return self._send(ledger, *due, now)

        with ThreadPoolExecutor(_AT_ONCE, "callbacks") as threads:  # no lock is held
            after = list(threads.map(send, messages))
        ended = [one.sequence for one in after if one.due == 0]
        with ledgers.writing(ledger) as writing:
            writing.end_callbacks(ledger, ended)
            writing.put_off_callbacks(ledger, [one for one in after if one.due])
            writing.commit()
        return len(ended)

    def _message(self, ledger: str, one: Callback) -> Message | None:
        """Return what is to be told of a request; None if it waits still."""
        name = f"g{one.sequence}"
        grant, _ = self._service.grant(ledger, name)
        if not isinstance(grant, Settled):
            return None
        waited = self._service.event(ledger, one.sequence)
        ended = self._service.event(ledger, grant.settled)
        body = {
            "type": "grant.decided",
            "timestamp": rfc3339(ended.time),
            "data": {
                "id": name,
                "outcome": grant.status.replace(" ", "_"),
                "address": f"/v1/populations/{ledger}/grants/{name}",
            },
        }
        return Message(f"wait_{digest_of(waited.to_bytes())[:32]}", orjson.dumps(body))

    def _send(self, ledger: str, one: Callback, message: Message, now: int) -> Callback:
        """Send a message once. Return what is to be kept: due at 0 if it is done with."""
        try:
            if (reason := refused(one.url, self._allowed)) is not None:  # the setting has changed
                raise Undelivered(reason)
            post(one.url, message, self._secret, wall_clock() // SECOND)
        except Undelivered as error:
            last = error.for_good or one.attempts >= len(PAUSES)
            tell = _log.error if last else _log.warning
            about = {"ledger": ledger, "grant": f"g{one.sequence}", "reason": str(error)}
            tell("a callback is given up" if last else "a callback was not taken", **about)
            pause = 0 if last else now + PAUSES[one.attempts] * SECOND
            return one._replace(attempts=one.attempts + 1, due=pause)
        return one._replace(due=0)


def send(callbacks: Callbacks) -> None:
    """Send what is due, as a job."""
    try:
        if sent := callbacks.send_due():
            _log.info("callbacks sent", messages=sent)
    except (Problem, StoreError) as error:  # they are due still
        _log.warning("callbacks were not sent", reason=str(error))
