"""What the service is compared with, each in a process of its own: ``python -m bench.apps NAME
PORT [URL]``.

``empty`` is the same framework behind uvicorn, with nothing behind them, as everybody runs it.
``bare`` answers bytes to bytes, so that what it reaches is what the load costs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import uvicorn
import uvloop
from fastapi import FastAPI

from bench import rowlock

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def empty() -> FastAPI:
    """Reads a JSON body, and answers an empty one."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/{path:path}", status_code=201)
    async def nothing(body: dict[str, Any]) -> dict[str, str]:
        return {}

    return app


class _Bare(asyncio.Protocol):
    """Takes whatever comes in one piece for one request, which is so on a loopback."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, _: bytes) -> None:
        self.transport.write(_ANSWER)


async def _bare(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Bare, "127.0.0.1", port)
    await server.serve_forever()


def _serve(app: FastAPI, port: int) -> None:
    """Without what costs time: logs, and headers that nobody reads."""
    uvicorn.run(
        app, port=port, log_config=None, access_log=False, server_header=False, proxy_headers=False
    )


def main() -> None:
    """Runs one of them until it is stopped."""
    name, port = sys.argv[1], int(sys.argv[2])
    if name == "bare":
        uvloop.run(_bare(port))
    else:
        _serve(empty() if name == "empty" else rowlock.create_app(sys.argv[3]), port)


if __name__ == "__main__":
    main()
