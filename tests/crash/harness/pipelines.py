"""Clients that keep every request and what they were told, to ask again after a disaster."""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support import declared, laplace, sparse_vector

from harness.deployment import POPULATION, Deployment

BROKEN = (OSError, http.client.HTTPException)
"""What a connection fails with: whether the request was carried out is unknown then."""
POLICY = (
    "policy: p\nrules:\n"
    "  - {id: narrow, datasets: d, limit: {epsilon: 1}}\n"
    "  - {id: wide, datasets: wide, limit: {epsilon: 1000, delta: 0.1}}\n"
)
"""What the pipelines work under; the narrow limit is soon used up."""
DATASETS = ("d", "wide")


def lasting(answer: bytes) -> dict[str, Any]:
    """An answer without the advice of a refusal, which is of the moment and may differ in a retry:
    the detail ends with it.
    """
    told: dict[str, Any] = json.loads(answer)
    if "would_fit" in told or told.get("status") == 403:
        told.pop("would_fit", None)
        told["detail"] = told["detail"].partition("; it would fit now")[0]
    return told


@dataclass(slots=True)
class Request:
    """One request, and what was answered. ``status`` is None while that is unknown."""

    path: str
    body: dict[str, Any]
    key: str
    status: int | None = None
    answer: bytes = b""


@dataclass
class Pipeline:
    """A client with keys of its own under the name ``who``, on one connection at a time.

    ``complaints`` are answers that no service may give: another one to the same request, or a
    failure that does not say when to try again.
    """

    who: str
    secret: str
    prefix: str
    dice: random.Random
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    grants: list[str] = field(default_factory=list)
    failures: int = 0
    """How often the service answered that it could not."""
    failure: bytes = b""
    """What it said the last time."""
    _connection: http.client.HTTPConnection | None = None

    def connect(self, port: int) -> None:
        """Talks to another service from now on."""
        self.close()
        self.port = port

    def close(self) -> None:
        """Lets go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def send(self, request: Request) -> tuple[int, bytes]:
        """Sends a request. Raises one of BROKEN if there is no whole answer."""
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            headers = {
                "Authorization": f"Bearer {self.secret}",
                "Idempotency-Key": request.key,
                "Content-Type": "application/json",
                "X-Request-ID": f"{self.who}:{request.key}",
            }
            url = f"/v1/populations/{POPULATION}{request.path}"
            self._connection.request("POST", url, json.dumps(request.body).encode(), headers)
            answer = self._connection.getresponse()
            data = answer.read()
        except BROKEN:
            self.close()
            raise
        if answer.status >= 500:
            self.failures, self.failure = self.failures + 1, data
            whole = "problem+json" in answer.headers["Content-Type"]
            if answer.status != 503 or not whole or answer.headers["Retry-After"] is None:
                self.complaints.append(f"{request.key}: {answer.status} {data!r}")
        return answer.status, data

    def ask(self, request: Request) -> None:
        """Sends a request and keeps what is answered; asked again, the answer must be the same.

        Raises one of BROKEN if there is no answer.
        """
        status, data = self.send(request)
        if status >= 500:
            return
        if request.status is None:
            request.status, request.answer = status, data
            if status == 201 and request.path in ("/grants", "/batch"):
                told = json.loads(data)
                ended = {item.get("grant") for item in request.body.get("items", ())}
                ids = {item.get("id") for item in told.get("items", [told])}
                self.grants += sorted(ids - ended - {None})
        elif (request.status, lasting(request.answer)) != (status, lasting(data)):
            self.complaints.append(f"{request.key}: {request.answer!r}, then {status} {data!r}")

    def new(self, path: str, body: dict[str, Any]) -> Request:
        """A request with a fresh key, kept before it is sent."""
        self.requests.append(Request(path, body, f"{self.prefix}-{len(self.requests)}"))
        return self.requests[-1]

    def next(self) -> Request:
        """Whatever a pipeline may want next."""
        kind, dataset = self.dice.random(), self.dice.choice(DATASETS)
        if self.grants and kind < 0.3:
            return self.new(f"/grants/{self.grants.pop()}/commit", {})
        if self.grants and kind < 0.5:
            return self.new(f"/grants/{self.grants.pop()}/release", {"reason": "never run"})
        if kind < 0.6:
            one = {"dataset": "wide", "mechanisms": [declared("0.001", "0.000000001", 2)]}
            return self.new("/invocations", one)
        if kind < 0.63:
            return self.new("/batch", {"items": self._several(dataset)})
        if kind < 0.66:
            return self.new("/sparse-vector", {"dataset": "wide", "mechanism": sparse_vector()})
        asked = [laplace(self.dice.choice(["0.001", "0.01"]), 2)]
        ttl = self.dice.choice([1, 3600])
        return self.new("/grants", {"dataset": dataset, "mechanisms": asked, "ttl_seconds": ttl})

    def _several(self, dataset: str) -> list[dict[str, Any]]:
        """Commits, releases and grants in whatever order, or invocations, to be asked at once."""
        number = self.dice.randrange(1, 5)
        mechanisms = [laplace(self.dice.choice(["0.001", "0.002"]), 2)]
        if self.dice.random() < 0.3:
            one = {"type": "record_invocations", "dataset": "wide", "mechanisms": mechanisms}
            return [one] * number
        items: list[dict[str, Any]] = [
            {"type": "ask_grant", "dataset": dataset, "mechanisms": mechanisms, "ttl_seconds": 3600}
            for _ in range(number)
        ]
        for _ in range(min(len(self.grants), self.dice.randrange(3))):
            item = {"type": "commit_grant", "grant": self.grants.pop()}
            if self.dice.random() < 0.3:
                item |= {"type": "release_grant", "reason": "never run"}
            items.insert(self.dice.randrange(len(items) + 1), item)
        return items

    def work(self, stop: threading.Event, *, patient: bool = False) -> None:
        """Asks, commits, releases and records, and now and then asks the same again, until the
        connection breaks; a patient one goes on until it is stopped.
        """
        while not stop.is_set():
            again = self.requests and self.dice.random() < 0.1
            request = self.dice.choice(self.requests[-50:]) if again else self.next()
            try:
                self.ask(request)
            except BROKEN:
                if not patient:
                    return
            if request.status is None:
                time.sleep(0.03)

    def settle(self, patience: float = 0.0) -> None:
        """Asks again whatever has no answer yet: now, or within so many seconds, it gets one."""
        for request in self.requests:
            deadline = time.monotonic() + patience
            while request.status is None:
                late = time.monotonic() >= deadline
                try:
                    self.ask(request)
                except BROKEN:  # also a 503 to the head, if the body came too late
                    if late:
                        raise
                assert request.status is not None or not late, (request, self.failure)

    def repeat(self, most: int) -> None:
        """Asks some of what was answered again."""
        told = [request for request in self.requests if request.status is not None]
        for request in self.dice.sample(told, min(most, len(told))):
            self.ask(request)


def pipelines(deployment: Deployment, number: int, dice: random.Random) -> list[Pipeline]:
    """So many clients. The first two have different names and the same keys."""
    names = ["c0", "c1"]
    return [
        Pipeline(
            names[i % 2],
            deployment.secrets[names[i % 2]],
            f"k{i // 2}",
            random.Random(dice.random()),
        )
        for i in range(number)
    ]


@contextmanager
def at_work(
    clients: Sequence[Pipeline], ports: Sequence[int], *, patient: bool = False
) -> Iterator[None]:
    """Has the clients at work, at the services in turn, until the block ends."""
    stop = threading.Event()
    for number, client in enumerate(clients):
        client.connect(ports[number % len(ports)])
    threads = in_parallel([lambda c=c: c.work(stop, patient=patient) for c in clients])
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        for client in clients:
            client.close()


@contextmanager
def until_stopped(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Has ``work`` done in a thread until the block ends; the event says that it has."""
    stop = threading.Event()
    [thread] = in_parallel([lambda: work(stop)])
    try:
        yield
    finally:
        stop.set()
        thread.join()


def in_parallel(calls: Sequence[Callable[[], Any]]) -> list[threading.Thread]:
    """Starts all calls."""
    threads = [threading.Thread(target=call, daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def settled(clients: Sequence[Pipeline], port: int, repeats: int = 20) -> None:
    """Everything that had no answer gets one, and what had gets the same."""
    for client in clients:
        client.connect(port)
        client.settle()
        client.repeat(repeats)
        client.close()
