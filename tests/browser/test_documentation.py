"""The documentation as a site, opened from a folder in a real Chromium: found, read, printed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
WIDTHS = (320, 360, 768, 1280)
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
LOOKED_AT = [
    "index.html",
    "readers/officer.html",
    "tutorial/first-ledger.html",
    "how-to/answer-a-query.html",
    "reference/rules.html",
    "reference/settings.html",
    "reference/http.html",
    "reference/options.html",
    "project/readme.html",
    "files/policies/index.html",
    "search.html?q=epsilon",
]
"""A page of each kind."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the site."""
    out = tmp_path_factory.mktemp("documentation")
    python = os.environ["ACCOUNTANT_TEST_PYTHON"]
    subprocess.run([python, "-m", "handbook", "--out", str(out)], cwd=ROOT, check=True)
    return out


@pytest.fixture(params=["light", "dark"])
def page(chromium: Browser, folder: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of a browser that may read the folder and nothing else."""
    context = chromium.new_context(color_scheme=request.param)
    page = context.new_page()
    page.on("pageerror", lambda error: pytest.fail(f"a script failed: {error}"))
    inside = folder.as_uri()
    page.on(
        "request",
        lambda sent: sent.url.startswith((inside, "data:")) or pytest.fail(f"it loads {sent.url}"),
    )
    yield page
    context.close()


def test_pages_are_accessible_and_fit(page: Page, folder: Path, pictures: Path | None) -> None:
    """No page breaks a rule of axe (WCAG 2.2 AA) or is wider than the window, at any width."""
    wrong = list[str]()
    scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
    for address in LOOKED_AT:
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.goto(f"{folder.as_uri()}/{address}")
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                wrong.append(f"{address} at {width}: {wide} pixels wide")
            if pictures and width != 320:
                name = f"docs-{address.replace('/', '_').replace('?', '_')}-{width}-{scheme}.png"
                page.screenshot(path=pictures / name)
            if width in (360, 1280):
                found = Axe().run(page, options={"runOnly": {"type": "tag", "values": TAGS}})
                for one in found.response["violations"]:
                    where = [node["target"] for node in one["nodes"]][:3]
                    wrong.append(f"{address} at {width}: {one['id']} {where}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("budget-exceeded", "budget-exceeded"),
        ("ACCOUNTANT_HOME", "ACCOUNTANT_HOME"),
        ("grant.reserved.v1", "grant.reserved.v1"),
        ("restore backup", "Back up and restore"),
        ("glossary", "Glossary"),
    ],
)
def test_the_search_finds(page: Page, folder: Path, asked: str, first: str) -> None:
    """What is asked for in full comes first, as a link that leads to its place."""
    page.goto(f"{folder.as_uri()}/index.html")
    page.get_by_role("searchbox").fill(asked)
    page.get_by_role("button", name="Search").click()
    page.wait_for_url("**/search.html?q=*")
    link = page.locator("#found a").first
    assert link.inner_text() == first
    link.click()
    anchor = page.evaluate("decodeURIComponent(location.hash.slice(1))")
    assert not anchor or page.locator(f"[id='{anchor}']").is_visible()


def test_the_search_takes_nothing_for_markup(page: Page, folder: Path) -> None:
    """What is written into the box is text, and what is not there is said."""
    page.goto(f"{folder.as_uri()}/search.html?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    assert page.locator("#said").inner_text().startswith("0 places for")
    assert page.locator("#said img").count() == 0
    page.get_by_role("searchbox").fill("epsilon")
    assert page.locator("#found li").count() == 40


def test_without_scripts_all_pages_are_listed(chromium: Browser, folder: Path) -> None:
    """Who has no scripts is led to the list of all pages."""
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{folder.as_uri()}/search.html?q=epsilon")
    assert "scripts are off" in page.locator("#said").inner_text()
    page.locator("#said a").click()
    assert page.locator("#pages a").count() > 50
    context.close()
