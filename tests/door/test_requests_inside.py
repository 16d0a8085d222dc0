"""Every request gets one reply, also when something fails inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from support import START, Clock, World, ask, laplace, logged

from accountant.api.hot import Hot
from accountant.door.asgi import Requests
from accountant.door.messages import Arrived, Reply, Request, Taking

SECONDS = 10


def request(world: World | None = None, body: bytes = b"{}") -> Request:
    """A grant asked for, of the hot kind."""
    secret = world.secrets["pipeline"] if world else ""
    headers = [("authorization", f"Bearer {secret}"), ("idempotency-key", "k")]
    path = "/v1/populations/fair/grants"
    return Request("r1", "POST", path, path, "", headers, body)


async def handled(app: Any, take: Taking) -> list[Reply]:
    """All replies to one request."""
    replies: list[Reply] = []
    there = asyncio.Event()
    loop = asyncio.get_running_loop()

    def reply(one: Reply) -> None:
        replies.append(one)
        loop.call_soon_threadsafe(there.set)

    Requests(app, take).handle([(request(), reply)])
    await asyncio.wait_for(there.wait(), SECONDS)
    return replies


@pytest.mark.parametrize("failure", [ZeroDivisionError("x"), RuntimeError("y")])
def test_a_failure_is_a_reply_and_a_line(failure: Exception) -> None:
    """What fails in the quick way or in the application is a 500 with a problem, logged with the
    request's id.
    """

    async def app(*_: Any) -> None:
        raise failure

    def take(*_: Any) -> list[Arrived]:
        raise failure

    for way in (take, list):
        with logged() as logs:
            [reply] = asyncio.run(handled(app, way))
        assert reply.status == 500
        assert b"nothing was promised" in reply.body
        assert [line["request_id"] for line in logs] == ["r1"]


def test_each_request_of_a_turn_gets_its_own_answer(world: Callable[..., World]) -> None:
    """Of requests that come together those that are in order are decided, in their order, and all
    others go to the application: those with an unsound body, another path, or an unknown key.
    """
    made = world(Clock(START)).hospital()
    made.post("/grants", ask(laplace("0.1")))
    hot = Hot(made.service)
    good = b'{"dataset":"d","mechanisms":[{"kind":"laplace","sensitivity":"1","scale":"10"}]}'
    one = request(made, good)
    other = "/v1/populations/fair/other"
    turn = [
        one._replace(id="first"),
        one._replace(id="unsound", body=good[:-1]),
        one._replace(id="elsewhere", path=other, raw_path=other),
        request(None, good)._replace(id="stranger"),
        one._replace(id="again"),
    ]

    async def app(scope: Any, _: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": scope["state"]["request_id"].encode()})

    async def answered() -> list[Reply]:
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[Reply]] = [loop.create_future() for _ in turn]
        tell = [partial(loop.call_soon_threadsafe, future.set_result) for future in replies]
        Requests(app, hot.take).handle(list(zip(turn, tell, strict=True)))
        return await asyncio.wait_for(asyncio.gather(*replies), SECONDS)

    first, unsound, elsewhere, stranger, again = asyncio.run(answered())
    assert (first.status, again.status) == (201, 201)
    assert first.body == again.body  # of one key, so one decision
    assert (b"idempotent-replay", b"true") in again.headers
    assert [unsound.body, elsewhere.body, stranger.body] == [b"unsound", b"elsewhere", b"stranger"]


def test_who_cannot_stand_in_line_is_told(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no thread can be started every request is answered, priced already or not."""
    made = world(Clock(START)).hospital()
    made.post("/grants", ask(laplace("0.1")))

    def full(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(type(made.service._queue), "submit", full)
    hot = Hot(made.service)
    body = b'{"dataset":"d","mechanisms":[{"kind":"laplace","sensitivity":"1","scale":"10"}]}'

    async def nothing(*_: Any) -> None:
        raise AssertionError("it was in order")

    async def asked() -> Reply:
        loop = asyncio.get_running_loop()
        replied: asyncio.Future[Reply] = loop.create_future()
        arrived = request(made, body), partial(loop.call_soon_threadsafe, replied.set_result)
        Requests(nothing, hot.take).handle([arrived])
        return await asyncio.wait_for(replied, SECONDS)

    for _ in range(2):  # priced at the first
        assert asyncio.run(asked()).status == 500
