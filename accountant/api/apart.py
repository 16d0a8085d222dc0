"""Calls that take seconds, on threads of their own: who waits for one keeps no thread from others.

The framework has some forty threads for all calls that it answers. A bundle, or a report of a long
ledger, is made while few others are; those that ask meanwhile wait in line, in no thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from fastapi import Request

from accountant.publishing.evidence import Gone

T = TypeVar("T")


class Apart:
    """A few threads with a line before them. ``name`` is that of the threads."""

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, name)

    async def do(self, request: Request, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, which is called in its turn. Raise what it raises, and
        Gone, without calling it, if the client of ``request`` has gone by then.
        """
        gone = request.state.gone

        def unless_gone() -> T:
            if gone():
                raise Gone
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._threads, unless_gone)


EXPORTS: Final = Apart(2, "evidence")
"""Writes bundles."""
REPORTS: Final = Apart(2, "reports")
"""Makes reports."""
READINGS: Final = Apart(2, "readings")
"""Reads for a decision what used up its limits."""
