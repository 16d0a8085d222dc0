"""Every page at each width, light and dark: accessible, nothing cut off, no text that runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page
from site_of_clinic import Site

WIDTHS = (320, 360, 768, 1280)
MOST = 100_000
"""Bytes of a page."""


def addresses(site: Site) -> list[str]:
    """Every page that has something to show."""
    events = site.call("ada", "GET", "/events?after=-1&limit=1000")["events"]
    by_type = {one["event"]["type"]: one["event"]["sequence"] for one in events}
    proposal, request = site.propose(7), site.wait()
    clinic = "/console/clinic"
    return [
        *("/console", "/console?exact=1", "/console/keys", "/console/session"),
        *(f"{clinic}/{one}" for one in ("accounts", "requests", "proposals", "what-if")),
        *(f"{clinic}/{one}" for one in ("findings", "grants", "ledger", "reports", "evidence")),
        *(f"{clinic}/accounts/{one}" for one in ("labs", "visits", "surveys", "*")),
        f"{clinic}/what-if?rule=lifetime&epsilon=2&delta=1e-6",
        f"{clinic}/reports/making?kind=officer&first=2026-01-01&last=2026-01-31&format=html",
        f"{clinic}/proposals/{proposal}",
        f"{clinic}/requests/{request}",
        *(f"{clinic}/ledger/{one}" for one in by_type.values()),
        *(
            f"{clinic}/decisions/{by_type[kind]}"
            for kind in ("grant.reserved.v1", "grant.refused.v1", "invocation.recorded.v1")
        ),
    ]


BEYOND = """() => [...document.querySelectorAll('.card table')].filter((table) =>
  !table.closest('.tablewrap') &&
  table.getBoundingClientRect().right > table.closest('.card').getBoundingClientRect().right
).map((table) => table.caption?.textContent.slice(0, 40) ?? '')"""
"""The tables that end beyond the card that they stand in, and cannot be scrolled there."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_are_accessible_and_fit(
    enter: Callable[..., Page], site: Site, scheme: str, pictures: Path | None
) -> None:
    """No page breaks a rule of axe (WCAG 2.2 AA), none is wider than the window, no table than its
    card, and none runs a text that somebody sent.
    """
    page, wrong = enter("olive", color_scheme=scheme), list[str]()
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    for number, address in enumerate(addresses(site)):
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            answer: Any = page.goto(site.url + address)
            if answer.status != 200 or len(answer.body()) > MOST:
                wrong.append(f"{address}: {answer.status}, {len(answer.body())} bytes")
            if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
                wrong.append(f"{address} at {width}: {wide} pixels wide")
            wrong += [f"{address} at {width}: {one}" for one in page.evaluate(BEYOND)]
            if page.title() == "hit":
                wrong.append(f"{address}: a text ran as a script")
            if pictures and width != 320:
                name = f"{number:02}{address.replace('/', '_').replace('?', '_')}-{width}-{scheme}"
                page.screenshot(path=pictures / f"{name[:120]}.png", full_page=True)
            if width in (360, 1280):
                found = Axe().run(page, options={"runOnly": {"type": "tag", "values": tags}})
                for one in found.response["violations"]:
                    where = [node["target"] for node in one["nodes"]][:3]
                    wrong.append(f"{address} at {width}, {scheme}: {one['id']} {where}")
    assert not wrong, "\n".join(wrong)
