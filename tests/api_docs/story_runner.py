"""Runs the documented story against a real service, for the tests of this folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from support import client_of

from accountant.api.description.texts import STORY, Example
from accountant.budget.commands import Role
from accountant.config.settings import Settings
from accountant.runtime.service import Service
from accountant.store.ledgers import sqlite_path
from accountant.store.opening import open_ledgers
from accountant.store.vault import Vault

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_HASH = re.compile(r"[0-9a-f]{64}|[A-Za-z0-9+/]{43,}={0,2}")

CLIENTS: dict[Role, str] = {
    "admin": "steward",
    "pipeline": "visits",
    "officer": "privacy-office",
    "auditor": "audit",
}
"""The name of each role's API key, which is the client's name in events."""


class Told:
    """A service with a key for each role and an HTTP client, to which the story can be told."""

    def __init__(self, url: str) -> None:
        settings = Settings(home=sqlite_path(url).parent)
        self.service = Service(open_ledgers(url), vault=Vault(settings.home))
        keys = self.service.credentials
        self.secrets = {role: keys.create(name, role, "test") for role, name in CLIENTS.items()}
        for name in ("third", "deputy"):
            keys.create(name, "officer", "operator:ann")
        self.http = client_of(self.service, settings)
        self.digest = ""  # of what was read last: of other bytes in each run

    def close(self) -> None:
        """Closes the client and the service."""
        self.http.close()
        self.service.close()

    def send(self, example: Example) -> Any:
        """The response to one documented request."""
        method, path = example.request.split(" ", 1)
        headers = dict(example.headers)
        if example.by:
            headers["Authorization"] = f"Bearer {self.secrets[example.by]}"
        body = example.body
        if isinstance(body, dict) and "digest" in body:
            body = body | {"digest": self.digest}
        content = json.dumps(body) if isinstance(body, dict) else body
        answer = self.http.request(method, path, headers=headers, content=content)
        self.learn(example, answer)
        return answer

    def learn(self, example: Example, answer: Any) -> None:
        """Keeps the digest that it shows, of a proposal or of a request that waits for a person, or
        that a report has.
        """
        shown = example.call == "show_key_proposal" or "/approvals/" in str(answer.request.url)
        if answer.status_code == 202 or shown:
            self.digest = answer.json().get("digest", self.digest)
        elif example.call == "show_report":
            self.digest = sha256(answer.content).hexdigest()

    def tell(self) -> list[tuple[Example, Any]]:
        """Every example with its response, in order."""
        return [(example, self.send(example)) for example in STORY]


def masked(value: Any) -> Any:
    """``value`` without what differs from run to run: times, salted digests, hashes of events that
    hold them, and signatures.
    """
    if isinstance(value, dict):
        return {k: masked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    if isinstance(value, str):
        return "<time>" if _TIME.fullmatch(value) else _HASH.sub("<hash>", value)
    return value


def differences(got: Any, documented: Any, at: str = "$") -> Iterator[str]:
    """Where an answer departs from the documented one."""
    if isinstance(got, dict) and isinstance(documented, dict):
        for name in sorted(got.keys() | documented.keys()):
            if name not in got or name not in documented:
                yield f"{at}.{name}: only {'answered' if name in got else 'documented'}"
            else:
                yield from differences(got[name], documented[name], f"{at}.{name}")
    elif isinstance(got, list) and isinstance(documented, list) and len(got) == len(documented):
        for i, pair in enumerate(zip(got, documented, strict=True)):
            yield from differences(*pair, f"{at}[{i}]")
    elif got != documented:
        yield f"{at}: answered {got!r}, documented {documented!r}"
