"""The page at /docs: whole, self-contained, and enough for a stranger."""

from __future__ import annotations

import json
import re
import shlex
from html.parser import HTMLParser
from typing import Any

import pytest
from story_runner import Told

from accountant.api.app import create_app
from accountant.api.description.page import curl, page, pretty
from accountant.api.description.texts import PROBLEMS, STORY
from accountant.config.settings import Settings
from accountant.privacy.mechanisms import KINDS

VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Ids, links, code samples, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.samples: list[str] = []
        self.sources: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the element."""
        given = dict(attrs)
        self.open += [] if tag in VOID else [tag]
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        self.sources += [name for name in given if name in ("src", "srcset", "onclick")]
        if tag == "pre":
            self.samples.append("")

    def handle_endtag(self, tag: str) -> None:
        """Closes the element."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collects code samples."""
        if "pre" in self.open:
            self.samples[-1] += data


@pytest.fixture(scope="module")
def text() -> str:
    """The page as HTML."""
    return page(create_app(None, Settings(), None))


@pytest.fixture(scope="module")
def parsed(text: str) -> Page:
    """The page, parsed."""
    return Page(text)


def test_the_page_loads_nothing_and_runs_nothing(text: str, parsed: Page) -> None:
    """No scripts, images, fonts or style sheets from elsewhere: it can be saved and printed."""
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert not parsed.sources
    assert not parsed.open


def test_links_lead_to_places_on_the_page(parsed: Page) -> None:
    """Every link in the page has its target there, once."""
    assert len(parsed.ids) == len(set(parsed.ids))
    inside = {link[1:] for link in parsed.links if link.startswith("#")}
    assert inside <= set(parsed.ids)
    assert {link for link in parsed.links if not link.startswith("#")} == {"/openapi.json"}


def test_the_page_has_every_call_mechanism_and_problem(parsed: Page) -> None:
    """Nothing that the program has is left out."""
    there = set(parsed.ids)
    assert {example.call for example in STORY} <= there
    assert {f"kind-{kind}" for kind in KINDS} <= there
    assert {f"problem-{code}" for code in PROBLEMS} <= there


def test_the_curl_commands_work_as_they_are_printed(told: Told, parsed: Page) -> None:
    """The commands, pasted in the order of the story, give the documented statuses."""
    printed = set(parsed.samples)
    for example in STORY:
        command = curl(example)
        assert command in printed, example.title
        if isinstance(example.body, dict) and "digest" in example.body:
            command = command.replace(example.body["digest"], told.digest)
        answer = run(told, command)
        assert answer.status_code == example.status, command
        told.learn(example, answer)


def run(told: Told, command: str) -> Any:
    """Send the request of a printed curl command."""
    words = shlex.split(command.replace("\\\n", " "))
    assert words.pop(0) == "curl"
    method, path, body = "GET", "", None
    headers: dict[str, str] = {}
    while words:
        match words.pop(0):
            case "-X":
                method = words.pop(0)
            case "-H":
                name, value = words.pop(0).split(": ", 1)
                headers[name] = re.sub(
                    r"\$([A-Z]+)", lambda found: told.secrets[found[1].lower()], value
                )
            case "--data-binary":
                body = words.pop(0)
            case url:
                path = url.removeprefix("$URL")
    return told.http.request(method, path, headers=headers, content=body)


@pytest.mark.parametrize("example", [e for e in STORY if isinstance(e.answer, dict)])
def test_pretty_json_is_the_same_json(example: Any) -> None:
    """Laying JSON out for print changes no value, and only a long text leaves the page's width."""
    text = pretty(example.answer)
    assert json.loads(text) == example.answer
    assert all(len(line) <= 96 or line.count('"') == 4 for line in text.splitlines())
