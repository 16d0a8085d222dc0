"""The calls that pipelines make many times a second, past the framework's routing.

Only what is plainly in order is answered here, by the same models and the same functions as
everywhere. What is unusual in the least (an unknown key, a header or a body that is not sound, a
query) goes on to the framework's routes, which say what is wrong with it: there is no second set of
rules. On the way it saves about half of what a request costs.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final

import orjson
import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from accountant.api.access import SPEND, ask, body_of, sound_idempotency_key
from accountant.api.answers import respond
from accountant.api.around import once
from accountant.api.problems import told
from accountant.budget.commands import (
    Asked,
    AskGrant,
    Command,
    CommitGrant,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.budget.errors import Problem
from accountant.keys import Key, key_digest
from accountant.service import Service

_PATH: Final = re.compile(
    r"/v1/populations/([a-z0-9][a-z0-9_.-]{0,63})/"
    r"(?:(grants|invocations)|grants/(g\d{1,18})/(commit|release))",
    re.ASCII,
)
_COMMANDS: Final[dict[str, type[Command]]] = {
    "grants": AskGrant,
    "invocations": RecordInvocations,
    "commit": CommitGrant,
    "release": ReleaseGrant,
}
_BEARER: Final = "Bearer "
_REMEMBERED: Final = 1_024
_SHORT: Final = 4_096
"""Bytes of a body that is remembered: with as many of them as are, some megabytes."""
_LONG: Final = 16_384
"""Bytes of a body that takes so long to read that nobody should wait for it in the event loop."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A request that is in order as far as it can be told without reading its body."""

    population: str
    kind: type[Command]
    path: dict[str, str]
    key: Key
    digest: str
    idempotency: str | None


class Hot:
    """ASGI middleware within ``Around``, which hands it the whole body in one message."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service = app, service
        self._read: dict[tuple[type[Command], bytes], Asked] = {}
        """Bodies that came before: the same bytes ask for the same."""
        self._priced: set[tuple[str, object, bytes]] = set()
        """Populations, terms and mechanisms whose price is known, so that asking for it costs
        nothing.
        """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers what is in order; everything else goes on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        call = self._call(scope)
        if call is None:
            await self._pass_on(scope, receive, send)
            return
        body = (await receive())["body"]
        if len(body) > _LONG:
            await self._pass_on(scope, once(body, receive), send)
            return
        try:
            asked = self._asked(call, body)
        except Exception:  # noqa: BLE001 whatever is wrong with it, the routes say so
            await self._pass_on(scope, once(body, receive), send)
            return
        scope["state"]["client"] = call.key.name
        try:
            await self._price(call.population, asked)
            answer = await self._service.submit(call.population, asked, call.digest)
            response = respond(answer)
        except Exception as error:
            if isinstance(error, Problem) and error.code == "unauthenticated":
                # The key was revoked meanwhile: the routes say so, for they would have seen it.
                del scope["state"]["client"]
                await self._pass_on(scope, once(body, receive), send)
                return
            structlog.contextvars.bind_contextvars(request_id=scope["state"]["request_id"])
            found = told(error, scope["path"])
            if found is None:
                raise
            response = found
        await response(scope, receive, send)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """To the framework, where whatever is logged is of this request, in a task of its own."""
        structlog.contextvars.bind_contextvars(request_id=scope["state"]["request_id"])
        await self._app(scope, receive, send)

    def _call(self, scope: Scope) -> _Call | None:
        path = _PATH.fullmatch(scope["path"])
        if path is None or scope["method"] != "POST" or scope["query_string"]:
            return None
        named: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in (b"authorization", b"idempotency-key"):
                if name in named:
                    return None
                named[name] = value
        digest, key = self._caller(named.get(b"authorization", b"").decode("latin-1"))
        idempotency = named[b"idempotency-key"].decode("latin-1") if len(named) > 1 else None
        if key is None or not sound_idempotency_key(idempotency):
            return None
        population, plain, grant, ending = path.groups()
        if self._service.terms(population) is None:
            return None
        within = {"grant": grant} if grant else {}
        return _Call(population, _COMMANDS[plain or ending], within, key, digest, idempotency)

    def _caller(self, header: str) -> tuple[str, Key | None]:
        digest = key_digest(header[len(_BEARER) :]) if header.startswith(_BEARER) else ""
        key = self._service.credentials.remembered(digest)
        return digest, key if key is not None and key.role in SPEND else None

    def _asked(self, call: _Call, body: bytes) -> Asked:
        """What is asked. Raises whatever reading it raises."""
        place = call.kind, body
        before = None if call.path else self._read.get(place)
        if before is not None:
            return before.again(call.key.name, call.idempotency)
        asked = ask(call.kind, call.key, body_of(body), call.idempotency, **call.path)
        if not call.path and len(body) <= _SHORT:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[place] = asked
        return asked

    async def _price(self, population: str, asked: Asked) -> None:
        """Prices what was never priced, in a thread: it may take a second."""
        mechanisms: Any = asked.document.get("mechanisms")
        if mechanisms is None:
            return
        place = population, self._service.terms(population), orjson.dumps(mechanisms)
        if place not in self._priced:
            await asyncio.to_thread(self._service.price_ahead, population, asked)
            if len(self._priced) >= _REMEMBERED:
                self._priced.clear()
            self._priced.add(place)
