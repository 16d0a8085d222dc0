"""A long ledger is read with another core as it is alone: the same state, the same errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from typing import Any

import pytest
from places import Place

from accountant.budget.apply import follow_checked
from accountant.budget.errors import Unavailable
from accountant.budget.state import State
from accountant.ledger.checkpoints import Known
from accountant.runtime import projections
from accountant.runtime.service import Service
from accountant.store import Damaged, ahead
from accountant.store import projection as following
from accountant.store.ahead import Page, read_ahead
from accountant.store.opening import open_ledgers
from accountant.store.projection import Diverged, Projection
from accountant.workers.helpers import Helpers
from bench.asking import endless_grants, open_ledger

LEDGER = "fair"
EVENTS = 700
OWN = 64


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch, place: Place) -> list[int]:
    """A ledger that is long enough for a helper; how many events each of its pages had."""
    with closing(Service(open_ledgers(place.url))) as service:
        open_ledger(service, LEDGER)
        asked = endless_grants("k")
        service.execute_all(LEDGER, list(islice(asked, EVENTS - service.head(LEDGER).size)))
    seen: list[int] = []

    @contextmanager
    def counted(*about: Any) -> Iterator[Iterator[Page]]:
        with read_ahead(*about) as found:
            yield (seen.append(len(page.bodies)) or page for page in found)

    monkeypatch.setattr(ahead, "WORTH", 100)
    monkeypatch.setattr(ahead, "cores", lambda: 1)  # this thread is kept on one core
    monkeypatch.setattr(projections, "USABLE", frozenset(range(os.cpu_count() or 2)) | {0, 1})
    monkeypatch.setattr(following, "OWN", OWN)
    monkeypatch.setattr(projections, "read_ahead", counted)
    return seen


def read(place: Place) -> State:
    """The state that a service reads back."""
    with closing(Service(open_ledgers(place.url))) as service, service._up_to_date(LEDGER) as state:
        return state


def test_a_ledger_that_is_read_ahead_is_the_same(
    place: Place, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The helper reads all but the first events, and nothing differs from a read without one."""
    found = read(place)
    assert sum(pages) == EVENTS - OWN
    monkeypatch.setattr(ahead, "cores", lambda: 1)
    monkeypatch.setattr(projections, "USABLE", frozenset({0}))
    assert found == read(place)
    assert sum(pages) == EVENTS - OWN
    assert found.sequence == EVENTS


def test_a_helper_that_ends_early_costs_time_only(
    place: Place, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a helper did not read is read by whoever needs it."""

    class Ending(Helpers):
        def __init__(self, module: str, count: int) -> None:
            super().__init__(f"{module}.of.nothing", count)

    monkeypatch.setattr(ahead, "Helpers", Ending)
    assert read(place).sequence == EVENTS
    assert pages == []


def test_a_helper_waits_for_nobody_who_writes(
    place: Place, pages: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    """A state that is read back under the writer's lock comes at once: the helper tells the end of
    its pages before it closes the database, for which it would need that lock.
    """
    with closing(Service(open_ledgers(place.url))) as service:
        service.state(LEDGER)
        pages.clear()
        with service.writing(LEDGER) as unit:
            unit.projection.drop()
            unit.projection.follow(unit.writing.head(LEDGER), partial(unit.writing.read, LEDGER))
            assert unit.state.sequence == EVENTS
    assert sum(pages) == EVENTS - OWN
    assert "Error" not in capfd.readouterr().err


def test_a_helper_that_hangs_is_waited_for_a_while_only(
    place: Place, pages: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then it is killed, and whoever needs what it did not read goes on alone."""

    class Hanging(Helpers):
        def post(self, message: Any, to: int | None = None) -> None:
            os.kill(self.each[0]._process.pid, signal.SIGSTOP)

    monkeypatch.setattr(ahead, "Helpers", Hanging)
    monkeypatch.setattr(ahead, "_PATIENCE", 0.1)
    assert read(place).sequence == EVENTS
    assert pages == []


def test_a_ledger_is_read_back_before_it_is_locked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a service or a command reads a ledger for the first time, in order to write, others
    write, and what they wrote is counted in.
    """
    asked = endless_grants("k")
    with (
        closing(Service(open_ledgers(place.url))) as one,
        closing(Service(open_ledgers(place.url))) as other,
    ):
        open_ledger(one, LEDGER)
        before = one.head(LEDGER).size

        @contextmanager
        def meanwhile(*_: Any) -> Iterator[Iterator[Page]]:
            if one.head(LEDGER).size == before:
                one.execute_all(LEDGER, [next(asked)])
            yield iter(())

        monkeypatch.setattr(projections, "read_ahead", meanwhile)
        [answer] = other.execute_all(LEDGER, [next(asked)])
        assert answer.entries[-1].sequence == before + 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("body = {other}", "event {at} .*not those that were hashed"),
        ("body = {torn}", "event {at} .*not those that were hashed"),
        ("body = {other}, leaf = {leaf}", "event {at} .*does not follow"),
        ("sequence = 9000", "event {after} .*does not follow"),
    ],
)
def test_a_damaged_event_is_told_as_without_a_helper(
    place: Place, pages: list[int], change: str, why: str
) -> None:
    """Which event it is and what is wrong with it is found out here, wherever it stands."""
    at = OWN + 300
    with closing(open_ledgers(place.url)) as ledgers:
        other: Sequence[Any] = ledgers.read(LEDGER, at + 1, 1)
    [stored] = other
    bodies = {"other": stored.body, "torn": stored.body[:-1], "leaf": stored.leaf}
    told = change.format_map({name: place.blob(data.hex()) for name, data in bodies.items()})
    place.tamper(f"UPDATE event SET {told} WHERE ledger = '{LEDGER}' AND sequence = {at}")
    with pytest.raises(Unavailable, match=why.format(at=at, after=at + 1)):
        read(place)
    assert sum(pages) >= 256


def test_another_history_is_told_as_without_a_helper(place: Place, pages: list[int]) -> None:
    """A head that was signed in the middle of what a helper reads is compared there."""
    known = Known(OWN + 300, bytes(32), "a head that was signed")
    with closing(open_ledgers(place.url)) as ledgers:
        reading = partial(read_ahead, place.url, projections.USABLE, LEDGER)
        first = partial(State, LEDGER)
        projection = Projection(LEDGER, first, follow_checked, (known,), ahead=reading)
        with pytest.raises(Diverged, match=f"the first {known.size} events"):
            projection.follow(ledgers.head(LEDGER), partial(ledgers.read, LEDGER))
    assert projection.tree.size == 0


def test_what_is_wrong_is_told_in_the_order_of_events(place: Place, pages: list[int]) -> None:
    """An event that cannot be folded is told before a head after it that is another, and a head
    before it first: alike with a helper and without, wherever pages end.
    """
    at = OWN + 300
    change = f"UPDATE event SET sequence = 9000 WHERE ledger = '{LEDGER}' AND sequence = {at}"
    place.tamper(change)
    with closing(open_ledgers(place.url)) as ledgers:
        head, read_rows = ledgers.head(LEDGER), partial(ledgers.read, LEDGER)
        for size, wrong in ((at - 5, Diverged), (at + 5, Damaged)):
            known = Known(size, bytes(32), "a head that was signed")
            told = set()
            for more in ({}, {"ahead": partial(read_ahead, place.url, projections.USABLE, LEDGER)}):
                first = partial(State, LEDGER)
                projection = Projection(LEDGER, first, follow_checked, (known,), **more)
                with pytest.raises(wrong) as error:
                    projection.follow(head, read_rows)
                told.add(str(error.value))
            assert len(told) == 1
