"""Reports that are made while somebody waits: how far they are, and for how long they are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from report_desk import Desk
from support import laplace

from accountant.budget.errors import Invalid, Unavailable
from accountant.reporting import desk as answering
from accountant.reporting import under_way
from accountant.reporting.making import About, Made, period_report
from accountant.reporting.periods.making import AskedReport, events_read
from accountant.reporting.periods.period import Period
from accountant.reporting.progress import Progress
from accountant.reporting.under_way import Making, UnderWay, Wanted

SLOW = 5.0
"""Seconds that a test waits for what surely comes."""


@pytest.fixture
def filled(desk: Desk) -> Desk:
    """A ledger with a text that can be erased."""
    desk.hospital()
    desk.do("ask_grant", dataset="d", mechanisms=[laplace("0.1")], purpose="wages")
    return desk


class Writer:
    """Makes a report when it is let: reads 300 events of 1,000, waits, reads the others."""

    def __init__(self) -> None:
        self.goes_on, self.made = Event(), 0

    def __call__(self, progress: Progress) -> str:
        """A report with its number."""
        self.made += 1
        progress(300)
        assert self.goes_on.wait(SLOW)
        progress(700)
        return f"report {self.made}"

    def wanted(self, desk: Desk, who: str = "olive") -> Wanted[str]:
        """What somebody waits for."""
        return Wanted(who, desk.name, lambda: 1_000, self)


def test_who_waits_is_told_how_far_it_is_and_gets_it_once(filled: Desk) -> None:
    """It is made once, however often they ask, until it is handed out; then it is made anew."""
    reports, writer = UnderWay(filled.ledgers), Writer()
    wanted = writer.wanted(filled)
    assert reports.ask(wanted, 0.05) == Making(300, 1_000)
    writer.goes_on.set()
    assert reports.ask(wanted, SLOW) == reports.ask(wanted, 0) == "report 1"
    reports.take(wanted.key)
    assert reports.ask(wanted, SLOW) == "report 2"


def test_a_report_is_not_kept_beyond_an_erasure(filled: Desk) -> None:
    """Other events leave it as it was made; a text that is erased may be in it."""
    reports, writer = UnderWay(filled.ledgers), Writer()
    writer.goes_on.set()
    wanted, last = writer.wanted(filled), filled.service.head(filled.name).size - 1
    assert reports.ask(wanted, SLOW) == "report 1"
    filled.record(laplace("0.1"))
    assert reports.ask(wanted, SLOW) == "report 1"
    filled.service.erase(filled.name, "officer", last, ["purpose"], "asked to")
    assert reports.ask(wanted, SLOW) == "report 2"


def test_what_keeps_a_report_from_being_made_is_told(
    filled: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To whoever waits, each time, and it is tried again; so is that too many are being made."""
    reports, tries = UnderWay(filled.ledgers), list[int]()

    def fails(_: Progress) -> Any:
        tries.append(1)
        raise Invalid("unknown-dataset", "there is no such dataset")

    wanted: Wanted[Any] = Wanted("olive", filled.name, lambda: 1, fails)
    for _ in range(2):
        with pytest.raises(Invalid, match="no such dataset"):
            reports.ask(wanted, SLOW)
    assert len(tries) == 2
    monkeypatch.setattr(under_way, "MOST", 1)
    writer = Writer()
    reports.ask(writer.wanted(filled, "ada"), 0)
    with pytest.raises(Unavailable, match="1 reports are being made"):
        reports.ask(wanted, SLOW)
    writer.goes_on.set()


@pytest.mark.parametrize("near", [True, False], ids=["here", "by-another-process"])
def test_a_report_tells_the_events_that_it_reads(
    filled: Desk, near: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the end as many as were said, of which a statement reads each twice; those after its
    period are not read.
    """
    first = datetime.fromtimestamp(filled.service.time() / 1e6, UTC).date()
    for _ in range(3):
        filled.record(laplace("0.01"))
    monkeypatch.setattr(answering, "WORTH", 10**6 if near else 1)
    inside = filled.service.head(filled.name).size
    filled.clock.forward(3 * 86_400)
    filled.record(laplace("0.01"))
    now = filled.service.time()
    for kind, dataset, times in (("officer", None, 1), ("statement", "d", 2)):
        asked = AskedReport.of(kind, Period(first, first + timedelta(days=1)), dataset, now)
        told = list[int]()
        made = period_report(
            filled.answers, filled.service, About(filled.name, None), asked, "json", told.append
        )
        assert isinstance(made, Made)
        assert events_read(filled.ledgers, filled.name, asked) == times * inside
        assert sum(told) == times * inside
