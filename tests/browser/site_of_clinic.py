"""A real service on a temporary ledger, with enough in it that every page has something to show.

Runs in the environment of the browser, so it knows the service by its command line and its HTTP
calls alone.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PYTHON = os.environ.get("ACCOUNTANT_TEST_PYTHON", "python")
HOSTILE = "<script>document.title='hit'</script><img src=x onerror=\"document.title='hit'\">"
POLICY = """policy: clinic
rules:
  - {id: lifetime, limit: {epsilon: 3, delta: 1e-6}}
  - {id: person, across: datasets, limit: {epsilon: 8, delta: 1e-5}}
  - {id: nearly, of: lifetime, at: 80%, action: flag}
  - {id: ask-first, action: approve, at_most: {epsilon: 0.4}}
"""
DIMENSIONS = {"age": ["18-29", "30-44", "45-64", "65 or over"], "region": ["north", "south"]}


class Site:
    """A running service, and who can use it."""

    def __init__(self, home: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as door:
            self.port = door.getsockname()[1]
        self.url, self.keys = f"http://127.0.0.1:{self.port}", dict[str, str]()
        self.home, self._number = home, count()
        kept = {name: value for name, value in os.environ.items() if "ACCOUNTANT" not in name}
        self.environment = kept | {
            "ACCOUNTANT_HOME": str(home),
            "ACCOUNTANT_DATABASE_URL": f"sqlite:///{home}/accountant.db",
            "ACCOUNTANT_PORT": str(self.port),
        }

    def command(self, *words: str) -> str:
        """What a command prints."""
        done = subprocess.run(
            [PYTHON, "-m", "accountant", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def call(self, who: str, method: str, path: str, body: Any = None) -> Any:
        """An answer to a request under /v1/populations/clinic, refusals included."""
        data = body if isinstance(body, str) else json.dumps(body or {})
        headers = {
            "Authorization": f"Bearer {self.keys[who]}",
            "Idempotency-Key": f"k{next(self._number)}",
            "Content-Type": "application/yaml" if isinstance(body, str) else "application/json",
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, f"/v1/populations/clinic{path}", data, headers)
        answer = connection.getresponse()
        found = json.load(answer)
        connection.close()
        assert answer.status < 300 or answer.status in (403, 409), found
        return found

    def link(self, who: str) -> str:
        """The address by which the holder of a key signs in, once."""
        file = self.home / f"{who}.key"
        file.write_text(self.keys[who])
        file.chmod(0o600)
        found = re.search(r"http\S+", self.command("signin-link", "--key-file", str(file)))
        assert found
        return found[0]

    def propose(self, epsilon: float) -> int:
        """The number of a proposal by the steward to loosen the limit."""
        text = POLICY.replace("epsilon: 3,", f"epsilon: {epsilon},")
        answer = self.call("steward", "PUT", "/policy", text)
        return int(answer["proposal"])

    def wait(self) -> str:
        """The id of a request that waits for a person."""
        asked = request("0.5", purpose="follow up")
        return str(self.call("team", "POST", "/grants", asked)["id"])


def request(epsilon: str, dataset: str = "visits", **more: Any) -> dict[str, Any]:
    """The body of a request that costs ``epsilon``."""
    mechanism = {"kind": "laplace", "sensitivity": epsilon, "scale": "1"}
    return {"dataset": dataset, "mechanisms": [mechanism]} | more


def fill(site: Site) -> None:
    """A ledger in which something was granted, flagged, refused, overrun, and left open."""
    about = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    site.call("steward", "PUT", "", about | {"dimensions": DIMENSIONS})
    for name in ("visits", "labs", "surveys"):
        site.call("steward", "PUT", f"/datasets/{name}", {"namespace": "clinic", "name": name})
    first = site.call("steward", "PUT", "/policy", POLICY)
    confirmed = {"digest": first["digest"]}
    site.call("olive", "POST", f"/proposals/{first['proposal']}/confirm", confirmed)
    for number in range(9):
        group = {"age": [DIMENSIONS["age"][number % 4]]}
        asked = request("0.3", subjects=group, purpose=f"round {number}")
        grant = site.call("team", "POST", "/grants", asked)
        if number % 3:
            site.call("team", "POST", f"/grants/{grant['id']}/commit")
    site.call("team", "POST", "/grants", request("0.2", "labs", purpose=HOSTILE))
    site.call("team", "POST", "/invocations", request("3.25", "labs", purpose="in a hurry"))
    site.call("team", "POST", "/grants", request("0.1", "labs", purpose=HOSTILE))


@contextmanager
def running(home: Path) -> Iterator[Site]:
    """A service that is filled, until the end."""
    site = Site(home)
    site.command("migrate")
    for name, role in (("steward", "admin"), ("olive", "officer"), ("ada", "auditor")):
        site.keys[name] = site.command("keys", "create", "--role", role, "--name", name)
    site.keys["team"] = site.command("keys", "create", "--role", "pipeline", "--name", "team")
    with (home / "service.log").open("wb") as log:
        serving = subprocess.Popen(
            [PYTHON, "-m", "accountant", "serve"], env=site.environment, stdout=log, stderr=log
        )
    try:
        _answers(site)
        fill(site)
        yield site
    finally:
        serving.terminate()
        serving.wait(30)


def _answers(site: Site) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", site.port)).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the service did not start: " + (site.home / "service.log").read_text())
