"""Alerts: what is worth one, that each is told once to each channel, and that it is told at all."""

from __future__ import annotations

import base64
import hmac
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from forked import SERVICE, Forked, ran
from places import File
from receiving import Receiver
from support import SECOND, Clock, World, ask, laplace

from accountant.cli.common import alerts_of
from accountant.config.alerts import AlertSettings, Channel
from accountant.config.settings import Settings
from accountant.console.facts import alerted
from accountant.console.facts.alerted import alerting
from accountant.notifying import alerting as sending
from accountant.notifying import channels, webhook
from accountant.notifying.alerting import PAUSES, Alerting, Told, Way
from accountant.notifying.channels import ways_of
from accountant.notifying.webhook import Undelivered
from accountant.reporting import desk as reporting_desk
from accountant.reporting import follower
from accountant.reporting.desk import Desk
from accountant.store.ledgers import Mute

KEY = bytes(range(32))
RULES = "  - {id: a, limit: {epsilon: 3}}\n"
DAY = 86_400


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the service, and of what it sends."""
    made = Clock()
    for module in (sending, channels):
        monkeypatch.setattr(module, "wall_clock", made)
    return made


@pytest.fixture
def made(world: Callable[..., World], clock: Clock) -> World:
    """A service with one limit, of epsilon 3."""
    return world(clock).hospital(RULES)


@pytest.fixture
def tell(made: World, receiver: Receiver, tmp_path: Path) -> Iterator[Callable[..., Alerting]]:
    """Makes what a job runs; each call is as a start of the service is."""
    secret = tmp_path / "secret"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    desks = []

    def make(at: World = made, **terms: Any) -> Alerting:
        channel = {"name": "officers", "webhook": {"url": receiver.url, "secret_file": secret}}
        settings = AlertSettings.model_validate({"alerts": terms, "channels": [channel]})
        desks.append(Desk(at.service.ledgers))
        ways = ways_of(settings, "example.org/ledger")
        service, publisher = at.service, at.publisher
        return alerting(service, publisher, desks[-1], settings, ways, "example.org/ledger")

    yield make
    for desk in desks:
        desk.close()


def said(receiver: Receiver) -> list[str]:
    """The sentences that were received, of each message once."""
    found = {headers["webhook-id"]: json.loads(body) for headers, body in receiver.got}
    return [one["data"]["sentence"] for one in found.values()]


def spend(made: World, epsilon: str) -> str:
    """Reserves an amount; the grant's id."""
    answer = made.post("/grants", ask(laplace(epsilon)))
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["id"]
    return name


def test_a_threshold_is_told_once_an_epoch(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """Whoever looks again, after a restart too, or after the use went down and up, is told nothing;
    a new limit begins a new epoch, whose thresholds are told.
    """
    job = tell()
    assert job.run() == 0
    spend(made, "1.6")
    assert (job.run(), job.run(), tell().run()) == (1, 0, 0)
    text = "fair: d has used 54 % of its limit: 1.600 spent or reserved, 3 allowed (rule a)."
    assert said(receiver) == [text]
    grant = spend(made, "1.3")
    assert job.run() == 1  # 97 %: the threshold of 80 % is covered by that of 95 %
    made.post(f"/grants/{grant}/release", {"reason": "not run"})
    spend(made, "0.9")
    assert (job.run(), len(receiver.got)) == (0, 2)
    assert made.policy("policy: p\nrules:\n  - {id: a, limit: {epsilon: 4}}\n").status_code == 200
    assert job.run() == 1
    assert said(receiver)[2].startswith("fair: d has used 63 % of its limit")


def test_a_limit_that_is_over(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """What ran over a limit is told with both numbers, and no threshold below it."""
    answer = made.post("/invocations", ask(laplace("3.25"), ran_at="2026-01-01T00:00:00Z"))
    assert answer.status_code in (200, 201), answer.text
    assert tell().run() == 1
    assert said(receiver) == [
        "fair: d is over its limit: 3.250 spent, 3 allowed (rule a).",
    ]


def test_a_message_is_a_signed_cloud_event(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """Its receiver checks the signature; it has the attributes of CloudEvents 1.0, names the page,
    and holds no free text.
    """
    made.service.console = "https://accounts.example.org/console"
    made.post("/grants", ask(laplace("2.5"), purpose="private"))
    assert tell().run() == 1
    [(headers, body)] = receiver.got
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = base64.b64encode(hmac.new(KEY, content, sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{digest}"
    assert headers["content-type"] == "application/cloudevents+json"
    event = json.loads(body)
    sentence = event["data"].pop("sentence")
    assert sentence.startswith("fair: d has used 84 % of its limit")
    assert event == {
        "specversion": "1.0",
        "id": headers["webhook-id"],
        "source": "//example.org/ledger/fair",
        "type": "accountant.alert.threshold",
        "time": event["time"],
        "datacontenttype": "application/json",
        "subject": "d",
        "data": {
            "kind": "threshold",
            "population": "fair",
            "dataset": "d",
            "rule": "a",
            "page": "https://accounts.example.org/console/fair/accounts/d",
        },
    }
    assert b"private" not in body


def test_a_proposal_waits_for_somebody(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """It is told once while it is open, and never once it was decided."""
    job = tell()
    asked = made.put("/policy", "policy: wider\nrules:\n  - {id: a, limit: {epsilon: 9}}\n")
    assert asked.status_code == 202
    assert (job.run(), job.run()) == (1, 0)
    assert "a proposal waits for a second person until" in said(receiver)[0]
    assert said(receiver)[0].endswith("Adopt the policy wider?")
    assert made.confirm(asked).status_code == 200
    assert tell().run() == 0


def test_a_key_waits_for_somebody(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """A key that takes two people is told once, with its page, whatever populations there are."""
    made.service.console = "https://accounts.example.org/console"
    made.service.credentials.create("olga", "officer", "operator:ann")
    found, _ = made.service.credentials.proposals()
    job = tell()
    assert (job.run(), job.run(), tell().run()) == (1, 0, 0)
    [(_, body)] = receiver.got
    data = json.loads(body)["data"]
    assert data["sentence"].startswith("keys: a proposal waits for a second person until ")
    assert data["sentence"].endswith("UTC: Make a key of the role officer, olga?")
    number = found[0].sequence
    assert data["page"] == f"https://accounts.example.org/console/-/proposals/{number}"


def test_a_request_waits_for_a_person(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """It is told once while somebody has to decide it, without what it is for."""
    rules = RULES + "  - {id: big, action: approve, at_most: {epsilon: 0.5}}\n"
    assert made.policy("policy: p\nrules:\n" + rules).status_code == 200
    waits = made.post("/grants", ask(laplace("0.75"), purpose="private"))
    assert waits.status_code == 202
    assert (tell().run(), tell().run()) == (1, 0)
    [text] = said(receiver)
    assert text.startswith("fair: pipeline asks for 0.750 on d, which a person decides until ")
    assert text.endswith(" UTC (rule big).")
    name = waits.json()["id"]
    made.post(f"/grants/{name}/release", {"reason": "not needed"})
    assert tell().run() == 0


def test_the_first_refusal_of_a_day(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """A day of UTC with refusals is told once, and the next one again."""
    job = tell()
    for told in (1, 0):
        assert made.post("/grants", ask(laplace(5))).status_code == 403
        assert job.run() == told
    clock.forward(DAY)
    assert job.run() == 0
    made.post("/grants", ask(laplace(5)))
    assert job.run() == 1
    assert [text.partition(" today")[0] for text in said(receiver)] == [
        "fair: 1 request was refused",
        "fair: 1 request was refused",
    ]


def test_a_grant_that_nobody_reports_on(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """After its share of the time is over, and not before, its client and its end are told."""
    name = made.post("/grants", ask(laplace(1), ttl_seconds=1_000)).json()["id"]
    job = tell(orphaned="0.9")
    clock.forward(899)
    assert job.run() == 0
    clock.forward(1)
    assert (job.run(), job.run()) == (1, 0)
    assert said(receiver)[0].startswith(
        f"fair: pipeline has not reported on 1 grant for most of their time; {name} expires on "
    )


def test_a_limit_that_runs_out_soon(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """The soonest of the dates that the pages show, if it is near enough."""
    for _ in range(3):
        name = spend(made, "0.3")
        assert made.post(f"/grants/{name}/commit", {}).status_code == 200
        clock.forward(DAY)
    assert tell(forecast_days=5).run() == 0
    assert (tell().run(), tell().run()) == (1, 0)
    assert "fair: d runs out on " in said(receiver)[0]


def test_many_at_once_are_one_message_to_people(
    made: World, receiver: Receiver, clock: Clock, tell: Callable[..., Alerting]
) -> None:
    """A chat gets one, with all sentences, the gravest first, and again the same one if it was not
    taken; what comes later is a message of its own. Programs get each alert.
    """
    for number in range(8):
        named = {"namespace": "n", "name": f"t{number}"}
        assert made.put(f"/datasets/e{number}", named).status_code == 200
        grant = ask(laplace("2"), dataset=f"e{number}")
        assert made.post("/grants", grant).status_code == 201
    assert made.post("/invocations", ask(laplace("4"))).is_success
    job, got = tell(), list[Told]()

    def taken(told: Told) -> None:
        got.append(told)
        if len(got) == 1:
            raise Undelivered("not now")

    chat = Channel.model_validate({"name": "chat", "slack": {"url_file": "x"}})
    job._ways["chat"] = Way(chat, taken)
    assert job.run() == 9  # to the program
    assert len(said(receiver)) == 9
    clock.forward(PAUSES[0])
    assert job.run() == 1
    one, again = got
    assert (one.id, one.parts) == (again.id, again.parts)
    assert one.sentence == "fair: 9 alerts at once (1 overrun, 8 threshold)."
    assert one.parts[0].startswith("fair: d is over its limit")
    assert sorted(one.parts) == sorted(said(receiver))
    assert job.run() == 0
    grant = ask(laplace("0.6"), dataset="e3")
    assert made.post("/grants", grant).status_code == 201
    assert job.run() == 2
    assert got[-1].sentence.startswith("fair: e3 has used 87 %")
    assert not got[-1].parts


def test_a_clock_in_doubt(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """It is told once, and nothing follows from the time that it shows: no grant is old by it."""
    made.post("/grants", ask(laplace(1), ttl_seconds=1_000))
    job = tell()
    assert job.run() == 0
    clock.jump(30 * DAY)
    made.post("/grants", ask(laplace(1)))
    assert (job.run(), job.run(), tell().run()) == (1, 0, 0)
    assert said(receiver)[0].startswith("The clock of the service is in doubt: it shows")


def test_an_event_that_was_changed(
    made: World, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """A hash that is not that of its event's bytes is told as a finding of the verification."""
    path = Path(made.url.removeprefix("sqlite:///"))
    File(path).tamper("UPDATE event SET leaf = x'00' WHERE ledger = 'fair' AND sequence = 1")
    assert tell().run() == 1
    assert said(receiver) == ["fair: event 1 of the ledger was changed."]


def test_a_ledger_that_cannot_be_read_hides_no_other(
    made: World, world: Callable[..., World], clock: Clock, receiver: Receiver, tell: Any
) -> None:
    """It is told that it is damaged, once a day, by a service that has begun since, too; and what
    needs somebody in the others is told as ever.
    """
    path = Path(made.url.removeprefix("sqlite:///"))
    population = {"privacy_unit": "person", "neighbouring": "replace_one", "membership": "public"}
    answer = made.http.put("/v1/populations/a", json=population, headers=made.auth("admin"))
    assert answer.status_code == 200, answer.text
    File(path).tamper("UPDATE event SET body = x'00' WHERE ledger = 'a'")
    spend(made, "1.6")
    assert tell().run() == 2
    assert sorted(said(receiver))[0].startswith("a: the ledger cannot be used")
    assert sorted(said(receiver))[1].startswith("fair: d has used 54 %")
    other = tell(world(clock))
    assert other.run() == 0
    clock.forward(DAY)
    assert other.run() >= 1
    assert sum(text.startswith("a: the ledger cannot be used") for text in said(receiver)) == 2


@pytest.mark.parametrize("status", [500, 302, 404])
def test_what_was_not_taken_comes_again(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting], status: int
) -> None:
    """After a pause, over a restart too, with the same id; a redirect is not followed. Whether the
    clock has gone back meanwhile changes nothing.
    """
    spend(made, "1.6")
    receiver.status = status
    assert (tell().run(), tell().run(), len(receiver.got)) == (0, 0, 1)
    receiver.status = 204
    clock.forward(PAUSES[0])
    assert (tell().run(), len(receiver.got), len(said(receiver))) == (1, 2, 1)
    [row] = made.service.ledgers.alerts("fair")[:1]
    assert (row.attempts, row.delivered) == (2, clock.now)


def test_a_clock_that_went_back_keeps_nothing_waiting(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """What was put off by a clock that showed next year is sent when it shows this one."""
    spend(made, "1.6")
    receiver.status = 500
    clock.jump(365 * DAY)
    tell().send_due("fair")
    tell().run()
    clock.jump(-365 * DAY)
    receiver.status = 204
    clock.forward(PAUSES[0])
    assert tell().run() >= 1
    assert any("has used 54 %" in text for text in said(receiver))


def test_a_receiver_that_hangs(
    made: World,
    receiver: Receiver,
    tell: Callable[..., Alerting],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is left after a time limit, and holds up no grant meanwhile."""
    monkeypatch.setattr(webhook, "_STEP", 0.5)
    spend(made, "1.6")
    receiver.silent.set()
    job = tell()
    running = threading.Thread(target=job.run)
    running.start()
    spend(made, "0.1")
    running.join(10)
    assert not running.is_alive()
    assert made.service.ledgers.alerts("fair")[0].delivered == 0


def test_a_receiver_that_answers_a_byte_at_a_time(
    made: World,
    receiver: Receiver,
    tell: Callable[..., Alerting],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is left after a time limit for all of it, though no step takes long."""
    monkeypatch.setattr(webhook, "_WHOLE", 0.5)
    spend(made, "1.6")
    receiver.slow = 0.1
    running = threading.Thread(target=tell().run)
    running.start()
    running.join(5)
    ended = not running.is_alive()
    receiver.end.set()
    assert ended
    assert made.service.ledgers.alerts("fair")[0].delivered == 0


def test_a_long_ledger_is_looked_at_elsewhere(
    made: World,
    receiver: Receiver,
    tell: Callable[..., Alerting],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its alerts come from a process of its own, the same as from this one."""
    monkeypatch.setattr(reporting_desk, "WORTH", 1)
    spend(made, "1.6")
    assert made.put("/policy", "policy: w\nrules:\n  - {id: a, limit: {epsilon: 9}}\n").is_success
    assert tell().run() == 2
    assert sorted(said(receiver))[1].startswith("fair: d has used 54 % of its limit")


def test_what_takes_long_to_read_is_read_to_its_end(
    made: World,
    receiver: Receiver,
    tell: Callable[..., Alerting],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A service that begins on a ledger tells at its first look; one that stops reads no more."""
    monkeypatch.setattr(follower, "_LEAST", 0.0)
    monkeypatch.setattr(reporting_desk.Desk.ask, "__defaults__", (None, 0.0))
    monkeypatch.setattr(alerted, "_REST", 0.0)
    spend(made, "1.6")
    spend(made, "0.01")  # of which a piece may be left
    stopped = tell()
    stopped.stop()
    assert stopped.run() == 0
    assert tell().run() == 1
    assert said(receiver)[0].startswith("fair: d has used 54 % of its limit")


def test_it_is_given_up_after_days(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """Pauses grow up to six hours; after three days nobody is asked any more, nor told anew."""
    spend(made, "1.6")
    receiver.status = 503
    job = tell(orphaned=1)
    job.run()
    for pause in PAUSES:
        clock.forward(pause)
        job.send_due("fair")
    assert len(receiver.got) == len(PAUSES) + 1
    assert made.service.ledgers.open_alerts("fair") == []
    clock.forward(DAY)
    job.send_due("fair")
    assert len(receiver.got) == len(PAUSES) + 1
    assert 2.5 * DAY < sum(PAUSES) < 3.5 * DAY


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_of_two_services_one_tells(
    made: World,
    world: Callable[..., World],
    clock: Clock,
    receiver: Receiver,
    tell: Any,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    """Both look and send at once; each message comes once."""
    one = made
    if kind == "postgresql":
        one = world(clock, url=request.getfixturevalue("hosted").url).hospital(RULES)
    other = world(clock, url=one.url)
    spend(other, "2.9")
    other.post("/grants", ask(laplace(5)))
    jobs, start = (tell(one), tell(other)), threading.Barrier(2)

    def run(job: Alerting) -> None:
        start.wait()
        job.run()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(receiver.got) == len(said(receiver)) == 2


def test_a_running_service_tells(
    world: Callable[..., World], receiver: Receiver, tmp_path: Path
) -> None:
    """``accountant serve`` tells by itself the channels of the file that a setting names."""
    made = world().hospital(RULES)
    secret, file = tmp_path / "secret", tmp_path / "alerts.yaml"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}")
    hook = {"url": receiver.url, "secret_file": str(secret)}
    file.write_text(json.dumps({"channels": [{"name": "officers", "webhook": hook}]}))
    spend(made, "1.6")
    environment = os.environ | {
        "ACCOUNTANT_HOME": str(made.settings.home),
        "ACCOUNTANT_DATABASE_URL": made.url,
        "ACCOUNTANT_ALERTS": str(file),
        "ACCOUNTANT_ALERT_SECONDS": "0.2",
    }
    words = (SERVICE, "serve", "--port", 0)
    with Forked(*words, environment=environment, errors=Path(os.devnull)) as process:
        assert receiver.come.wait(60)
        process.terminate()
        assert process.wait() == 0
    [text] = said(receiver)
    assert text.startswith("fair: d has used 54 % of its limit")


KILLED = """
import os, signal, sys
from accountant.config.alerts import AlertSettings
from accountant.notifying.alerting import Alert, Alerting, Way
from accountant.notifying.channels import ways_of
from accountant.runtime.service import Service
from accountant.store.opening import open_ledgers

url, config = sys.argv[1:]
settings = AlertSettings.model_validate_json(config)
[way] = ways_of(settings, "o")

def sent_and_killed(told):
    way.send(told)
    os.kill(os.getpid(), signal.SIGKILL)

service = Service(open_ledgers(url))
look = lambda rest: [("fair", [Alert("threshold", "threshold/d/a/1/50", "half is used")])]
Alerting(service, look, [Way(way.channel, sent_and_killed)], "", "o").run()
"""


def test_killed_between_sending_and_noting_it(
    made: World, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes again with the same id: at least once, and then no more."""
    secret = tmp_path / "secret"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}")
    hook = {"url": receiver.url, "secret_file": str(secret)}
    config = {"channels": [{"name": "officers", "webhook": hook}]}
    assert ran(KILLED, made.url, json.dumps(config)).code == -signal.SIGKILL
    assert len(receiver.got) == 1
    later = Clock(made.service.ledgers.open_alerts("fair")[0].due)
    monkeypatch.setattr(sending, "wall_clock", later)
    ways = ways_of(AlertSettings.model_validate(config), "o")
    job = Alerting(made.service, lambda _: [], ways, "", "o")
    assert (job.send_due("fair"), job.send_due("fair"), len(receiver.got)) == (1, 0, 2)
    assert len(said(receiver)) == 1


def test_what_is_muted_is_told_when_that_ends(
    made: World, clock: Clock, receiver: Receiver, tell: Callable[..., Alerting]
) -> None:
    """A mute is of one kind, ends by itself, and keeps back what was to be sent again too."""
    until = clock.now + 1_800 * SECOND
    mute = Mute(0, "threshold", clock.now, until, "operator:me", "the year-end run")
    with made.service.ledgers.writing("fair") as writing:
        writing.keep_mute("fair", mute)
        writing.commit()
    spend(made, "1.6")
    made.post("/grants", ask(laplace(5)))
    assert tell().run() == 1
    assert "was refused" in said(receiver)[0]
    clock.forward(1_800)
    assert tell().run() == 1
    assert "has used 54 %" in said(receiver)[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1: it is empty"),
        ("channels: []", "line 1: channels: must not be empty"),
        ("channels:\n  - {name: a}", "line 2: channels.0: a channel has one of"),
        ("channels:\n  - {name: a, webhook: {url: 'http://x.org', secret_file: s}}", "https"),
        ("channels:\n  - {name: a, webhook: {url: 'https://x.org'}}", "secret_file: is missing"),
        ("alerts: {thresholds: [0]}\nchannels:\n  - {name: a}", "line 1: alerts.thresholds.0"),
        ("chanels: []", "line 1: chanels: there is no such field"),
    ],
)
def test_a_file_that_cannot_be_meant(tmp_path: Path, text: str, reason: str) -> None:
    """The start fails with the variable, the line and what is wrong."""
    file = tmp_path / "alerts.yaml"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"^ACCOUNTANT_ALERTS: ") as found:
        alerts_of(Settings(alerts=str(file)))
    assert reason in str(found.value)


@pytest.mark.parametrize("content", [None, "whsec_short", "a secret that is none"])
def test_a_secret_that_cannot_be_used(tmp_path: Path, content: str | None) -> None:
    """The start names the channel, and does not show the secret."""
    file, secret = tmp_path / "alerts.yaml", tmp_path / "secret"
    if content is not None:
        secret.write_text(content)
    hook = {"url": "https://hooks.example.org", "secret_file": str(secret)}
    file.write_text(json.dumps({"channels": [{"name": "officers", "webhook": hook}]}))
    with pytest.raises(ValueError, match=r"^ACCOUNTANT_ALERTS: .*channel officers") as found:
        alerts_of(Settings(alerts=str(file)))
    assert content is None or content not in str(found.value)
    assert alerts_of(Settings()) is None
