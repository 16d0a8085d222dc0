"""Runs the documented story against a real service, for the tests of this folder."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from support import client_of

from accountant.api.description.examples import CLIENTS, STORY, Example
from accountant.service import Service

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Told:
    """A service with a key for each role and an HTTP client, to which the story can be told."""

    def __init__(self, service: Service) -> None:
        self.secrets = {
            role: service.create_key(name, role, "test") for role, name in CLIENTS.items()
        }
        self.http = client_of(service)

    def send(self, example: Example) -> Any:
        """The response to one documented request."""
        method, path = example.request.split(" ", 1)
        headers = dict(example.headers)
        if example.by:
            headers["Authorization"] = f"Bearer {self.secrets[example.by]}"
        body = example.body
        content = json.dumps(body) if isinstance(body, dict) else body
        return self.http.request(method, path, headers=headers, content=content)

    def tell(self) -> list[tuple[Example, Any]]:
        """Every example with its response, in order."""
        return [(example, self.send(example)) for example in STORY]


def masked(value: Any) -> Any:
    """``value`` without what differs from run to run: times and hash links."""
    if isinstance(value, dict):
        return {k: "<link>" if k == "link" else masked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return "<time>" if isinstance(value, str) and _TIME.fullmatch(value) else value


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
