"""A line before the pages: few are made at a time, and those that wait keep no thread from others.

The framework has some forty threads for all calls that it answers, and a page of a long ledger may
wait for a process that reads it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from accountant.console.access import HOME

MOST: Final = 16
"""Pages that are made at a time: less than half of the threads."""


class Line:
    """Middleware. A page for which nobody waits any more when its turn comes is not made."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._places = app, asyncio.Semaphore(MOST)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, a page in its turn."""
        path = scope.get("path", "")
        if not path.startswith(HOME) or path.startswith(f"{HOME}/static/"):
            await self._app(scope, receive, send)
            return
        async with self._places:
            if scope["state"]["gone"]():
                await Response(status_code=499)(scope, receive, send)  # as of a bundle or report
            else:
                await self._app(scope, receive, send)
