"""Long polls: answers that wait until a request does not wait any more.

A poll is a task and holds no thread. It looks at the state in memory, and from time to time, in a
thread, at the ledger, which another process may write. Only ``MOST_POLLS`` may wait at once; one
more is answered at once, as if it had waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Query
from pydantic import BeforeValidator
from starlette.concurrency import run_in_threadpool

from accountant.budget.commands import seconds_in
from accountant.budget.state import Grant, Settled
from accountant.budget.waiting.asked import Waiting
from accountant.runtime.service import Service

LONGEST: Final = 60
MOST_POLLS: Final = 1_000
_LOOK: Final = 0.1  # Seconds between two looks at the state in memory
_READ: Final = 5.0  # Seconds between two looks at the ledger

Patience = Annotated[
    int,
    BeforeValidator(seconds_in),
    Query(ge=0, le=LONGEST, description="seconds, or 30s: how long to wait for a change"),
]
Found = tuple[Grant | Settled | Waiting, int]


class Polls:
    """The polls that wait in this process. Its event loop alone uses it."""

    def __init__(self, most: int = MOST_POLLS) -> None:
        self._most, self._now = most, 0

    async def grant(
        self, service: Service, ledger: str, name: str, patience: int, gone: Callable[[], bool]
    ) -> Found:
        """Return a grant once it does not wait any more, or at the latest after ``patience``
        seconds, or when the client is ``gone``. Raise NotFound.
        """
        found = await run_in_threadpool(service.grant, ledger, name)
        if not _waits(found) or not patience or self._now >= self._most:
            return found
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        self._now += 1
        try:
            while _waits(found) and loop.time() < end and not gone():
                read = min(end, loop.time() + _READ)
                while loop.time() < read and service.waits(ledger, name) and not gone():
                    await asyncio.sleep(_LOOK)
                found = await run_in_threadpool(service.grant, ledger, name)
        finally:
            self._now -= 1
        return found


def _waits(found: Found) -> bool:
    grant, now = found
    return isinstance(grant, Waiting) and not grant.due(now)


POLLS: Final = Polls()
