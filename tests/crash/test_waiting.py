"""Requests that wait, for budget or a person, while the service is killed without warning.

Each of them is admitted exactly once, ends once, or waits still; a retry gets what the ledger says;
and whoever is to be called back is called at least once.
"""

# The random moments are for variety, not for secrecy.
# ruff: noqa: S311

from __future__ import annotations

import http.client
import io
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from harness.deployment import POPULATION, Deployment
from harness.effort import SEED, effort
from harness.pipelines import BROKEN
from support import laplace

from accountant import verify_minimal

POLICY = (
    "policy: p\nrules:\n"
    "  - {id: a, limit: {epsilon: 1}}\n"
    "  - {id: big, action: approve, at_most: {epsilon: 0.4}}\n"
)
SECRET = "whsec_" + "A" * 43 + "="
ENDINGS = ("grant.admitted.v1", "grant.cancelled.v1", "grant.declined.v1", "grant.timed_out.v1")


@contextmanager
def receiving() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """An address, and what comes there; some of it is not taken the first time."""
    got: list[dict[str, Any]] = []
    refused = set[str]()
    dice = random.Random(SEED)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            taken = body["data"]["id"] in refused or dice.random() < 0.9
            if taken:
                got.append(body["data"])
            else:
                refused.add(body["data"]["id"])
            self.send_response(204 if taken else 503)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", got
    finally:
        server.shutdown()
        server.server_close()


class People:
    """A pipeline and an officer at work."""

    def __init__(self, deployment: Deployment, url: str, dice: random.Random) -> None:
        self.deployment, self.url, self.dice = deployment, url, dice
        self.asked: dict[str, dict[str, Any]] = {}
        self.granted: dict[str, dict[str, Any]] = {}
        """What was answered by 201, by key: it is the answer for good."""
        self.decided: dict[str, dict[str, Any]] = {}
        """What an approval was answered by, by its key."""
        self.wrong: list[Exception] = []

    def call(
        self, port: int, path: str, body: Any = None, who: str = "c0", key: str | None = None
    ) -> tuple[int, Any]:
        """One call; a POST if it has a body."""
        headers = {"Authorization": f"Bearer {self.deployment.secrets[who]}"}
        headers |= {} if key is None else {"Idempotency-Key": key}
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            data = None if body is None else json.dumps(body)
            method = "GET" if body is None else "POST"
            connection.request(method, f"/v1/populations/{POPULATION}{path}", data, headers)
            answer = connection.getresponse()
            read = answer.read()
        return answer.status, json.loads(read) if path != "/evidence" else read

    def work(self, port: int) -> None:
        """Asks, settles and decides until the service is gone."""
        doings = self.ask, self.ask, self.ask, self.again, self.settle, self.decide
        try:
            while True:
                self.dice.choice(doings)(port)
        except BROKEN:
            return
        except Exception as error:  # noqa: BLE001 the test looks at it
            self.wrong.append(error)

    def ask(self, port: int) -> None:
        """Asks for a little, or for so much that a person decides."""
        key = f"k{len(self.asked)}"
        epsilon = self.dice.choice(["0.2", "0.3", "0.5"])
        self.asked[key] = {
            "dataset": "d",
            "mechanisms": [laplace(epsilon)],
            "wait": "1d",
            "callback": f"{self.url}/hook",
        }
        self.send(port, key)

    def send(self, port: int, key: str) -> tuple[int, Any]:
        """Sends a request, perhaps again. What was granted stays granted."""
        status, answer = self.call(port, "/grants", self.asked[key], key=key)
        if key in self.granted:
            assert (status, answer) == (201, self.granted[key])
        elif status == 201:
            self.granted[key] = answer
        return status, answer

    def again(self, port: int) -> None:
        """Sends a request again."""
        if self.asked:
            self.send(port, self.dice.choice(list(self.asked)))

    def settle(self, port: int) -> None:
        """Gives a grant back."""
        if self.granted:
            name = self.dice.choice(list(self.granted.values()))["id"]
            self.call(port, f"/grants/{name}/release", {"reason": "not run"})

    def decide(self, port: int) -> None:
        """Approves what waits for a person and fits, or declines it."""
        _, found = self.call(port, "/approvals?limit=3", who="officer")
        for one in found["approvals"]:
            what = self.dice.choice(["approve", "approve", "decline"])
            body, key = {"digest": one["digest"], "reason": "x"}, f"{what}-{one['id']}"
            path = f"/approvals/{one['id']}/{what}"
            status, answer = self.call(port, path, body, "officer", key)
            if status in (200, 201):
                assert self.decided.setdefault(key, answer) == answer


def test_each_wait_ends_once_and_is_told(either: Deployment) -> None:
    """After every kill each request is admitted exactly once, has ended once, or waits; the same
    answer goes to retries; evidence verifies; and callbacks came.
    """
    dice = random.Random(SEED)
    with receiving() as (url, got):
        settings = {
            "ACCOUNTANT_CALLBACK_HOSTS": url,
            "ACCOUNTANT_CALLBACK_SECRET": SECRET,
            "ACCOUNTANT_CALLBACK_SECONDS": "0.05",
        }
        people = People(either, url, dice)
        for count in range(effort(2, 20)):
            with either.serving(**settings) as service:
                if count == 0:
                    either.register(service.port, POLICY, "d")
                work = threading.Thread(target=people.work, args=[service.port])
                work.start()
                time.sleep(dice.uniform(0.2, 2.0))
                service.kill()
                work.join()
                assert people.wrong == []
        with either.serving(**settings) as service:
            final = {key: people.send(service.port, key) for key in people.asked}
            status, bundle = people.call(service.port, "/evidence", who="admin")
            assert status == 200
            assert verify_minimal.verify(io.BytesIO(bundle))["findings"] == []
            events = listed(people, service.port)
            ended = {e["command"]["grant"]: e for e in events if e["type"] in ENDINGS}
            until = time.monotonic() + 30
            while {one["id"] for one in got} < ended.keys() and time.monotonic() < until:
                time.sleep(0.1)
    waits = [f"g{e['sequence']}" for e in events if e["type"] == "grant.waiting.v1"]
    times = Counter(e["command"]["grant"] for e in events if e["type"] in ENDINGS)
    assert len(waits) > effort(1, 30)
    assert set(times.values()) <= {1}
    assert times.keys() <= set(waits)
    assert {one["id"] for one in got} == ended.keys()
    for status, answer in final.values():
        if status == 201 and "waited_as" in answer:
            assert ended[answer["waited_as"]]["sequence"] == answer["sequence"]
        elif status == 202:
            assert answer["id"] in waits
            assert answer["id"] not in ended


def listed(people: People, port: int) -> list[dict[str, Any]]:
    """All events."""
    found: list[dict[str, Any]] = []
    while True:
        _, page = people.call(port, f"/events?after={len(found) - 1}&limit=500", who="admin")
        if not page["events"]:
            return found
        found += [one["event"] for one in page["events"]]
