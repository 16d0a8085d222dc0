"""What the pages tell a newcomer to send is answered as they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fences import blocks, commands_of
from here import accountant
from support import World

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "docs/tutorial/first-ledger.md": [200, 200, 202, 200, 201, 200, 403],
    "README.md": [200, 200, 202, 200, 201],
}
"""The pages, with the status of each request in order."""


def requests(page: str) -> list[list[str]]:
    """The curl commands of a page, each as words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.+?)^```", text, re.DOTALL | re.MULTILINE)
    words = [shlex.split(block, comments=True) for block in blocks if "curl -X" in block]
    commands: list[list[str]] = []
    for word in (word for block in words for word in block):
        if word == "curl":
            commands.append([])
        elif commands:
            commands[-1].append(word)
    return commands


@pytest.mark.parametrize("page", PAGES)
def test_requests_are_answered_as_told(page: str, world: Callable[..., World]) -> None:
    """Each request of the page, sent in order to a fresh service, has the status that it tells of;
    the first request for budget, sent again, is answered from the ledger.
    """
    there = world()
    shell = {
        "$base": "/v1/populations/visitors",
        "$ADMIN": there.secrets["admin"],
        "$OFFICER": there.secrets["officer"],
        "$PIPELINE": there.secrets["pipeline"],
    }
    answers, asked = [], None
    for words in requests(page):
        answers.append(send(there, words, shell))
        if answers[-1].status_code == 202:
            shell["$digest"] = answers[-1].json()["digest"]
        if answers[-1].status_code == 201 and asked is None:
            asked = words
            shell["$grant"] = answers[-1].json()["id"]
    assert [answer.status_code for answer in answers] == PAGES[page], answers[-1].text
    assert asked is not None
    again = send(there, asked, shell)
    assert (again.status_code, again.headers["Idempotent-Replay"]) == (201, "true")


def first_ledger(there: World) -> World:
    """Sends what the first page of the tutorial sends."""
    shell = {"$base": "/v1/populations/visitors"}
    shell |= {f"${role.upper()}": there.secrets[role] for role in ("admin", "officer", "pipeline")}
    for words in requests("docs/tutorial/first-ledger.md"):
        answer = send(there, words, shell)
        if answer.status_code == 202:
            shell["$digest"] = answer.json()["digest"]
        if answer.status_code == 201:
            shell["$grant"] = answer.json()["id"]
    return there


def test_the_ledger_is_looked_at_and_checked(
    world: Callable[..., World], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tutorial's last commands, beside the database of its first ones: Japan has spent 0.5, the
    report is written, and every decision is the same again.
    """
    there = first_ledger(world())
    last = [one for one in blocks() if one.page == "docs/tutorial/first-ledger.md"][-1]
    home = {"ACCOUNTANT_DATABASE_URL": there.url, "ACCOUNTANT_HOME": str(there.settings.home)}
    monkeypatch.chdir(tmp_path)
    said = {words[1]: accountant(*words[1:], **home) for words in commands_of(last.code)}
    assert [one.code for one in said.values()] == [0, 0, 0], said
    [row] = [line for line in said["accounts"].out.splitlines() if "JP" in line]
    assert "0.5" in row
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "7 events" in said["replay"].out


def send(there: World, words: list[str], shell: dict[str, str]) -> Any:
    """What curl would send."""
    for name, value in shell.items():
        words = [word.replace(name, value) for word in words]
    headers, body, method, url = {}, "", "GET", ""
    rest = iter(words)
    for word in rest:
        if word == "-X":
            method, url = next(rest), next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word in ("-d", "--data-binary"):
            body = next(rest)
    if body.startswith("@"):
        body = (ROOT / body[1:]).read_text(encoding="utf-8")
    return there.http.request(method, url, headers=headers, content=body)
