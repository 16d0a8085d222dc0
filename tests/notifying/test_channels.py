"""Mails and messages to a chat: what they say, that they are encrypted, and what is kept secret."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from postbox import Mailbox, certificate
from receiving import Receiver

from accountant.budget.policy_file import parsed
from accountant.cli.common import alerts_of
from accountant.config.alerts import KINDS, WAYS, AlertSettings, Mail, Terms
from accountant.config.settings import Settings
from accountant.notifying import mail
from accountant.notifying.alerting import Told
from accountant.notifying.channels import in_chat, ways_of
from accountant.notifying.mail import written
from accountant.notifying.webhook import Undelivered

SENTENCE = "fair: d is over its limit: 3.250 spent, 3 allowed (rule a)."
PAGE = "https://accounts.example.org/console/fair/accounts/d"
TOLD = Told("alert_1", "2026-11-26T18:00:00.000000Z", "fair", "overrun", SENTENCE, PAGE, "d", "a")


def channel(tmp_path: Path, way: str, **stated: Any) -> Callable[[Told], None]:
    """What sends to one channel."""
    document = {"channels": [{"name": "officers", way: stated}]}
    [found] = ways_of(AlertSettings.model_validate(document), "accounts.example.org/ledger")
    return found.send


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(params=["starttls", "tls"])
def security(request: pytest.FixtureRequest) -> str:
    """How a mail is encrypted."""
    return str(request.param)


@pytest.fixture
def box(security: str, tls: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    """A mail server, whose certificate we trust."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tls))
    made = Mailbox(tls, at_once=security == "tls")
    yield made
    made.close()


def stated(box: Mailbox, security: str, tmp_path: Path, **more: Any) -> dict[str, Any]:
    """The settings of a channel to the box."""
    (tmp_path / "password").write_text("geheim\n")
    own = {"host": "127.0.0.1", "port": box.port, "security": security, "user": "accountant"}
    people = {"from": "accountant@example.org", "to": ["a@example.org", "b@example.org"]}
    return own | people | {"password_file": str(tmp_path / "password")} | more


def test_a_mail_says_what_needs_somebody(box: Mailbox, security: str, tmp_path: Path) -> None:
    """Its subject is the sentence, its text has the page, its id is that of the alert, and it goes
    encrypted, after we have signed in.
    """
    send = channel(tmp_path, "mail", **stated(box, security, tmp_path))
    send(TOLD)
    [got] = box.got
    assert (box.encrypted, box.logins) == ([True], [b"\0accountant\0geheim"])
    assert (got["Subject"], got["To"]) == (SENTENCE, "a@example.org, b@example.org")
    assert got["Message-ID"] == "<alert_1@accounts.example.org>"
    assert got["Date"].datetime.isoformat() == "2026-11-26T18:00:00+00:00"
    assert got["Auto-Submitted"] == "auto-generated"
    text = got.get_content()
    assert text.splitlines()[0] == SENTENCE
    assert f"Page: {PAGE}" in text


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({"AUTH": "535 no geheim"}, "SMTPAuthenticationError: the mail server answers 535"),
        ({"DATA": "451 later"}, "SMTPDataError: the mail server answers 451"),
        ({"RCPT": "550 no a@example.org"}, "SMTPRecipientsRefused"),
        ({"MAIL": "550 no accountant@example.org"}, "SMTPSenderRefused: the mail server answers"),
    ],
)
def test_a_mail_that_is_not_taken(
    box: Mailbox, security: str, tmp_path: Path, answers: dict[str, str], reason: str
) -> None:
    """It is to be sent again; the reason shows neither the password nor an address."""
    box.answers = answers
    send = channel(tmp_path, "mail", **stated(box, security, tmp_path))
    with pytest.raises(Undelivered) as found:
        send(TOLD)
    assert str(found.value).startswith(reason)
    assert "@" not in str(found.value)
    assert "geheim" not in str(found.value)


def test_nothing_goes_to_a_server_that_we_do_not_trust(
    box: Mailbox, security: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a mail nor the password goes to one whose certificate nobody vouches for."""
    monkeypatch.delenv("SSL_CERT_FILE")
    send = channel(tmp_path, "mail", **stated(box, security, tmp_path))
    with pytest.raises(Undelivered, match="SSLCertVerificationError"):
        send(TOLD)
    assert (box.got, box.logins) == ([], [])


def test_nothing_goes_without_the_encryption_that_was_asked_for(tls: Path, tmp_path: Path) -> None:
    """Where a server, or somebody in between, takes STARTTLS away, nothing is sent."""
    box = Mailbox(tls)
    box.answers = {"STARTTLS": "502 not here"}
    send = channel(tmp_path, "mail", **stated(box, "starttls", tmp_path))
    with pytest.raises(Undelivered):
        send(TOLD)
    assert (box.got, box.logins) == ([], [])
    box.close()


def test_a_server_that_is_away_or_hangs(
    tls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time limit the mail is to be sent again."""
    monkeypatch.setattr(mail, "_SECONDS", 0.3)
    box = Mailbox(tls, at_once=True)  # it waits for us to begin with TLS, and we for its greeting
    own = stated(box, "none", tmp_path, user="", password_file=None)
    with pytest.raises(Undelivered, match=r"SMTPServerDisconnected|TimeoutError"):
        channel(tmp_path, "mail", **own)(TOLD)
    box.close()
    with pytest.raises(Undelivered, match="ConnectionRefusedError"):
        channel(tmp_path, "mail", **own)(TOLD)
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    assert all(one.finished.is_set() for one in timers)  # they do not keep a process from ending


def test_a_mail_server_that_does_not_come_to_an_end(
    box: Mailbox, security: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is left after a time limit for all of it, though no step takes long."""
    monkeypatch.setattr(mail, "_WHOLE", 0.5)
    box.slow = 0.1
    send = channel(tmp_path, "mail", **stated(box, security, tmp_path))

    def sent() -> None:
        with pytest.raises(Undelivered):
            send(TOLD)

    running = threading.Thread(target=sent)
    running.start()
    running.join(5)
    ended, box.slow = not running.is_alive(), 0
    assert ended
    assert box.got == []


def test_a_message_to_a_chat(receiver: Receiver, tmp_path: Path) -> None:
    """It is JSON as Slack takes it: the sentence, whose marks are none of Slack's, and a link."""
    file = tmp_path / "url"
    file.write_text(f"{receiver.url}/services/T0/B0/private\n")
    send = channel(tmp_path, "slack", url_file=str(file))
    send(TOLD._replace(sentence="a <b> & c"))
    [(headers, body)] = receiver.got
    assert headers["content-type"] == "application/json"
    assert json.loads(body) == {"text": f"a &lt;b&gt; &amp; c <{PAGE}|Open>"}
    receiver.status = 500
    with pytest.raises(Undelivered, match="it answers 500"):
        send(TOLD)
    receiver.server.shutdown()
    receiver.server.server_close()
    with pytest.raises(Undelivered) as found:
        send(TOLD)
    assert "private" not in str(found.value)


def test_several_alerts_are_one_message() -> None:
    """A mail and a chat have a line for each; no line of one can pass for another."""
    several = TOLD._replace(sentence="fair: 6 alerts at once.", parts=(SENTENCE, "a <b>\r\n* c"))
    address = {"host": "m.org", "from": "a@x.org", "to": ["b@x.org"]}
    text = written(several, Mail.model_validate(address), "example.org").get_content()
    assert text.startswith(f"fair: 6 alerts at once.\n\n* {SENTENCE}\n* a <b> * c\n\nFirst seen")
    lines = in_chat(several).splitlines()
    assert lines[:2] == ["fair: 6 alerts at once.", f"• {SENTENCE}"]
    assert lines[2:] == ["• a &lt;b&gt; * c", f"<{PAGE}|Open>"]


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("mail: {host: mail.example.org, security: none, from: a@x.org, to: [b@x.org]}", "none"),
        ("mail: {host: m.org, from: a@x.org, to: [b@x.org], user: a}", "go together"),
        ("mail: {host: m.org, from: a@x.org, to: []}", "to: must not be empty"),
        ("mail: {host: m.org, from: a@x.org, to: ['b@x.org>, c']}", "officers@example.org"),
        ("mail: {host: m.org, to: [b@x.org]}", "from: is missing"),
        ("slack: {url: 'https://hooks.slack.com/private'}", "there is no such field"),
        ("slack: {url_file: F}", "must be an address with https"),
        ("slack: {url_file: F}\n    mail: {host: m.org, from: a@x.org, to: [b@x.org]}", "one of"),
    ],
)
def test_channels_that_cannot_be_meant(tmp_path: Path, way: str, reason: str) -> None:
    """The start fails with the reason, and shows no secret address."""
    file, secret = tmp_path / "alerts.yaml", tmp_path / "url"
    secret.write_text("http://hooks.example.org/private")
    file.write_text(f"channels:\n  - name: a\n    {way.replace('F}', f'{secret}}}')}\n")
    with pytest.raises(ValueError, match=r"^ACCOUNTANT_ALERTS: ") as found:
        alerts_of(Settings(alerts=str(file)))
    assert reason in str(found.value)
    assert "private" not in str(found.value)


def test_the_example_of_the_documentation_is_read() -> None:
    """It has a channel of each way, and under ``alerts`` what holds where nothing is stated."""
    page = Path(__file__).parents[2] / "docs/how-to/get-alerts.md"
    example = page.read_text("utf-8").split("```yaml\n")[1].split("```")[0]
    found = parsed(example, AlertSettings)
    assert found.alerts == Terms()
    assert {way for one in found.channels for way in WAYS if getattr(one, way)} == set(WAYS)
    for kind in KINDS:
        assert f"| `{kind}` |" in page.read_text("utf-8")
