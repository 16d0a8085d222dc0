"""Reports, pages and what else takes seconds keep nobody waiting who asks for other things."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest
from support import World, ask, laplace

from accountant.reporting import desk

MANY = 100
"""Far more than there are threads for all calls."""


@pytest.fixture
def made(world: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A ledger that counts as long, in which event 4 is a refusal."""
    monkeypatch.setattr(desk, "WORTH", 1)
    made = world().hospital()
    made.post("/invocations", ask(laplace("1"), purpose="ops"))
    assert made.post("/grants", ask(laplace("100"), purpose="ops")).status_code == 403
    return made


def asking(made: World, path: str) -> socket.socket:
    """An auditor who has asked for something."""
    client = socket.create_connection(("127.0.0.1", made.http.port), timeout=30)
    client.sendall(
        f"GET /v1/populations/fair{path} HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {made.secrets['auditor']}\r\n\r\n".encode()
    )
    return client


@pytest.mark.parametrize("path", ["/report?format=json", "/decisions/d4"])
def test_who_waits_for_one_keeps_nobody_waiting(made: World, path: str) -> None:
    """While more ask than there are threads, others are answered at once. What nobody waits for any
    more is not made.
    """
    clients = [asking(made, path) for _ in range(MANY)]
    time.sleep(0.1)
    begun = time.monotonic()
    for _ in range(5):
        assert made.get("/accounts").is_success
    assert time.monotonic() - begun < 20
    for client in clients:
        client.close()
    with asking(made, path) as last:
        assert last.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert time.monotonic() - begun < 60
