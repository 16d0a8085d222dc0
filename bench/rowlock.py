"""The design that comes to mind first, to measure beside: a budget is a row, a grant locks it.

One transaction a grant, straight to PostgreSQL from the event loop: no ORM, no threads, prepared
statements, a connection that is free at once. What it leaves out makes it faster: one limit, one
currency, no rules, no subject groups, no hash tree, a rounded sum in place of a proven one.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final

import psycopg
from fastapi import FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse

CONNECTIONS: Final = 16
"""On one hot row all but one of them wait; 32 were no faster."""

DURABLE: Final = "-c synchronous_commit=on"
"""Whatever the server's default: an answer means that the grant is on disk."""

SECRET: Final = "rowlock"  # noqa: S105 of a prototype that listens on a loopback
SCHEMA: Final = """
CREATE TABLE budget (
    dataset text PRIMARY KEY, capacity bigint NOT NULL, spent bigint NOT NULL
);
CREATE TABLE grant_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, dataset text NOT NULL,
    at timestamptz NOT NULL DEFAULT now(), client text NOT NULL, cost bigint NOT NULL,
    body jsonb NOT NULL
);
CREATE TABLE answered (
    client text, key text, digest bytea NOT NULL, event bigint NOT NULL, PRIMARY KEY (client, key)
);
"""


def prepare(url: str, datasets: list[str]) -> None:
    """Makes the tables, with a budget for each dataset."""
    with psycopg.connect(url) as connection:
        connection.execute(SCHEMA)
        with connection.cursor() as cursor:
            rows = [(name, 10**18) for name in datasets]
            cursor.executemany("INSERT INTO budget VALUES (%s, %s, 0)", rows)


def spent_and_booked(url: str) -> tuple[int, int]:
    """What the budgets say was spent, and the sum of the events, which has to be the same."""
    with psycopg.connect(url) as connection:
        [spent] = connection.execute("SELECT sum(spent)::bigint FROM budget").fetchone() or (0,)
        [booked] = connection.execute("SELECT sum(cost)::bigint FROM grant_event").fetchone() or (
            0,
        )
    return spent, booked


def create_app(url: str) -> FastAPI:
    """The service: POST /grants."""
    free: asyncio.LifoQueue[psycopg.AsyncConnection[Any]] = asyncio.LifoQueue()
    clients = {sha256(SECRET.encode()).hexdigest(): "bench"}

    @asynccontextmanager
    async def connected(_app: FastAPI) -> AsyncIterator[None]:
        for _ in range(CONNECTIONS):
            connection = await psycopg.AsyncConnection.connect(
                url, autocommit=True, prepare_threshold=0, options=DURABLE
            )
            free.put_nowait(connection)
        yield
        while not free.empty():
            await free.get_nowait().close()

    app = FastAPI(lifespan=connected, docs_url=None, redoc_url=None, openapi_url=None)

    @app.post("/{path:path}")
    async def grant(
        request: Request, authorization: str = Header(), idempotency_key: str = Header()
    ) -> JSONResponse:
        client = clients.get(sha256(authorization.removeprefix("Bearer ").encode()).hexdigest())
        if client is None:
            raise HTTPException(401)
        content = await request.body()
        connection = await free.get()
        try:
            return await _grant(connection, client, idempotency_key, content)
        finally:
            free.put_nowait(connection)

    return app


async def _grant(
    connection: psycopg.AsyncConnection[Any], client: str, key: str, content: bytes
) -> JSONResponse:
    body, digest = json.loads(content), sha256(content).digest()
    cost = sum(map(_cost, body["mechanisms"]))
    dataset = body["dataset"]
    async with connection.transaction():
        row = await connection.execute(
            "SELECT capacity, spent FROM budget WHERE dataset = %s FOR UPDATE", (dataset,)
        )
        found = await row.fetchone()
        if found is None:
            raise HTTPException(422)
        capacity, spent = found
        row = await connection.execute(
            "SELECT digest, event FROM answered WHERE client = %s AND key = %s", (client, key)
        )
        if (before := await row.fetchone()) is not None:
            if before[0] != digest:
                raise HTTPException(422)
            return JSONResponse({"grant": before[1]}, 201)
        if spent + cost > capacity:
            raise HTTPException(403)
        await connection.execute(
            "UPDATE budget SET spent = spent + %s WHERE dataset = %s", (cost, dataset)
        )
        row = await connection.execute(
            "INSERT INTO grant_event (dataset, client, cost, body) VALUES (%s, %s, %s, %s) "
            "RETURNING id",
            (dataset, client, cost, content.decode()),
        )
        [event] = await row.fetchone() or (None,)
        await connection.execute(
            "INSERT INTO answered VALUES (%s, %s, %s, %s)", (client, key, digest, event)
        )
    return JSONResponse({"grant": event}, 201)


def _cost(mechanism: dict[str, Any]) -> int:
    """Nano-epsilon: right for noise from a Laplace distribution, rough for a normal one."""
    each = float(mechanism["sensitivity"]) / float(mechanism["scale"])
    times = int(mechanism.get("count", 1)) * (7 if "delta" in mechanism else 1)
    return round(1e9 * each * times)
