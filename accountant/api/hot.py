"""The hot path: grants, settlements, invocations and readiness, answered without the web framework.

Requests that are plainly in order are answered here, by the models and functions that the routes
use. Any other request (an unknown key, an unsound header or body, a query) goes on to the routes,
which report errors: there is no second set of rules. This saves most of the cost of a
request, and the service answers pipelines while the framework is still being loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, NamedTuple

from structlog.contextvars import bound_contextvars

from accountant.api import answers
from accountant.api.answers import Json, ready
from accountant.api.problems import answer_to
from accountant.api.requests import QUICK, SPEND, ask, body_of, not_valid, sound_idempotency_key
from accountant.auth.keys import Key, key_digest
from accountant.budget.commands import (
    AskGrant,
    Command,
    CommitGrant,
    Envelope,
    RecordInvocations,
    ReleaseGrant,
)
from accountant.budget.errors import Problem
from accountant.budget.outcome import REFUSED, WAITING
from accountant.door.messages import Arrived, Reply, Replying, Request, failed, replied
from accountant.runtime.service import Answer, Service

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
_READY: Final = "GET", "/readyz", ""
_BEARER: Final = "Bearer "
_LONG: Final = 16_384  # Bytes of a body that takes too long to read in the event loop
_PRICING: Final = 8  # Threads that price requests for the first time and explain refusals


class _Call(NamedTuple):
    """A request that is in order but for its body, which is not read yet."""

    request: Request
    reply: Replying
    population: str
    kind: type[Command]
    path: dict[str, str]
    key: Key
    digest: str
    idempotency: str | None


class Hot:
    """Takes the requests that are in order.

    Of those that came together all heads are looked at, then all bodies read, then all commands
    submitted: one step for all takes three quarters of the time (ADR 0022).
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._pricing = ThreadPoolExecutor(_PRICING, "pricing")
        self._readiness = ThreadPoolExecutor(1, "readiness")

    def take(self, arrived: Sequence[Arrived]) -> list[Arrived]:
        """Take the requests that are in order, and answer them, perhaps in a thread. Return the
        others.
        """
        calls: list[_Call] = []
        read: list[tuple[_Call, Envelope]] = []
        left: list[Arrived] = []
        for request, reply in arrived:
            try:
                if (request.method, request.path, request.query) == _READY:
                    self._readiness.submit(self._ready, request, reply)
                elif (call := self._call(request, reply)) is None or len(request.body) > _LONG:
                    left.append((request, reply))
                else:
                    calls.append(call)
            except Exception as error:  # noqa: BLE001 it concerns no other request
                reply(_failure(request, None, error))
        for call in calls:
            try:
                read.append((call, self._asked(call)))
            except Exception:  # noqa: BLE001 the routes report every error
                left.append((call.request, call.reply))
        for call, asked in read:
            self._submit(call, asked)
        return left

    def _call(self, request: Request, reply: Replying) -> _Call | None:
        path = _PATH.fullmatch(request.path)
        if path is None or request.method != "POST" or request.query:
            return None
        named: dict[str, str] = {}
        for name, value in request.headers:
            if name in ("authorization", "idempotency-key"):
                if name in named:
                    return None
                named[name] = value
        authorization, idempotency = named.get("authorization", ""), named.get("idempotency-key")
        if not (authorization.startswith(_BEARER) and sound_idempotency_key(idempotency)):
            return None
        digest = key_digest(authorization.removeprefix(_BEARER))
        key = self._service.credentials.remembered(digest)
        population, plain, grant, ending = path.groups()
        if key is None or key.role not in SPEND or not key.reaches(population):
            return None
        if self._service.terms(population) is None:
            return None
        self._service.credentials.use(digest)
        within = {"grant": grant} if grant else {}
        kind = _COMMANDS[plain or ending]
        return _Call(request, reply, population, kind, within, key, digest, idempotency)

    def _ready(self, request: Request, reply: Replying) -> None:
        try:
            answer = replied(Json(ready(self._service)))
        except Exception as error:  # noqa: BLE001 every request gets a reply
            answer = _failure(request, None, error)
        reply(answer)

    def _asked(self, call: _Call) -> Envelope:
        """Read the command. Raise whatever the reader raises."""
        body = call.request.body
        if call.kind in (AskGrant, RecordInvocations):
            return QUICK.one(call.kind, call.key.name, body, call.idempotency)
        return ask(call.kind, call.key, body_of(body), call.idempotency, **call.path)

    def _submit(self, call: _Call, asked: Envelope) -> None:
        """Have a command decided, or answer with the error that prevents it."""
        try:
            if self._service.priced(call.population, asked):
                self._decide(call, asked)
            else:  # may take a second
                self._pricing.submit(self._price, call, asked)
        except Exception as error:  # noqa: BLE001 every request gets a reply
            self._finish(call, error)

    def _price(self, call: _Call, asked: Envelope) -> None:
        try:
            self._service.price_ahead(call.population, asked)
            self._decide(call, asked)
        except Exception as error:  # noqa: BLE001 as above
            self._finish(call, error)

    def _decide(self, call: _Call, asked: Envelope) -> None:
        tell = partial(self._finish, call)
        self._service.submit(call.population, asked, call.digest, tell)

    def _finish(self, call: _Call, outcome: Answer | Exception) -> None:
        request, reply = call.request, call.reply
        client: str | None = call.key.name
        if isinstance(outcome, Problem) and outcome.code == "unauthenticated":
            # The key ended meanwhile: the request has no client, as in the routes.
            keys = self._service.credentials
            client, outcome = None, not_valid(keys, call.digest, "Authorization")
        if isinstance(outcome, Answer) and outcome.entries[-1].type in (REFUSED, WAITING):
            # Explaining, or reading what became of a wait, takes longer than deciding, which all
            # commands wait for in this thread.
            self._pricing.submit(lambda: reply(self._reply(request, client, outcome)))
            return
        reply(self._reply(request, client, outcome))

    def _reply(self, request: Request, client: str | None, outcome: Answer | Exception) -> Reply:
        if isinstance(outcome, Answer):
            try:
                return answers.reply(self._service, outcome, client)
            except Exception as error:  # noqa: BLE001 every request gets a reply
                return _failure(request, client, error)
        return _failure(request, client, outcome)


def _failure(request: Request, client: str | None, error: Exception) -> Reply:
    # Not raised again: its traceback would hold all objects of this unit of work in a cycle.
    with bound_contextvars(request_id=request.id, traceparent=request.trace):
        response = answer_to(error, request.path)
    if response is None:
        return failed(error, request)._replace(client=client)
    return replied(response, client)
