"""A real service in a process of its own, for tests whose libraries it cannot run with.

The libraries of pipelines want versions of numpy and pydantic that the service does not run with.
So their tests have environments of their own, in which there is the client; the service is started
with the interpreter that ``ACCOUNTANT_TEST_PYTHON`` names, by default the one that runs the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from accountant.client import Client, Registrar

ROOT = Path(__file__).resolve().parents[2]
INTERPRETER = "ACCOUNTANT_TEST_PYTHON"
POLICY = """
policy: test
rules:
  - {id: lifetime, limit: {epsilon: 1}}
  - {id: reasons, require: [purpose]}
"""
"""A limit that is easily reached. ``population`` takes others."""
ROLES = {role: role for role in ("admin", "officer", "pipeline", "auditor")}


class NotStarted(Exception):
    """The service does not start with this interpreter."""


@dataclass
class Running:
    """A service that listens, with an admin's, a pipeline's and an auditor's key."""

    url: str
    keys: dict[str, str]
    names: Iterator[int] = field(default_factory=count)
    opened: list[Client] = field(default_factory=list)

    def population(
        self, policy: str = POLICY, neighbouring: str = "replace_one", **dimensions: list[str]
    ) -> str:
        """A new population with the dataset ``visits`` and the policy."""
        name = f"people-{next(self.names)}"
        with Registrar(self.url, self.keys["admin"], name) as registrar:
            registrar.register(
                privacy_unit="person",
                neighbouring=neighbouring,
                membership="public",
                dimensions=dimensions or {"country": ["KR", "JP"]},
            )
            registrar.dataset("visits", namespace=name, name="visits")
            proposed = registrar.policy(policy)
        with Registrar(self.url, self.keys["officer"], name) as second:
            second.confirm(proposed["proposal"], proposed["digest"])
        return name

    def client(self, population: str, key: str = "pipeline", **options: Any) -> Client:
        """A client with one of the keys; it waits little between retries."""
        made = Client(self.url, self.keys[key], population, **{"backoff": 0.01} | options)
        self.opened.append(made)
        return made

    def close(self) -> None:
        """Close the clients that were made."""
        while self.opened:
            self.opened.pop().close()

    def events(self, population: str) -> list[dict[str, Any]]:
        """The ledger as an auditor reads it."""
        with self.client(population, "auditor") as auditor:
            return [event.content for event in auditor.events()]


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """Start a service on a new ledger in ``folder``; stop it afterwards. Raise NotStarted."""
    python = os.environ.get(INTERPRETER, sys.executable)
    said = folder / "service.txt"
    with (
        said.open("wb") as errors,
        subprocess.Popen(
            [python, str(Path(__file__).resolve()), str(folder)],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        if not (line := process.stdout.readline()):
            last = (said.read_text().splitlines() or ["it said nothing"])[-1]
            raise NotStarted(
                f"no service starts with {python} ({last}): "
                f"name one that has it installed in {INTERPRETER}"
            )
        yield Running(**json.loads(line))
        process.stdin.close()  # which ends it


def serve(folder: Path) -> None:
    """Serve a new ledger until the standard input ends. Print where, and the keys."""
    sys.path.insert(0, str(ROOT / "tests"))
    import logging  # noqa: PLC0415 (what follows is there in the service's environment only)

    import structlog  # noqa: PLC0415
    import support  # noqa: PLC0415

    from accountant.config.settings import Settings  # noqa: PLC0415
    from accountant.runtime.service import Service  # noqa: PLC0415
    from accountant.store.migrate import migrate  # noqa: PLC0415
    from accountant.store.opening import open_ledgers  # noqa: PLC0415
    from accountant.store.vault import Vault  # noqa: PLC0415

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    url = f"sqlite:///{folder}/accountant.db"
    migrate(url)
    ledgers = open_ledgers(url)
    settings = Settings(home=folder)
    service = Service(ledgers, vault=Vault(settings.home))
    keys = {
        name: service.credentials.create(name, role, "test")  # type: ignore[arg-type]
        for name, role in ROLES.items()
    }
    listening = support.Served(service, settings, None)
    where = {"url": f"http://127.0.0.1:{listening.port}", "keys": keys}
    sys.stdout.write(json.dumps(where) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    listening.close()
    ledgers.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
