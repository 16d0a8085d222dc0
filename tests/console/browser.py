"""A browser without scripts: it keeps cookies, and says where a form comes from."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import httpx2
from support import OPENED, World

from accountant.auth.links import Links


class Browser:
    """A browser at a console. ``origin``: what it believes the address to be."""

    def __init__(self, world: World, origin: str = "") -> None:
        base = f"http://127.0.0.1:{world.http.port}"
        self.origin = origin or base
        self.http = httpx2.Client(base_url=base, follow_redirects=False, trust_env=False)
        OPENED.append(self.http)

    def get(self, path: str, **more: Any) -> Any:
        """Follows no redirect."""
        return self.http.get(path, **more)

    def post(self, path: str, fields: Any = None, **more: Any) -> Any:
        """Sends a form of a page of ours, unless ``headers`` say otherwise."""
        headers = {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
        return self.http.post(path, data=fields or {}, headers=headers | more.pop("headers", {}))

    @property
    def token(self) -> str | None:
        """The cookie of the session."""
        return self.http.cookies.get("accountant") or self.http.cookies.get("__Host-accountant")

    def csrf(self, page: str = "/console/session") -> str:
        """The token in the form of a page."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(page).text)
        assert found, "the page has no form"
        return unescape(found[1])


def new_code(world: World, name: str = "alice", role: Any = "officer", by: str = "ann") -> str:
    """The code of a new link, confirmed by others if that takes two people."""
    credentials = world.service.credentials
    code, event = Links(credentials).create(name, role, f"operator:{by}")
    if event.type == "link.proposed.v1":
        one, _ = credentials.proposal(event.sequence)
        credentials.confirm(one.sequence, one.digest, "test-2")
    return code


def signed_in(world: World, name: str = "alice", role: Any = "officer") -> Browser:
    """A browser in which somebody has signed in."""
    browser = Browser(world)
    answer = browser.post("/console/signin/code", {"code": new_code(world, name, role)})
    assert answer.status_code == 303, answer.text
    return browser
