"""Imports: of any length, all or nothing when a line is bad, once whatever happens between."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from forked import SERVICE, Forked
from here import accountant
from support import World, ask, laplace, make

from accountant.budget.commands import Envelope
from accountant.cli import importing
from accountant.cli.importing import BATCH

LINES = 3 * BATCH + 7


class Importing:
    """``accountant import`` on a database with one limit."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.file = folder / "past.jsonl"
        self.beside = folder / "past.jsonl.progress"
        self.where = {
            "ACCOUNTANT_DATABASE_URL": world.url,
            "ACCOUNTANT_HOME": str(world.settings.home),
        }
        self.write(LINES)

    def write(self, count: int, **more: Any) -> None:
        """A file of so many lines; every third is like the one before it."""
        with self.file.open("w") as file:
            for number in range(count):
                at = f"2026-03-02T10:00:{number // 3 % 60:02}Z"
                file.write(json.dumps(ask(laplace("0.001"), ran_at=at, **more)) + "\n")

    def start(self, *words: str) -> Forked:
        """Starts an import in a process of its own."""
        words = ("import", *words, "-p", "fair", "--json")
        return Forked(SERVICE, *words, environment=os.environ | self.where)

    def __call__(self, *words: str, code: int = 0) -> Any:
        """Runs an import of the file; what it says."""
        words = words or (str(self.file),)
        done = accountant("import", *words, "-p", "fair", "--json", **self.where)
        assert done.code == code, done
        return done.err if code else json.loads(done.out)

    def recorded(self) -> int:
        """Invocations in the ledger."""
        return sum(b'"type":"invocation.recorded.v1"}' in body for body in self.world.stored())


@pytest.fixture
def importing_(world: Callable[..., World], tmp_path: Path) -> Importing:
    """An import of some batches."""
    folder = tmp_path / "files"
    folder.mkdir()
    return Importing(world().hospital(), folder)


def test_an_import_that_was_killed_goes_on(importing_: Importing) -> None:
    """After kill -9 in the middle the rest is recorded, and nothing twice."""
    process = importing_.start(str(importing_.file))
    deadline = time.monotonic() + 60
    while not importing_.beside.exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.close()
    there = importing_.recorded()
    counts = importing_()
    assert counts["recorded"] == LINES - there
    assert counts["already_there"] == there
    assert importing_.recorded() == LINES
    assert not importing_.beside.exists()
    assert importing_()["recorded"] == 0


def test_no_progress_file_can_make_it_book_twice(importing_: Importing) -> None:
    """One that is missing, damaged, stale, of another file or made by hand only costs time."""
    importing_.write(BATCH)
    assert importing_()["recorded"] == BATCH
    importing_.write(2 * BATCH)
    start = {"number": 0, "lines": 0, "offset": 0, "key": "00", "before": "", "check": ""}
    for text in ("", "{}", "[1]", "nonsense", json.dumps(start)):
        importing_.beside.write_text(text)
        counts = importing_()
        assert counts["recorded"] + counts["already_there"] == 2 * BATCH
        assert importing_.recorded() == 2 * BATCH
    assert not importing_.beside.exists()


def test_a_progress_file_is_bound_to_what_it_is_about(importing_: Importing) -> None:
    """A file that was changed before the place, another name or another client begin anew."""
    process = importing_.start(str(importing_.file))
    while not importing_.beside.exists() and process.poll() is None:
        time.sleep(0.002)
    process.close()
    kept = importing_.beside.read_text() if importing_.beside.exists() else ""
    assert kept, "it was done before it could be stopped"
    there = importing_.recorded()
    other = importing_(str(importing_.file), "--client", "other")
    assert other["recorded"] == LINES
    importing_.beside.write_text(kept)
    text = importing_.file.read_text()
    importing_.file.write_text(text.replace("0.001", "0.002", 1))
    assert importing_()["recorded"] == LINES
    importing_.file.write_text(text)
    importing_.beside.write_text(kept)
    assert importing_()["recorded"] == LINES - there


def test_a_bad_line_is_named_and_nothing_is_recorded(importing_: Importing) -> None:
    """The check comes first, whatever is wrong; exit code 2."""
    with importing_.file.open("a") as file:
        file.write("\n" + json.dumps(ask(laplace("0.1"), dataset="no", ran_at="x")) + "\n{\n")
        file.write(json.dumps(ask(laplace("0.1"), ran_at="2026-03-02T10:00:00Z", dataset="no")))
        file.write("\n" + "x" * (importing.LONGEST + 5) + "\n[]\n")
    said = importing_(code=2)
    for number in (2, 3, 4, 5, 6):
        assert f"line {LINES + number}: " in said
    assert f"line {LINES + 1}: " not in said
    assert importing_.recorded() == 0


def test_what_was_imported_line_by_line_before_is_known(importing_: Importing) -> None:
    """The keys are what they always were: a digest of the name, the line and all lines before."""
    key = sha256(b"past.jsonl").digest()
    for text in importing_.file.read_text().splitlines()[:5]:
        command = make("record_invocations", **json.loads(text))
        key = sha256(key + Envelope("import", command).canonical).digest()
        importing_.world.service.execute("fair", Envelope("import", command, f"import:{key.hex()}"))
    counts = importing_()
    assert (counts["recorded"], counts["already_there"]) == (LINES - 5, 5)


def test_standard_input_is_imported_under_a_name(importing_: Importing) -> None:
    """What is piped in is put aside and read twice; it needs a name."""
    assert "--batch" in importing_("-", code=2)
    process = importing_.start("-", "--batch", "january")
    process.stdin.write(importing_.file.read_text())
    said, _ = process.communicate()
    assert json.loads(said)["recorded"] == LINES


def test_two_imports_of_one_file_do_not_run_at_once(importing_: Importing) -> None:
    """The second says so and records nothing."""
    first = importing_.start(str(importing_.file))
    second = importing_.start(str(importing_.file))
    first.communicate()
    second.communicate()
    assert sorted([first.wait(), second.wait()]) in ([0, 0], [0, 2])
    assert importing_.recorded() == LINES
