"""Reports of long ledgers are made in a process of their own."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from threading import Thread
from typing import Any, ClassVar

import pytest
from places import Hosted
from report_desk import Desk
from support import laplace

from accountant.budget.errors import NotFound, Unavailable
from accountant.budget.rules import KINDS
from accountant.budget.rules.base import Compared, Rule, View
from accountant.reporting import desk as answering
from accountant.reporting.files import FORMATS
from accountant.reporting.making import About, report_texts, used_up
from accountant.reporting.progress import Progress
from accountant.store import Damaged, StoreError
from accountant.store.ledgers import Ledgers, sqlite_path
from accountant.workers.helpers import Helpers


@pytest.fixture
def long(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A ledger that counts as long."""
    desk.hospital()
    for _ in range(5):
        desk.record(laplace("0.1"))
    monkeypatch.setattr(answering, "WORTH", 5)
    return desk


def _texts(desk: Desk, forms: Sequence[str]) -> dict[str, str]:
    return report_texts(desk.answers, desk.service, About(desk.name, None), forms)


def test_another_process_makes_the_same_report(long: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every format is the same, to the byte, whichever process has made it."""
    made = _texts(long, FORMATS)
    monkeypatch.setattr(answering, "WORTH", 10**6)
    assert made == _texts(long, FORMATS)
    assert made.keys() == {*FORMATS}


def test_the_process_reads_postgresql_too(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """It connects as the service does, with the password of the service's role."""
    desk = Desk(hosted.url)
    desk.hospital()
    here = _texts(desk, ["json"])
    monkeypatch.setattr(answering, "WORTH", 1)
    assert _texts(desk, ["json"]) == here
    desk.ledgers.close()


def test_a_population_that_is_unknown_is_not_found(long: Desk) -> None:
    """No process is started for it."""
    with pytest.raises(NotFound):
        report_texts(long.answers, long.service, About("nobody", None), ["json"])


def test_a_decision_on_which_no_limit_fired_needs_no_process(
    long: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody used a limit up, so nothing of the ledger is read for it."""
    monkeypatch.delattr(answering, "Helpers")

    def by(epsilon: str) -> list[dict[str, Any]]:
        event = long.grant(laplace(epsilon))
        findings = long.service.explain(long.name, event).decision.findings
        rules = [one.to_json() for one in findings]
        return used_up(long.answers, long.service, event, rules)

    assert by("0.1") == []
    with pytest.raises(NameError, match="Helpers"):
        by("9")


def test_a_report_whose_process_is_killed_is_an_error(
    long: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service says that the report was not made, and makes the next one."""
    first = Helpers.post

    def post(helpers: Helpers, message: Any, to: int | None = None) -> None:
        os.kill(helpers.each[0]._process.pid, signal.SIGKILL)
        first(helpers, message, to)

    with monkeypatch.context() as patched:
        patched.setattr(Helpers, "post", post)
        with pytest.raises(StoreError, match=r"the report was not made: .*exit status -9"):
            _texts(long, ["json"])
    assert _texts(long, ["csv"])["csv"]


def test_a_ledger_that_cannot_be_read_is_damaged(long: Desk) -> None:
    """The reason comes back from the other process."""
    with closing(sqlite3.connect(sqlite_path(long.ledgers.url))) as raw, raw:
        raw.execute("DROP TRIGGER event_no_update")
        raw.execute("UPDATE event SET body = x'7b7d' WHERE sequence = 4")
    with pytest.raises(Damaged):
        _texts(long, ["json"])


class Never(Rule):
    """A kind that only this process knows."""

    field: ClassVar[str] = "never"
    code: ClassVar[str] = "never"
    never: bool

    def compare(self, view: View) -> Compared | None:
        """Never fire."""
        return None


@pytest.fixture
def never() -> Iterator[None]:
    """The kind is registered."""
    KINDS["never"] = Never
    yield
    del KINDS["never"]


@pytest.mark.usefixtures("never")
def test_kinds_of_this_process_keep_reports_in_it(long: Desk) -> None:
    """A helper would not know the policy's rule."""
    long.policy("  - {id: a, limit: {epsilon: 1}}\n  - {id: n, never: true, action: flag}\n")
    assert "json" in _texts(long, ["json"])


def test_reports_asked_for_at_once_are_all_made(long: Desk) -> None:
    """One waits for the other."""
    made: list[dict[str, str]] = []

    def ask() -> None:
        made.append(_texts(long, ["html"]))

    threads = [Thread(target=ask) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(made) == 3
    assert made[0] == made[1] == made[2]


def _endless(_: Ledgers, __: Progress) -> None:
    time.sleep(600)


def test_nobody_waits_for_reports_when_the_service_ends(long: Desk) -> None:
    """What is being made, and what waits for its turn, is given up at once, and said."""
    given_up: list[str] = []

    def ask() -> None:
        with pytest.raises(Unavailable, match="the service is stopping") as told:
            long.answers.work(long.name, _endless)
        given_up.append(told.value.code)

    threads = [Thread(target=ask, daemon=True) for _ in range(3)]
    for one in threads:
        one.start()
    while not long.answers._working:
        time.sleep(0.01)
    long.answers.stop()
    for one in threads:
        one.join(20)
    assert given_up == ["service-stopping"] * 3
