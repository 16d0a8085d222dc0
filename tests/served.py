"""The real service on a temporary ledger, behind its door, and a network that can misbehave."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
import support

from accountant.client import Client, Registrar
from accountant.config.settings import Settings
from accountant.publishing.publisher import Publisher
from accountant.runtime.service import Service
from accountant.store.migrate import migrate
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

POLICY = """
policy: test
rules:
  - {id: lifetime, limit: {epsilon: 1}}
  - {id: reasons, require: [purpose]}
"""


PAGES = {
    "page": (502, "text/html", "<html>\n<h1>Bad Gateway</h1>\n{headers}</html>"),
    "forbidden": (403, "text/plain", "no way:\n{headers}"),
    "portal": (200, "text/html", "<!doctype html>\n<title>Log in</title>"),
    "moved": (308, "text/html", ""),
    "other": (200, "application/json", '{{"hello": "world"}}'),
    "fault": (
        500,
        "application/problem+json",
        '{{"type": "urn:accountant:problem:internal-error"}}',
    ),
    "slow": (
        408,
        "application/problem+json",
        '{{"type": "urn:accountant:problem:request-timeout"}}',
    ),
}
"""What other programs than the service answer."""


@dataclass
class Served:
    """A running service with an admin's, two pipelines', an auditor's and an officer's key."""

    port: int
    keys: dict[str, str]
    publisher: Publisher
    home: Path
    names: Iterator[int] = field(default_factory=count)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def population(self) -> str:
        """A new population with dataset ``visits`` and a lifetime limit of epsilon 1."""
        name = f"people-{next(self.names)}"
        with Registrar(self.url, self.keys["admin"], name) as registrar:
            registrar.register(
                privacy_unit="person",
                neighbouring="replace_one",
                membership="public",
                dimensions={"country": ["KR", "JP"]},
            )
            registrar.dataset("visits", namespace=name, name="visits")
            self.confirm(name, registrar.policy(POLICY))
        return name

    def confirm(self, population: str, proposed: Any) -> Any:
        """An officer confirms what an answer proposes."""
        with Registrar(self.url, self.keys["officer"], population) as second:
            return second.confirm(proposed["proposal"], proposed["digest"])

    def client(self, population: str, key: str = "pipeline", **options: Any) -> Client:
        """A client with one of the keys; it waits little between retries."""
        options = {"backoff": 0.01} | options
        url = options.pop("url", self.url)
        return Client(url, self.keys[key], population, **options)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The real app behind its door, for all tests of a folder."""
    folder: Path = tmp_path_factory.mktemp("service")
    url = f"sqlite:///{folder}/accountant.db"
    migrate(url)
    ledgers = open_ledgers(url)
    settings = Settings(home=folder)
    service = Service(ledgers, vault=Vault(settings.home))
    publisher = Publisher(service, Vault(settings.home), settings.origin)
    roles = {"admin": "admin", "pipeline": "pipeline", "other": "pipeline", "auditor": "auditor"}
    roles |= {"officer": "officer"}
    keys = {
        name: service.credentials.create(name, cast(Any, role), "test")
        for name, role in roles.items()
    }
    running = support.Served(service, settings, publisher)
    yield Served(running.port, keys, publisher, folder)
    running.close()
    ledgers.close()


class Network:
    """A proxy to the service that treats requests as planned, then passes everything on.

    ``lose``: the service gets the request, the client never gets the answer. ``busy``: the client
    gets a 503 that asks for ``wait`` seconds of patience, the service gets nothing. ``cut``: the
    connection is closed at once. ``page``: a proxy's 502 page that shows the request's headers;
    ``portal``: a page in place of a good answer; ``other``: a good answer of something else.
    ``half``: half of the answer comes; ``unsaid``: and it was not said how much there is.
    """

    def __init__(self, port: int) -> None:
        self.plan: list[str] = []
        self.wait = "0"
        self.keys: list[str | None] = []
        self.bodies: list[bytes] = []
        network = self

        class Handler(BaseHTTPRequestHandler):
            def _any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                network.keys.append(self.headers.get("Idempotency-Key"))
                network.bodies.append(body)
                treatment = network.plan.pop(0) if network.plan else "pass"
                self.close_connection = True
                if treatment == "cut":
                    return
                if treatment == "busy":
                    self.send_response(503)
                    self.send_header("Retry-After", network.wait)
                    self.end_headers()
                    return
                if treatment in PAGES:
                    self._give(*PAGES[treatment])
                    return
                onward = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                onward.request(self.command, self.path, body, dict(self.headers))
                answer = onward.getresponse()
                data = answer.read()
                onward.close()
                if treatment == "lose":
                    return
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if treatment != "unsaid" or name.lower() != "content-length":
                        self.send_header(name, value)
                self.end_headers()
                part = treatment in ("half", "unsaid")
                self.wfile.write(data[: len(data) // 2 // 512 * 512] if part else data)

            def _give(self, status: int, media: str, text: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", media)
                self.send_header("Location", f"https://accountant.example{self.path}")
                self.end_headers()
                self.wfile.write(text.format(headers=self.headers).encode())

            do_GET = do_POST = do_PUT = _any  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Nothing: the test's output is not a log."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.01])
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def network(served: Served) -> Iterator[Network]:
    """A network between client and service, without a plan."""
    running = Network(served.port)
    yield running
    running.close()
