"""What was followed of a ledger is kept in a file, and a start reads only what is new."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import structlog
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from random_ledgers import Ops, ledger, ops
from report_desk import DAY, Desk
from structlog.testing import LogCapture
from support import declared, laplace

from accountant.ledger.merkle import leaf_hash
from accountant.reporting import follower as following
from accountant.reporting import keeping
from accountant.reporting.follower import Asked, Follower, Page, kept_in
from accountant.reporting.following import Followed
from accountant.reporting.model import build_report, report
from accountant.reporting.schema import Report
from accountant.reporting.texts import Texts
from accountant.store.ledgers import Ledgers, Stored, sqlite_path

SECRETS = "a rare illness", "because of Wilhelmina", "nobody came", "the ward moved", "a bound fell"
"""Free texts of every kind."""


@settings(max_examples=examples(30))
@given(todo=ops, cut=st.integers(0, 200))
def test_going_on_from_what_was_kept_is_as_good_as_from_the_beginning(todo: Ops, cut: int) -> None:
    """Wherever a ledger was kept and read back: at its end all that was collected is, to the byte,
    what a single reading has collected, and so is the report.
    """
    book = ledger("renyi", False, todo)
    stored = [Stored(i, body, leaf_hash(body)) for i, body in enumerate(book.stored)]
    whole, texts = Followed(book.name), Texts()
    whole.follow(stored, texts)
    at = cut % len(stored)
    begun = Followed(book.name)
    begun.follow(stored[:at], texts)
    while not keeping.worth_keeping(begun):  # within a batch
        begun.follow([stored[at]], texts)
        at += 1
    data = memoryview(b"".join(keeping.written(begun)))
    again = keeping.read(book.name, begun.custody.tree, data, lambda first, last: [])
    again.follow(stored[at:], texts)
    assert b"".join(keeping.written(again)) == b"".join(keeping.written(whole))
    assert report(again, texts, {}) == report(whole, texts, {})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> LogCapture:
    """What is logged."""
    seen, every = LogCapture(), structlog.make_filtering_bound_logger(logging.INFO)
    logger = structlog.wrap_logger(None, [seen], wrapper_class=every)
    monkeypatch.setattr("accountant.store.snapshots._log", logger)
    monkeypatch.setattr("accountant.reporting.follower._log", logger)
    return seen


def _read(page: Page) -> Report:
    return report(page.followed, page.texts, {})


class Reader:
    """A process that follows a desk's ledger, and keeps it in a folder."""

    def __init__(self, desk: Desk, home: Path, ledgers: Ledgers | None = None) -> None:
        self.name = desk.name
        self.follower = Follower(ledgers or desk.ledgers, kept_in(home))

    def report(self) -> Report:
        """What it reports now."""
        seen = self.follower.answer(Asked(self.name, _read, None, 0, 600))
        assert seen.behind is None
        found: Report = seen.found
        return found


def _anew(desk: Desk, ledgers: Ledgers | None = None) -> Report:
    """The report of all events, read from nothing."""
    ledgers = ledgers or desk.ledgers
    texts = Texts(partial(ledgers.texts, desk.name))
    return build_report(desk.name, ledgers.stream(desk.name), texts)


@pytest.fixture
def told(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A ledger with texts of every kind that can be erased, kept after some events."""
    monkeypatch.setattr(following, "_WORTH", 1)
    monkeypatch.setattr(following, "_QUIET", 0.0)
    desk.hospital("  - {id: a, limit: {epsilon: 5}}\n  - {id: b, at_most: {epsilon: 2}}\n")
    desk.record(laplace("0.1"), purpose=SECRETS[0], justification=SECRETS[1])
    held = desk.grant(laplace("0.2"), purpose=SECRETS[0], ttl_seconds=60)
    desk.do("release_grant", grant=f"g{held.sequence}", reason=SECRETS[2])
    desk.grant(laplace("9"), purpose=SECRETS[0])
    desk.grant(laplace("0.2"), purpose=SECRETS[0], ttl_seconds=600)
    desk.forward(DAY)
    desk.service.expire_due()
    open_ = desk.grant(declared("0.3"), purpose=SECRETS[3], ttl_seconds=10**6)
    assert open_.type == "grant.reserved.v1"
    return desk


def _more(desk: Desk) -> None:
    """Some more events, an end of the grant that is open among them."""
    desk.forward(DAY)
    desk.grant(laplace("0.1"), purpose=SECRETS[4], ttl_seconds=10**6)
    for name in list(desk.service.state(desk.name).open):
        desk.do("commit_grant", grant=name)
    desk.record(laplace("0.01"), purpose=SECRETS[0])


def test_nobody_waits_while_it_is_kept(
    told: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is kept once nobody has asked for a while, or when it has grown by very much."""
    monkeypatch.setattr(following, "_QUIET", 600.0)
    reader, shelf = Reader(told, tmp_path), kept_in(tmp_path)
    reader.report()
    assert not reader.follower.read_on()
    rest = reader.follower.quiet_for
    assert rest is not None
    assert 500 < rest <= 600
    assert shelf.read(told.name) is None
    monkeypatch.setattr(following, "_OVERDUE", 3)
    assert reader.follower.read_on()
    assert reader.follower.quiet_for is None
    _more(told)
    monkeypatch.setattr(following, "_SHARE", 0)
    monkeypatch.setattr(following, "_OVERDUE", 50)
    reader.report()
    assert not reader.follower.read_on()
    monkeypatch.setattr(following, "_QUIET", 0.0)
    assert reader.follower.quiet_for == 0.0
    assert reader.follower.read_on()
    found = shelf.read(told.name)
    assert found is not None
    assert found[0].size == told.ledgers.head(told.name).size


def test_a_start_reads_only_what_is_new(told: Desk, tmp_path: Path) -> None:
    """A process that begins from the file reads no event before its end, answers as one that reads
    all, and keeps what it has read since.
    """
    first = Reader(told, tmp_path)
    first.report()
    first.follower.keep()
    kept = told.ledgers.head(told.name).size
    _more(told)
    read: list[int] = []

    class Watched(type(told.ledgers)):  # type: ignore[misc]
        def stream(self, ledger: str, first: int = 0) -> object:
            read.append(first)
            return super().stream(ledger, first)

    ledgers = Watched(told.ledgers.url)
    second = Reader(told, tmp_path, ledgers)
    assert second.report() == _anew(told)
    assert min(read) == kept
    while second.follower.read_on():
        pass
    assert min(read) == 0  # the hashes, while nobody asks
    third = Reader(told, tmp_path)
    assert third.follower._begun(told.name).state.sequence == told.ledgers.head(told.name).size
    assert third.report() == _anew(told)
    ledgers.close()


def test_no_text_that_can_be_erased_is_in_the_file(told: Desk, tmp_path: Path) -> None:
    """Nor is one in what became of it, in words."""
    reader = Reader(told, tmp_path)
    shown = str(reader.report())
    assert all(text in shown for text in (SECRETS[0], SECRETS[2], SECRETS[3]))
    reader.follower.keep()
    [file] = (tmp_path / following.FOLDER).iterdir()
    data = file.read_bytes()
    assert b'"admitted"' in data
    for text in SECRETS:
        assert text.encode() not in data
        assert text.split()[-1].encode() not in data


def _damaged(desk: Desk, home: Path) -> str:
    [file] = (home / following.FOLDER).iterdir()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return "no snapshot"


def _cut_off(desk: Desk, home: Path) -> str:
    [file] = (home / following.FOLDER).iterdir()
    file.write_bytes(file.read_bytes()[:-1])
    return "no snapshot"


def _of_another_ledger(desk: Desk, home: Path) -> str:
    other = Desk(desk.ledgers.url, "other")
    other.population()
    with closing(other.ledgers):
        reader = Reader(other, home)
        reader.report()
        reader.follower.keep()
    folder = home / following.FOLDER
    (folder / "other.snapshot").replace(folder / f"{desk.name}.snapshot")
    return "no snapshot"


def _erased(desk: Desk, home: Path) -> str:
    desk.service.erase(desk.name, "officer", 4, None, "asked to")
    return "not begun from a file"


def _text_changed(desk: Desk, home: Path) -> str:
    with closing(sqlite3.connect(sqlite_path(desk.ledgers.url))) as raw, raw:
        rows = raw.execute("SELECT ledger, sequence, field, salt FROM text").fetchall()
        raw.execute("DELETE FROM text")
        raw.executemany("INSERT INTO text VALUES (?, ?, ?, ?, 'something else')", rows)
    return "not begun from a file"


def _other_code(desk: Desk, home: Path) -> str:
    [file] = (home / following.FOLDER).iterdir()
    data, code = file.read_bytes(), kept_in(home).code.encode()
    assert code in data
    file.write_bytes(data.replace(code, b"0" * 64))
    return "no snapshot"


@pytest.mark.parametrize(
    "befalls", [_damaged, _cut_off, _of_another_ledger, _erased, _text_changed, _other_code]
)
def test_a_file_that_is_of_no_use_only_costs_time(
    told: Desk, tmp_path: Path, log: LogCapture, befalls: Callable[[Desk, Path], str]
) -> None:
    """A file that is damaged, of another ledger or another program, or of texts that are not there
    any more, is not begun from: the answer is that of all events, read from nothing.
    """
    reader = Reader(told, tmp_path)
    reader.report()
    reader.follower.keep()
    _more(told)
    said = befalls(told, tmp_path)
    log.entries.clear()
    again = Reader(told, tmp_path)
    assert again.report() == _anew(told)
    assert said in [entry["event"] for entry in log.entries]


@pytest.mark.parametrize("running", [False, True])
@pytest.mark.parametrize("grows", [0, 1, 3, 9])
def test_a_ledger_that_was_restored_is_followed_anew(
    told: Desk, tmp_path: Path, *, running: bool, grows: int
) -> None:
    """If the database was put back to an earlier state, and went on otherwise, nothing of what was
    followed before is shown: neither from a file that is ahead of it, or beside it, nor from
    memory.
    """
    path = sqlite_path(told.ledgers.url)
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as raw, closing(sqlite3.connect(backup)) as copy:
        raw.backup(copy)
    _more(told)
    reader = Reader(told, tmp_path)
    before = reader.report()
    reader.follower.keep()
    told.ledgers.close()
    for file in path.parent.glob(f"{path.name}-*"):
        file.unlink()
    shutil.copy(backup, path)
    restored = Desk(told.ledgers.url)
    restored.keys = 100
    for _ in range(grows):
        restored.record(laplace("0.07"), purpose="another life")
    again = reader if running else Reader(restored, tmp_path)
    found = again.report()
    assert found == _anew(restored)
    assert found != before
    restored.ledgers.close()


def test_bytes_that_were_changed_before_the_end_of_the_file_are_told(
    told: Desk, tmp_path: Path
) -> None:
    """The hashes of what an earlier process has read are read again, and a change is shown."""
    reader = Reader(told, tmp_path)
    reader.report()
    reader.follower.keep()
    with closing(sqlite3.connect(sqlite_path(told.ledgers.url))) as raw, raw:
        raw.execute("DROP TRIGGER event_no_update")
        [[body]] = raw.execute("SELECT body FROM event WHERE sequence = 4").fetchall()
        other = body.replace(b'"by":"pipe"', b'"by":"pope"')
        assert other != body
        raw.execute("UPDATE event SET body = ? WHERE sequence = 4", [other])
    again = Reader(told, tmp_path)
    assert again.report().ledger.broken_at is None
    while again.follower.read_on():
        pass
    assert again.report().ledger.broken_at == 4
    assert not list((tmp_path / following.FOLDER).iterdir())
