"""The service under test: its home, its database, its keys; started, stopped and killed."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from places import Hosted

from harness.programs import Process, Starter, kill

READY_SECONDS = 60
POPULATION = "fair"
NEW = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
KEYS = {"admin": "admin", "officer": "officer", "c0": "pipeline", "c1": "pipeline"}


@dataclass
class Running:
    """A service that is ready."""

    process: Process
    port: int

    def ready(self) -> int:
        """What /readyz says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with closing(connection):
            connection.request("GET", "/readyz")
            return connection.getresponse().status

    def kill(self) -> None:
        """Ends it without a chance to tidy up."""
        kill(self.process)

    def end(self, how: signal.Signals) -> None:
        """Sends it a signal that ends it, and waits until it has ended."""
        os.kill(self.process.pid, how)
        assert self.process.wait() == (0 if how == signal.SIGTERM else -how)

    def stop(self) -> None:
        """Asks it to end, and waits until it has."""
        self.end(signal.SIGTERM)


@dataclass
class Deployment:
    """Where a service lives, and how it is started. ``secrets`` are its keys, by name."""

    home: Path
    database_url: str
    starter: Starter
    output: Path
    """What the service and the commands print; beside the home, which disasters befall."""
    secrets: dict[str, str] = field(default_factory=dict)
    owner_url: str = ""
    """Of whom the tables belong to, where that is not the service."""

    def environment(self, **settings: str) -> dict[str, str]:
        """The environment of a process of this deployment."""
        chosen = {k: v for k, v in os.environ.items() if not k.startswith(("ACCOUNTANT_", "CRASH"))}
        ours = {
            "ACCOUNTANT_HOME": str(self.home),
            "ACCOUNTANT_DATABASE_URL": self.database_url,
            "ACCOUNTANT_EXPIRY_SECONDS": "0.2",
            "CRASH_SNAPSHOTS": "20",
            "CRASH_COPIES": "400000",
        }
        return chosen | ours | settings

    def begin(self, *arguments: str, **settings: str) -> Process:
        """Starts ``accountant``."""
        return self.starter.start(arguments, self.environment(**settings), self.output)

    def run(self, *arguments: str, **settings: str) -> tuple[int, str]:
        """The exit code of ``accountant``, and what it prints."""
        before = self.output.stat().st_size if self.output.exists() else 0
        code = self.begin(*arguments, **settings).wait()
        with self.output.open() as file:
            file.seek(before)
            return code, file.read().strip()

    def command(self, *arguments: str, **settings: str) -> str:
        """What ``accountant`` prints. Raises AssertionError if it fails."""
        code, printed = self.run(*arguments, **settings)
        assert code == 0, printed
        return printed

    def set_up(self) -> None:
        """Creates the database and the keys."""
        self.command("migrate", ACCOUNTANT_OWNER_URL=self.owner_url)
        for name, role in KEYS.items():
            printed = self.command("keys", "create", "--role", role, "--name", name)
            self.secrets[name] = printed.splitlines()[-1]

    @contextmanager
    def serving(self, port: int = 0, **settings: str) -> Iterator[Running]:
        """The service, ready; killed in the end if it has not ended before."""
        with self.started(port, **settings) as running:
            _wait_for(running)
            yield running

    @contextmanager
    def started(self, port: int = 0, **settings: str) -> Iterator[Running]:
        """The service, which may not listen yet; killed in the end if it has not ended before."""
        port = port or free_port()
        process = self.begin("serve", "--port", str(port), **settings)
        try:
            yield Running(process, port)
        finally:
            kill(process)

    def call(
        self, port: int, method: str, path: str, body: str | None = None, who: str = "admin"
    ) -> tuple[int, Any]:
        """One call under the population; what it answers, read as JSON where it is JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        headers = {"Authorization": f"Bearer {self.secrets[who]}"}
        with closing(connection):
            connection.request(method, f"/v1/populations/{POPULATION}{path}", body, headers)
            answer = connection.getresponse()
            data = answer.read()
        as_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(data) if as_json else data

    def register(self, port: int, policy: str, *datasets: str) -> None:
        """Registers the population, the datasets and the policy."""
        calls = [("", json.dumps(NEW))]
        calls += [(f"/datasets/{d}", json.dumps({"namespace": "n", "name": d})) for d in datasets]
        for path, body in [*calls, ("/policy", policy)]:
            status, answer = self.call(port, "PUT", path, body)
            assert status in (200, 202), answer
            if status == 202:
                path = f"/proposals/{answer['proposal']}/confirm"  # noqa: PLW2901
                digest = json.dumps({"digest": answer["digest"]})
                status, answer = self.call(port, "POST", path, digest, who="officer")
                assert status == 200, answer


def on_sqlite(home: Path, starter: Starter) -> Deployment:
    """A deployment that keeps everything in its home."""
    output = home.with_name(f"{home.name}.output")
    return Deployment(home, f"sqlite:///{home}/accountant.db", starter, output)


def on_postgres(home: Path, starter: Starter, hosted: Hosted) -> Deployment:
    """A deployment whose ledgers are on a server; everything else is in its home."""
    output = home.with_name(f"{home.name}.output")
    return Deployment(home, hosted.url, starter, output, owner_url=hosted.owner_url)


def copied(template: Deployment, made: Deployment) -> Deployment:
    """``made`` in its place with the home and the keys of another deployment."""
    shutil.copytree(template.home, made.home)
    made.secrets = template.secrets
    return made


def _wait_for(running: Running) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError, http.client.HTTPException):
            if running.ready() == 200:
                return
        time.sleep(0.01)
    raise AssertionError(f"the service (process {running.process.pid}) is not ready")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
