"""How a person in a browser decides: by the form of the page that they read."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from browser import Browser


def field(page: str, name: str) -> str:
    """The value of a hidden field of a page's form; empty if it has none."""
    found = [
        one
        for one in re.findall(rf'name="{name}" value="([^"]*)"', page)
        if name != "decision" or one in ("confirm", "refuse")
    ]
    return unescape(found[0]) if found else ""


def read(browser: Browser, path: str, decision: str, reason: str = "") -> dict[str, str]:
    """The fields of the form on a page, filled in."""
    page = browser.get(path).text
    fields = {name: field(page, name) for name in ("csrf", "digest")}
    return fields | {"decision": decision, "reason": reason}


def decide(browser: Browser, path: str, decision: str, reason: str = "") -> Any:
    """Reads a page and sends its form."""
    return browser.post(path, read(browser, path, decision, reason))


def offers(browser: Browser, path: str) -> set[str]:
    """What a page lets its reader do: confirm, refuse, both, or neither."""
    page = browser.get(path).text
    return set(re.findall(r'name="decision" value="(\w+)"', page))


def texts(page: Any) -> str:
    """The words of a page."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())
