"""Reports of a period: what they say, the same bytes, no markup of what others wrote."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pypdf
import pytest
from report_desk import DAY, Desk
from support import NON_PRIVATE, SECOND, START, gaussian, laplace

from accountant.budget.errors import Invalid
from accountant.publishing.publisher import Publisher
from accountant.reporting import desk as answering
from accountant.reporting import numbers
from accountant.reporting.making import About, period_report
from accountant.reporting.periods import collecting, people, service_keys, told
from accountant.reporting.periods.making import FORMATS, KINDS, AskedReport, document_of, facts_of
from accountant.reporting.periods.officer import OfficerFacts
from accountant.reporting.periods.people import PeopleFacts
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.rendering import written

FIRST = datetime.fromtimestamp(START / SECOND, UTC).date()
HOSTILE = "<script>alert(1)</script> #set page(fill: red) =1+1 \u202egnp.exe &amp; “q”"


def _days(first: int, last: int) -> Period:
    return Period(FIRST + timedelta(days=first), FIRST + timedelta(days=last))


def _asked(desk: Desk, kind: str, period: Period) -> AskedReport:
    return AskedReport.of(kind, period, "d" if kind == "statement" else None, desk.clock())


def _officer(desk: Desk, period: Period) -> OfficerFacts:
    found = facts_of(desk.ledgers, desk.name, _asked(desk, "officer", period))
    assert isinstance(found, OfficerFacts)
    return found


@pytest.fixture
def clinic(desk: Desk) -> Desk:
    """Three days: a grant, a record and a policy; a refusal; an overrun and an expiry."""
    desk.hospital(dimensions={"sex": ["f", "m"]})
    desk.grant(laplace("0.2"), purpose=HOSTILE, ttl_seconds=10**5)
    desk.record(laplace("0.1"), subjects={"sex": ["f"]}, by="careless")
    desk.forward(DAY)
    desk.policy("  - {id: a, limit: {epsilon: 2}}\n")
    desk.grant(laplace("5"), by="greedy")
    desk.forward(DAY)
    desk.record(laplace("3"), by="careless", purpose="late")
    desk.service.expire_due()
    desk.forward(5 * DAY)
    return desk


def test_an_officer_reads_what_happened_in_the_period_only(clinic: Desk) -> None:
    """What came before is in the opening, what came later in nothing; refusals, overruns, decisions
    and clients are those of the days that were asked for.
    """
    second, third = _officer(clinic, _days(1, 1)), _officer(clinic, _days(2, 2))
    [account] = second.accounts
    assert (account.opening, account.spent, account.reserved) == ("0.1", "0.1", "0.2")
    assert account.restarted
    assert second.requests == {"refused": 1}
    assert second.refused_by == {"a": 1}
    assert [(one.by, one.confirmed_by) for one in second.decided] == [
        ("admin", None),
        ("admin", "officer"),
    ]
    [account] = third.accounts
    assert (account.opening, account.spent, account.change) == ("0.1", "3.3", "3.2")
    assert third.requests == {"expired": 1, "recorded": 1}
    assert [(one.client, one.recorded) for one in third.clients] == [("careless", 1)]
    assert {one.sort: one.total for one in third.seen if one.total} == {"overrun": 1, "expired": 1}


def test_an_officer_reads_whom_a_late_ancestor_was_charged_with(desk: Desk) -> None:
    """A registration that charges is among what people decided, with whose use it charged."""
    desk.hospital()
    desk.dataset("e", parents=["n/x"])
    desk.record(laplace("0.2"), dataset="e")
    desk.dataset("x")
    told = _officer(desk, _days(0, 0)).decided[-1].what
    assert told == "registered the dataset x; this charged x with what had been used of e"


def test_it_opens_with_what_to_do_now(clinic: Desk) -> None:
    """The gravest first: an account that is over, then what is to be asked of clients."""
    third = _officer(clinic, _days(2, 2))
    assert third.todo[0].startswith("d is over its limit: 3.300 spent, 2 allowed by rule a")
    assert any("expired without a report" in one for one in third.todo)
    page = written(third, "html").decode()
    assert page.index("What to do now") < page.index("Accounts")
    assert _officer(clinic, _days(0, 0)).todo == ()


def test_its_first_sentence_counts_in_plain_words(desk: Desk) -> None:
    """None, one and several requests, of which none, one and several were refused."""
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n")
    for epsilon, said in (
        (None, "No request came to a decision."),
        ("0.25", "1 request came to a decision: it was not refused."),
        ("0.5", "2 requests came to a decision, none was refused."),
        ("0.75", "3 requests came to a decision, 1 of them was refused."),
        ("0.75", "4 requests came to a decision, 2 of them were refused."),
    ):
        if epsilon is not None:
            desk.grant(laplace(epsilon))
        lede = told.officer_told(_officer(desk, _days(0, 0))).lede
        assert lede == f"No account is over its limit. {said}"
    statement = facts_of(desk.ledgers, desk.name, _asked(desk, "statement", _days(0, 0)))
    assert document_of(statement).lede.startswith(
        f"2 movements on {numbers.day(FIRST.isoformat())}; "
    )


def test_what_is_reserved_and_what_a_verification_found_are_told(desk: Desk) -> None:
    """An account that is near its limit by what is reserved says so; findings of a verification
    stand until whoever recorded them has none.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 1}}\n")
    desk.record(laplace("0.1"))
    desk.grant(laplace("0.85"))
    said = {"size": 4, "root": "0" * 64, "decided": True}
    desk.do("state_verification", "ada", **said, findings=2)
    first, second = _officer(desk, _days(0, 0)).todo
    assert first.startswith("ada verified the first 4 events and recorded 2 findings (event 6).")
    assert second.startswith("d is near its limit: 0.100 of 1 is spent and 0.850 reserved (rule a)")
    desk.do("state_verification", "olive", **said, findings=1)
    desk.do("state_verification", "ada", **said, findings=0)
    assert [one.split()[0] for one in _officer(desk, _days(0, 0)).todo] == ["olive", "d"]


def test_refused_training_is_not_said_to_have_no_bound(desk: Desk) -> None:
    """A refused step that a Renyi divergence bounds has no epsilon by itself; what nothing bounds
    has no bound.
    """
    desk.hospital("  - {id: a, limit: {epsilon: 1, delta: 1e-6}}\n")
    desk.grant(gaussian("1"))
    page = written(_officer(desk, _days(0, 0)), "html").decode()
    assert "none by itself" in page
    assert "no bound" not in page
    desk.grant(NON_PRIVATE)
    assert "no bound" in written(_officer(desk, _days(0, 0)), "html").decode()


def test_it_says_how_much_of_it_is_left_out(clinic: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that are not printed, how many the other formats have; of limits that are not told by
    group, that they are not.
    """
    clinic.policy("  - {id: a, limit: {epsilon: 2}}\n  - {id: b, limit: {epsilon: 9}}\n")
    for number in range(3):
        clinic.service.credentials.create(f"k{number}", "pipeline", "admin")
    for module, name, most in (
        (told, "MOST_ROWS", 1),
        (people, "MOST_GROUPS", 1),
        (people, "MOST_LIMITS", 1),
        (service_keys, "MOST", 2),
        (collecting, "MOST_CHANGES", 2),
    ):
        monkeypatch.setattr(module, name, most)
    period = _days(0, 7)
    page = written(_officer(clinic, period), "html").decode()
    keys = _officer(clinic, period)
    assert (len(keys.keys), keys.keys_total) == (2, 3)
    assert f"{keys.decided_total - 1:,} more rows of {keys.decided_total}" in page
    assert "the CSV and JSON reports have 2." in page
    assert "1 more row of 3: the CSV and JSON reports have 2." in page
    groups = facts_of(clinic.ledgers, clinic.name, _asked(clinic, "population", period))
    page = written(groups, "html").decode()

    assert "1 more row of 2: the CSV and JSON reports have 1." in page
    assert "1 limit is not told by group, of 2" in page


def test_a_period_that_is_over_does_not_change(clinic: Desk) -> None:
    """Whatever comes later: every kind, in every format, byte by byte. That of a period which runs
    says that it is not over.
    """
    period = _days(1, 2)
    before = _all(clinic, period)
    clinic.record(laplace("1"))
    clinic.policy("  - {id: b, limit: {epsilon: 9}}\n")
    assert _all(clinic, period) == before
    assert _officer(clinic, period).head.finished
    running = _officer(clinic, _days(1, 30))
    assert not running.head.finished
    assert "The period is not over" in written(running, "html").decode()


def _all(desk: Desk, period: Period) -> dict[str, bytes]:
    found = {kind: facts_of(desk.ledgers, desk.name, _asked(desk, kind, period)) for kind in KINDS}
    return {
        f"{kind}.{form}": written(facts, form) for kind, facts in found.items() for form in FORMATS
    }


_ELSEWHERE = """
import sys, hashlib
from datetime import date
from accountant.reporting.periods.making import AskedReport, facts_of
from accountant.reporting.periods.period import Period
from accountant.reporting.periods.rendering import written
from accountant.store.opening import open_ledgers
url, first, last, now = sys.argv[1:]
period = Period.of_days(first, last)
ledgers = open_ledgers(url)
for kind in ("officer", "statement", "population"):
    asked = AskedReport.of(kind, period, "d" if kind == "statement" else None, int(now))
    facts = facts_of(ledgers, "clinic", asked)
    for form in ("html", "pdf", "csv", "json"):
        print(hashlib.sha256(written(facts, form)).hexdigest())
"""


def test_the_same_events_give_the_same_bytes(clinic: Desk) -> None:
    """In other processes, time zones and languages, with other hash seeds, every format."""
    period = _days(0, 2)
    asked = [clinic.ledgers.url, period.first.isoformat(), period.last.isoformat()]
    found = set()
    for zone, seed, language in (("Asia/Tokyo", "1", "C"), ("America/Lima", "2", "C.UTF-8")):
        env = os.environ | {"TZ": zone, "PYTHONHASHSEED": seed, "LC_ALL": language}
        done = subprocess.run(
            [sys.executable, "-c", _ELSEWHERE, *asked, str(clinic.clock())],
            env=env | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


class _Reader(HTMLParser):
    """Collects elements and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_what_clients_wrote_is_text(clinic: Desk) -> None:
    """In HTML and in PDF: no markup of either, no change of direction; in CSV it is no formula."""
    clinic.grant(laplace("9"), purpose=HOSTILE)
    period = _days(0, 30)
    reader = _Reader()
    statement = facts_of(clinic.ledgers, clinic.name, _asked(clinic, "statement", period))
    reader.feed(written(statement, "html").decode())
    shown = HOSTILE.replace("\u202e", "\ufffd")
    assert "script" not in reader.elements
    assert shown in reader.text
    officer = _officer(clinic, period)
    text = _text_of(written(officer, "pdf"))
    assert "#set page(fill: red)" in " ".join(text.split())
    assert "\ufffdgnp.exe" in text
    for facts in (statement, officer):
        for row in csv.reader(io.StringIO(written(facts, "csv").decode())):
            assert not any(cell.startswith(("=", "@")) for cell in row)


def _text_of(data: bytes) -> str:
    return "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages)


def test_a_pdf_can_be_searched_and_read_aloud(clinic: Desk) -> None:
    """It has a title, a language, tags, its fonts, and the date of the period's last day."""
    pdf = pypdf.PdfReader(io.BytesIO(written(_officer(clinic, _days(2, 2)), "pdf")))
    assert pdf.metadata is not None
    assert pdf.metadata.title == "Privacy report of clinic"
    assert pdf.metadata.creation_date == datetime.combine(
        _days(2, 2).last, datetime.min.time(), UTC
    )
    root: Any = pdf.trailer["/Root"]
    assert root["/Lang"] == "en"
    assert root["/MarkInfo"]["/Marked"]
    assert "d is over its limit" in pdf.pages[0].extract_text()


def test_a_pdf_has_no_code_points_for_marks_of_our_own(clinic: Desk) -> None:
    """What no font has is drawn as what looks like it, in the cells of a table too."""
    text = _text_of(written(_officer(clinic, _days(2, 2)), "pdf"))
    assert "✗ over the limit" in text
    assert "U+" not in text


def test_there_is_room_to_sign(clinic: Desk) -> None:
    """Each column that is left empty for people is at least 35 mm wide."""
    pdf = pypdf.PdfReader(io.BytesIO(written(_officer(clinic, _days(2, 2)), "pdf")))
    found: dict[str, float] = {}

    def note(text: str, place: list[float], *_: Any) -> None:
        found[text.strip()] = place[4]

    pdf.pages[-1].extract_text(visitor_text=note)
    left = [found[name] for name in ("Name", "Date", "Signature")]
    points = [right - left for left, right in itertools.pairwise([*left, 595 - 45])]
    assert min(points) > 35 / 25.4 * 72, found


def test_writing_that_no_font_of_the_pdf_has_is_told_by_code_points(desk: Desk) -> None:
    """Nothing is lost, and a line says where it can be read; Greek, Hebrew and others are set."""
    desk.hospital(dimensions={"place": ["한국", "ἄλφα", "א"]})
    desk.record(laplace("0.5"))
    facts = facts_of(desk.ledgers, desk.name, _asked(desk, "population", _days(0, 0)))
    text = _text_of(written(facts, "pdf"))
    assert "[U+D55C][U+AD6D]" in text.replace("\u200b", "").replace("\n", "")
    assert "written by their code points" in " ".join(text.split())
    assert "ἄλφα" in text
    assert "한국" in written(facts, "html").decode()


def test_a_page_stands_alone(clinic: Desk) -> None:
    """It loads nothing and runs nothing; its tables have names and headers, also on a phone."""
    for kind in KINDS:
        facts = facts_of(clinic.ledgers, clinic.name, _asked(clinic, kind, _days(0, 2)))
        page = written(facts, "html").decode()
        assert not any(part in page for part in ("http:", "https:", "src=", "<script", "@import"))
        assert "default-src 'none'" in page
        assert page.count("<h1>") == 1
        assert page.count("<table") == page.count("<thead") == page.count('role="table"')


def test_a_population_has_each_group_before_and_after(clinic: Desk) -> None:
    """Over all datasets, and under each limit with what is left."""
    found = facts_of(clinic.ledgers, clinic.name, _asked(clinic, "population", _days(1, 2)))
    assert isinstance(found, PeopleFacts)
    [lifetime], [limit] = found.lifetime, found.limits
    assert {one.group: (one.opening, one.closing) for one in lifetime.groups} == {
        "f": ("0.3", "3.3"),
        "m": ("0.2", "3.2"),
    }
    assert [(one.group, one.closing, one.remaining) for one in limit.dimensions[0].groups] == [
        ("f", "3.3", "0"),
        ("m", "3.2", "0"),
    ]


def test_an_empty_ledger_and_an_empty_period_have_reports(desk: Desk) -> None:
    """Every kind but a statement, which needs a dataset; losses without a bound are told so."""
    desk.population()
    desk.forward(2 * DAY)
    for period in (_days(1, 1), Period(date(2020, 1, 1), date(2020, 1, 31))):
        for kind in ("officer", "population"):
            facts = facts_of(desk.ledgers, desk.name, _asked(desk, kind, period))
            assert all(written(facts, form) for form in FORMATS)
    desk.dataset("d")
    desk.policy("  - {id: a, limit: {epsilon: 1}}\n")
    desk.record(NON_PRIVATE)
    [account] = _officer(desk, _days(2, 2)).accounts
    assert (account.spent, account.change) == ("infinite", None)
    assert all(_all(desk, _days(2, 2)).values())


def test_the_earliest_checkpoint_that_covers_the_events_is_named(
    desk: Desk, publisher: Publisher
) -> None:
    """Later ones do not change a report; with fewer events than the period has there is none."""
    desk.hospital()
    sizes = []
    for _ in range(4):
        desk.record(laplace("0.01"))
        desk.forward(DAY)
        publisher.publish(desk.name)
        sizes.append(desk.service.head(desk.name).size)
    desk.record(laplace("0.01"))
    published = publisher.last_published(desk.name)
    for day, size in enumerate(sizes):
        asked = _asked(desk, "officer", _days(day, day))
        head = facts_of(desk.ledgers, desk.name, asked, published).head
        assert head.checkpoint is not None
        assert head.checkpoint.size >= head.events
        assert head.checkpoint.size <= size + 1
    last = facts_of(desk.ledgers, desk.name, _asked(desk, "officer", _days(4, 4)), published).head
    assert last.checkpoint is None


def test_keys_of_the_period_are_named(desk: Desk) -> None:
    """Those that were made and revoked in it, with who did."""
    desk.hospital()
    desk.service.credentials.create("early", "auditor", "admin")
    desk.forward(DAY)
    desk.service.credentials.create("late", "pipeline", "admin")
    desk.service.credentials.revoke("early", "admin")
    found = _officer(desk, _days(1, 1)).keys
    assert [(one.what, one.name) for one in found] == [
        ("key made", "late"),
        ("key revoked", "early"),
    ]


def test_another_process_makes_the_same_report(
    clinic: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a long ledger, to the byte; its problems are the same, too."""
    asked, about = _asked(clinic, "statement", _days(0, 2)), About(clinic.name, None)
    here = period_report(clinic.answers, clinic.service, about, asked, "json")
    wrong = asked._replace(dataset="nothing")
    monkeypatch.setattr(answering, "WORTH", 5)
    assert period_report(clinic.answers, clinic.service, about, asked, "json") == here
    assert (
        json.loads(here.data)["head"] | {"kind": "statement", "events": here.events}
        == (json.loads(here.data)["head"])
    )
    with pytest.raises(Invalid, match="nothing"):
        period_report(clinic.answers, clinic.service, about, wrong, "json")


def _periods() -> Iterator[tuple[tuple[str | None, str | None, str | None], str]]:
    yield (None, None, None), "name a month"
    yield ("2026-13", None, None), "no month"
    yield ("2026-10", "2026-10-01", None), "not both"
    yield (None, "2026-10-05", "2026-10-04"), "before it begins"
    yield (None, "1026-10-05", "2026-10-04"), "at most"
    yield (None, "2026-02-30", None), "no days"
    yield ("2099-01", None, None), "today is"


@pytest.mark.parametrize(("asked", "said"), list(_periods()))
def test_a_period_that_is_none_is_told(asked: Any, said: str) -> None:
    """Each mistake says what to write."""
    with pytest.raises(Invalid, match=said):
        Period.asked(*asked, now=START)


def test_a_month_is_its_days() -> None:
    """From the first to the last, with a name of its own."""
    found = Period.of_month("2028-02")
    assert (found.first, found.last) == (date(2028, 2, 1), date(2028, 2, 29))
    assert found.name == "2028-02"
    assert Period.of_days("2028-02-01", "2028-02-28").name == "2028-02-01_2028-02-28"
    assert found.end - found.start == 29 * DAY * SECOND
