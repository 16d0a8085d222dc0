"""Pages of long ledgers keep nobody waiting who asks for something else."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest
from browser import signed_in
from support import World

from accountant.reporting import desk

MANY = 45
"""More than there are threads for all calls."""


@contextmanager
def held_up() -> Iterator[None]:
    """The process that reads long ledgers does nothing meanwhile."""
    mine = ["pgrep", "-P", str(os.getpid()), "-f", "accountant.reporting.desk"]
    found = subprocess.run(mine, capture_output=True, text=True, check=True).stdout.split()
    for one in found:
        os.kill(int(one), signal.SIGSTOP)
    try:
        yield
    finally:
        for one in found:
            os.kill(int(one), signal.SIGCONT)


def test_who_waits_for_pages_keeps_nobody_waiting(
    world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While more pages are asked for than there are threads, and none can be made, calls are
    answered at once; then all pages come.
    """
    monkeypatch.setattr(desk, "WORTH", 1)
    made = world().hospital()
    browser = signed_in(made)
    page = "/console/fair/accounts"
    assert browser.get(page, timeout=60).is_success

    def looked() -> int:
        cookies = dict(browser.http.cookies)
        base = str(browser.http.base_url)
        with httpx2.Client(base_url=base, cookies=cookies, trust_env=False) as other:
            return int(other.get(page, timeout=60).status_code)

    with ThreadPoolExecutor(MANY) as people:
        with held_up():
            asked = [people.submit(looked) for _ in range(MANY)]
            time.sleep(0.5)
            begun = time.monotonic()
            for _ in range(5):
                assert made.get("/accounts").is_success
            assert time.monotonic() - begun < 30
        assert {one.result() for one in asked} == {200}
