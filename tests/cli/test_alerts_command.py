"""``accountant alerts``: the list, mutes, and a message that tries the channels."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from here import Said, accountant
from support import World

from accountant.store.ledgers import AlertRow

Run = Callable[..., Said]
ROW = AlertRow("threshold/d/a/1/80", "chat", 10**15, 10**15, 1, 0, b"")
SAID = b'{"kind":"threshold","sentence":"d has used 84 % of its limit."}'


@pytest.fixture
def run(world: Callable[..., World]) -> Run:
    """Runs ``accountant alerts`` on a ledger where something was told."""
    made = world().hospital()
    told = ROW._replace(said=SAID)
    with made.service.ledgers.writing("fair") as writing:
        rows = told._replace(delivered=2 * 10**15), told._replace(channel="mail", due=-1)
        covered = told._replace(name="threshold/d/a/1/50", attempts=0, delivered=10**15)
        writing.keep_alerts("fair", [*rows, covered])
        writing.commit()

    def accountant_alerts(*words: str, **environment: str) -> Said:
        return accountant("--database-url", made.url, "alerts", *words, **environment)

    return accountant_alerts


def test_the_list_says_what_became_of_each(run: Run) -> None:
    """Delivered, given up, or not needed as a graver one was told."""
    listed = run("list", "-p", "fair")
    assert listed.code == 0, listed.err
    for text in ("d has used 84 % of its limit.", "delivered 2033-", "given up after 1 attempt"):
        assert text in listed.out
    assert "threshold/d/a/1/50 (covered by a graver one)" in listed.out
    [covered, chat, mail] = json.loads(run("list", "-p", "fair", "--json").out)["alerts"]
    assert (covered["attempts"], chat["given_up"], mail["given_up"]) == (0, False, True)
    assert run("list", "-p", "other").code == 2


def test_a_mute_has_a_reason_and_an_end(run: Run) -> None:
    """It is listed with both and with who said so, until it is ended."""
    words = "mute", "forecast", "-p", "fair", "--until", "3d", "--reason", "the year-end run"
    assert run(*words).code == 0
    [mute] = json.loads(run("list", "-p", "fair", "--json").out)["mutes"]
    assert (mute["kind"], mute["reason"]) == ("forecast", "the year-end run")
    assert mute["by"].startswith("operator:")
    assert "forecast is muted until" in run("list", "-p", "fair").out
    assert run("unmute", "forecast", "-p", "fair").code == 0
    assert json.loads(run("list", "-p", "fair", "--json").out)["mutes"] == []
    assert "not muted" in run("unmute", "forecast", "-p", "fair").err


@pytest.mark.parametrize(
    ("kind", "until", "reason", "error"),
    [
        ("forecasts", "3d", "why", "there is no kind 'forecasts'"),
        ("forecast", "367d", "why", "within 366 days"),
        ("forecast", "2020-01-01T00:00:00Z", "why", "within 366 days"),
        ("forecast", "for ever", "why", "--until is 'for ever'"),
        ("forecast", "2026-13-01T00:00:00Z", "why", "--until is '2026-13-01T00:00:00Z'"),
        ("forecast", "3d", " ", "a reason of 1 to 500 characters"),
    ],
)
def test_a_mute_that_cannot_be(run: Run, kind: str, until: str, reason: str, error: str) -> None:
    """Another kind, no end in time, no reason."""
    said = run("mute", kind, "-p", "fair", "--until", until, "--reason", reason)
    assert (said.code, error in said.err) == (2, True), said.err


def test_the_channels_are_tried(run: Run, tmp_path: Path) -> None:
    """Each says whether it took the message; one that did not makes the command fail."""
    file, secret = tmp_path / "alerts.yaml", tmp_path / "secret"
    secret.write_text(f"whsec_{base64.b64encode(bytes(32)).decode()}")
    hook = {"url": "http://127.0.0.1:1/none", "secret_file": str(secret)}
    file.write_text(json.dumps({"channels": [{"name": "officers", "webhook": hook}]}))
    tried = run("test", ACCOUNTANT_ALERTS=str(file))
    assert (tried.code, "officers: not delivered: ConnectError" in tried.err) == (1, True)
    other = run("test", "--channel", "chat", ACCOUNTANT_ALERTS=str(file))
    assert (other.code, "no channel 'chat'" in other.err) == (2, True)
    assert "ACCOUNTANT_ALERTS names no file" in run("test").err
