"""What the report says of the ledger itself: checkpoints, alarms, recoveries, erased texts."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from report_desk import Desk, data_of, limit_of
from sqlalchemy import insert
from support import by_two, laplace, make

from accountant import jobs
from accountant.budget.apply import follow
from accountant.budget.commands import (
    AcceptTime,
    CarryOver,
    Envelope,
    Recover,
    ResumePublication,
    StopPublication,
)
from accountant.budget.facts import grant_in
from accountant.budget.state import AccountKey, State
from accountant.ledger import notes
from accountant.ledger.events import Event, rfc3339
from accountant.ledger.merkle import leaf_hash
from accountant.ledger.notes import COSIGNATURE, Signer
from accountant.publishing.publisher import Publisher
from accountant.reporting.files import FORMATS, report_of
from accountant.reporting.history import History
from accountant.reporting.model import build_report
from accountant.reporting.page import to_html
from accountant.reporting.schema import NotableFacts, Report
from accountant.reporting.texts import ALTERED, ERASED, SEALED
from accountant.reporting.verdict import lost
from accountant.store.tables import TEXT

WITNESS = "witness.example.org"


def text_of(report: Report) -> str:
    """The page without its tags."""
    page = re.sub(r"<style>.*?</style>", "", to_html(report), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", page)).split())


def alarm(desk: Desk) -> None:
    """A witness contradicts the ledger."""
    said = StopPublication(witness=WITNESS, status=409, detail="41", size=3)
    desk.service.execute("clinic", Envelope(":accountant", said))


def listed(report: Report, sort: str) -> list[NotableFacts]:
    """What stood out in a way."""
    [seen] = [seen for seen in report.notable if seen.sort == sort]
    return seen.latest


def test_the_last_published_checkpoint_is_shown(desk: Desk, publisher: Publisher) -> None:
    """Origin, size and key of the checkpoint are there, and that the events continue it."""
    desk.hospital()
    assert "None is known to this report." in text_of(desk.report())
    signed = publisher.publish("clinic")
    assert signed is not None
    desk.record(laplace("0.5"))
    report = report_of(desk.ledgers, "clinic", signed)
    facts = report.ledger.checkpoint
    assert facts is not None
    state = desk.service.state("clinic")
    assert state.custody.key is not None
    assert state.custody.key.text.split("+")[:2] == [facts.origin, facts.key]
    assert (facts.size, facts.continued, report.verdict.level) == (5, True, "good")
    assert (facts.witnesses, facts.cosigned, facts.required) == (0, 0, 0)
    text = text_of(report)
    assert "of 5 events, 1 fewer than now, signed as example.org/clinic with" in text
    assert "The policy names none" in text


def test_confirmations_are_counted(desk: Desk, publisher: Publisher) -> None:
    """The report says how many of the policy's witnesses have confirmed, and how many had to."""
    signers = [Signer.new(f"w{i}.example.org", COSIGNATURE) for i in range(3)]
    named = ", ".join(f'{{url: "http://w", key: "{s.verifier}"}}' for s in signers[:2])
    desk.population()
    desk.dataset("d")
    rules = "  - {id: a, limit: {epsilon: 1}}\n"
    desk.policy(f"{rules}publication:\n  required: 1\n  witnesses: [{named}]\n")
    signed = publisher.sign("clinic")
    assert publisher.last_published("clinic") is None
    with desk.ledgers.writing("clinic") as writing:
        for signer in signers[1:]:  # the third is none of the policy's
            line = signer.line(notes.parse(signed.note).text, 1)
            writing.keep_cosignature("clinic", signed.number, signer.name, line)
        writing.commit()
    published = publisher.last_published("clinic")
    assert "1 of 2 have confirmed this checkpoint, 1 had to." in text_of(
        report_of(desk.ledgers, "clinic", published)
    )


@pytest.mark.parametrize("change", ["other", "shorter"])
def test_a_ledger_that_does_not_continue_its_checkpoint_is_named(
    desk: Desk, publisher: Publisher, tmp_path: Path, change: str
) -> None:
    """Events that are not those that were signed are the first thing on the page."""
    desk.hospital()
    desk.record(laplace("0.5"), purpose="x")
    signed = publisher.publish("clinic")
    assert signed is not None
    stored = desk.stored()
    if change == "other":  # as whoever rewrites a database would: the leaf fits the body
        body = stored[4].body.replace(b'"scale":"1"', b'"scale":"2"')
        stored[4] = stored[4]._replace(body=body, leaf=leaf_hash(body))
    report = build_report("clinic", stored if change == "other" else stored[:5], None, signed)
    assert report.ledger.broken_at is None
    assert report.verdict.level == "bad"
    assert report.verdict.headline == (
        "The ledger is not the one that was published. By its numbers: the dataset is within its "
        "limit."
    )
    assert "first 6 events are not those that were signed" in report.verdict.points[0]
    assert "The events of this report are not those that were signed." in text_of(report)


def test_an_alarm_is_red_until_somebody_has_looked(desk: Desk) -> None:
    """While a witness contradicts the ledger the verdict says so first; then why it went on."""
    desk.hospital()
    alarm(desk)
    report = desk.report()
    assert report.verdict.level == "bad"
    assert report.verdict.headline.startswith("A witness contradicts this ledger.")
    assert f"The witness {WITNESS} was shown the ledger" in report.verdict.points[0]
    text = text_of(report)
    assert "Alarm: publication is stopped Since event 4" in text
    assert "had confirmed a longer ledger" in text
    said = ResumePublication(reason="the witness had lost its database")
    desk.service.execute("clinic", Envelope("operator:ann", said))
    report = desk.report()
    assert (report.verdict.level, report.ledger.alarm, report.ledger.alarms) == ("good", None, 1)
    [ended] = report.ledger.resumed
    assert (ended.by, ended.alarm, ended.sequence) == ("operator:ann", 4, 5)
    assert "Alarms that were ended" in (text := text_of(report))
    assert "the witness had lost its database" in text
    assert "Alarm: publication is stopped" not in text


def test_an_accepted_clock_is_listed(desk: Desk) -> None:
    """With what it showed, where the ledger's time had stood, who vouched for it, and why."""
    desk.hospital()
    before = rfc3339(desk.clock.now)
    desk.clock.jump(3_600)
    said = AcceptTime(clock=rfc3339(desk.clock.now), reason="the machine was off")
    by_two(desk.service, "clinic", Envelope("operator:ann", said), "operator:bob")
    report = desk.report()
    [accepted] = report.ledger.accepted
    assert (accepted.by, accepted.confirmed_by) == ("operator:ann", "operator:bob")
    assert (accepted.before, accepted.clock) == (before, said.clock)
    assert "the machine was off" in text_of(report)


def test_an_alarm_is_told_where_nothing_is_registered_yet(desk: Desk) -> None:
    """A ledger without any dataset can be doubted too."""
    desk.population()
    alarm(desk)
    assert desk.report().verdict.level == "bad"


def test_a_recovery_is_told_in_plain_words(desk: Desk, publisher: Publisher) -> None:
    """How many signed events were lost, why, and that what was signed as spent stays spent; open
    grants are charged.
    """
    desk.hospital()
    held = grant_in(desk.grant(laplace("0.25"), purpose="ops"))
    signed = publisher.sign("clinic")
    text = f"{signed.note.decode()}".replace("\n6\n", "\n10\n")  # four more were signed
    gone = signed._replace(note=text.encode())
    key = AccountKey("", 0, "d")._asdict() | {"used": {"delta": "0", "epsilon": "700000000"}}
    accounts = CarryOver.model_validate({"accounts": [key]})
    desk.service.execute("clinic", Envelope("operator:ann", accounts))
    asked = Recover(reason="the disk failed", lost=[gone.note.decode()])
    by_two(desk.service, "clinic", Envelope("operator:ann", asked), "operator:ben")
    report = desk.report()
    assert report.ledger.recovered == 1
    [one] = report.ledger.recoveries
    assert (one.sequence, one.left, one.charged, one.carried) == (8, 6, 1, 1)
    assert (one.by, one.reason, one.lost[0].size) == ("operator:ann", "the disk failed", 10)
    assert one.confirmed_by == "operator:ben"
    assert report.verdict.level == "watch"
    assert report.verdict.points[0] == (
        "The ledger was recovered at event 8: 4 of 10 signed events were lost. All that was signed "
        "as spent still counts."
    )
    assert report.lifetimes[0].epsilon == "0.7"
    [expired] = listed(report, "expired")
    assert (expired.epsilon, expired.purpose) == ("0.25", "ops")
    assert held in expired.text
    assert data_of(report).reservations.open == 0
    assert limit_of(report).total.reserved == "0"
    text = text_of(report)
    assert "Everything that was signed as spent, in 1 account." in text
    assert "1 open reservation was charged in full" in text


def test_a_lost_key_is_no_lost_event(desk: Desk) -> None:
    """Where only the signing key is gone, nothing is said of events."""
    desk.hospital()
    asked = Envelope("operator:ann", Recover(reason="stolen laptop", lost=[]))
    by_two(desk.service, "clinic", asked)
    report = desk.report()
    assert lost(report.ledger.recoveries[0]) == "its signing key was lost"
    assert "still counts" not in report.verdict.points[0]
    assert "Nothing had to be booked again." in text_of(report)


def erase(desk: Desk, event: int, *fields: str) -> None:
    """Erases texts."""
    desk.service.erase("clinic", "operator:ann", event, list(fields) or None, "asked to forget")


def test_texts_are_shown_until_they_are_erased(desk: Desk) -> None:
    """Purposes and reasons appear as they were written; an erased one says that it is gone, and
    every number stays.
    """
    desk.hospital()
    first = desk.grant(laplace("0.25"), purpose="about Mrs X", justification="j")
    second = desk.grant(laplace("0.125"), purpose="ops")
    desk.do("release_grant", grant=grant_in(second), reason="Mr Y said no")
    before = desk.report()
    assert [row.name for row in data_of(before).by_purpose] == ["about Mrs X", "ops"]
    assert [r.purpose for r in data_of(before).reservations.listed] == ["about Mrs X"]
    assert "Mr Y said no" in listed(before, "given_back")[0].text
    erase(desk, first.sequence)
    erase(desk, 6, "reason")
    after = desk.report()
    assert [row.name for row in data_of(after).by_purpose] == [ERASED, "ops"]
    assert [r.purpose for r in data_of(after).reservations.listed] == [ERASED]
    assert f"(“{ERASED}”)" in listed(after, "given_back")[0].text
    assert (after.limits, after.ledger.erasures) == (before.limits, 2)
    text = text_of(after)
    assert "2 erasures." in text
    assert "Mrs X" not in text
    assert "Mr Y" not in text


def test_events_alone_make_a_report(desk: Desk) -> None:
    """Without the texts a report says where one is sealed; what the policy lists is in clear."""
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n  - {id: p, purposes: [ops], action: flag}\n")
    desk.grant(laplace("0.25"), purpose="ops")
    desk.grant(laplace("0.125"), purpose="something else")
    desk.grant(laplace("0.125"))
    report = build_report("clinic", desk.stored())
    assert {row.name for row in data_of(report).by_purpose} == {"ops", SEALED, ""}
    assert "something else" not in text_of(report)


def test_a_text_that_was_changed_is_not_believed(desk: Desk) -> None:
    """What stands beside the ledger is shown only if it is what the event has sealed."""
    desk.hospital()
    event = desk.grant(laplace("0.25"), purpose="the truth")
    with desk.ledgers.writing("clinic") as writing:
        [kept] = writing.texts("clinic", event.sequence, event.sequence)
        writing.erase_texts("clinic", event.sequence, ["purpose"])
        lie = {"ledger": "clinic"} | kept._replace(text="a lie")._asdict()
        writing.lock().connection.execute(insert(TEXT), [lie])
        writing.commit()
    assert [row.name for row in data_of(desk.report()).by_purpose] == [ALTERED]


def test_a_dimension_may_have_any_name(desk: Desk) -> None:
    """A group over a dimension called "sealed" is no sealed text."""
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n", {"sealed": ["x"], "purpose": ["y"]})
    desk.grant(laplace("0.25"), subjects={"sealed": ["x"]}, purpose="ops")
    desk.grant(laplace("0.25"), subjects={"purpose": ["y"]})
    listed = data_of(desk.report()).reservations.listed
    assert {r.subjects for r in listed} == {"sealed: x", "purpose: y"}
    assert {r.purpose for r in listed} == {"ops", ""}


def test_only_open_grants_are_held_on_to(desk: Desk) -> None:
    """What a report remembers of grants goes when they are settled, whatever way."""
    desk.hospital("  - {id: a, limit: {epsilon: 10}}\n")
    names = [grant_in(desk.grant(laplace("0.25"), ttl_seconds=60)) for _ in range(4)]
    desk.do("commit_grant", grant=names[0])
    desk.do("release_grant", grant=names[1], reason="x")
    state, history = State("clinic"), History()
    for row in desk.stored():
        follow(state, row.body)
        history.add(state, Event.from_bytes(row.body))
    assert {one.grant.id for one in history.held} == set(state.open) == set(names[2:])
    desk.forward(61)
    desk.service.expire_due()
    assert [len(listed(desk.report(), sort)) for sort in ("expired", "given_back")] == [2, 1]


def test_a_corrected_charge_is_told(desk: Desk) -> None:
    """What a corrected bound adds is booked to whom it belongs, and listed."""
    desk.hospital()
    event = desk.record(laplace("0.25"))
    fields = {"event": event.sequence, "by": "pipe", "dataset": "d", "reason": "too small a bound"}
    booked = {"epsilon": "250000000", "delta": "0"}
    command = make("revalue", mechanisms=[laplace("0.375")], booked=booked, **fields)
    desk.service.execute("clinic", Envelope("operator:ann", command))
    report = desk.report()
    [found] = listed(report, "revalued")
    assert (found.client, found.epsilon, found.subjects) == ("pipe", "0.125", "everyone")
    assert "too small a bound" in found.text
    assert [(row.name, row.epsilon) for row in data_of(report).by_client] == [("pipe", "0.375")]
    assert [(row.name, row.epsilon) for row in data_of(report).by_kind] == [("laplace", "0.375")]
    assert report.series[0].points[-1].spent == limit_of(report).total.spent == "0.375"
    assert "Charged more afterwards: a bound was corrected: 1" in text_of(report)


def test_the_service_writes_its_reports(desk: Desk, publisher: Publisher, tmp_path: Path) -> None:
    """The job leaves every population's report in all formats, with texts and checkpoint."""
    desk.hospital()
    desk.grant(laplace("0.25"), purpose="ops")
    publisher.publish("clinic")
    jobs.report(desk.service, publisher, tmp_path / "reports", desk.answers)
    assert {path.name for path in (tmp_path / "reports").iterdir()} == {
        f"clinic.{form}" for form in FORMATS
    }
    shown = json.loads((tmp_path / "reports" / "clinic.json").read_text())
    assert shown["ledger"]["checkpoint"]["size"] == shown["ledger"]["events"] == 6
    assert shown["datasets"][0]["by_purpose"][0]["name"] == "ops"
