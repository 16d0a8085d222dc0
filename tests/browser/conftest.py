"""One service and one Chromium for all tests; each test has a profile of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright
from site_of_clinic import Site, running

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The service."""
    with running(tmp_path_factory.mktemp("site")) as found:
        yield found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The system's Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium is installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def enter(chromium: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Signs somebody in, and gives a page on which no script of others runs or dialog opens."""
    opened: list[BrowserContext] = []

    def signed_in(who: str, **more: Any) -> Page:
        context = chromium.new_context(**more)
        opened.append(context)
        page = context.new_page()
        page.on("dialog", lambda dialog: pytest.fail(f"a dialog opened: {dialog.message}"))
        page.on("pageerror", lambda error: pytest.fail(f"a script failed: {error}"))
        page.goto(site.link(who))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(f"{site.url}/console")
        return page

    yield signed_in
    for context in opened:
        context.close()


@pytest.fixture
def pictures() -> Path | None:
    """A folder for pictures of all pages, if one is wanted: PICTURES=folder."""
    folder = os.environ.get("PICTURES")
    return Path(folder) if folder else None
