"""Work that is tried again is paid once, and never draws twice for one charge."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from ledger import committed

from accountant.adapters.tasks import Work, charging, paid
from accountant.client import AccountantError, Client, MayHaveRun, Refused, laplace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service import Running

COUNT = laplace(1, 4)
NAMES = "dag", "run-1", "weekly"


@pytest.fixture
def population(served: Running) -> str:
    """A limit of epsilon 1."""
    return served.population()


@pytest.fixture
def ledger(served: Running, population: str) -> Iterator[Client]:
    """A pipeline's client of that population."""
    with served.client(population) as client:
        yield client


def work(ledger: Client, drawn: list[int], *, fail: bool = False, **more: object) -> None:
    """Draw once, after saying so, and fail before or after if told."""
    about = {"purpose": "test", "tracked": True} | more
    with paid(ledger, "test", NAMES, "visits", [COUNT], **about) as grant:  # type: ignore[arg-type]
        if fail and not drawn:
            drawn.append(0)
            raise ConnectionError
        grant.use(COUNT)
        drawn.append(1)
        if fail:
            raise ZeroDivisionError


def test_a_second_try_after_noise_is_stopped(
    served: Running, population: str, ledger: Client
) -> None:
    """Where the first try drew its noise, the second raises MayHaveRun, is charged nothing, and
    says what can be done: what is committed cannot be released.
    """
    drawn: list[int] = []
    work(ledger, drawn)
    with pytest.raises(MayHaveRun) as raised:
        work(ledger, drawn)
    assert drawn == [1]
    [note] = raised.value.__notes__
    assert "test / dag / run-1 / weekly: the grant is committed" in note
    assert "again=1" in note
    assert "release" not in note
    assert committed(served, population) == [COUNT]


def test_a_second_try_before_noise_asks_anew(
    served: Running, population: str, ledger: Client
) -> None:
    """Where the first tries drew nothing, the next one draws, and the work is charged once."""
    drawn: list[int] = []
    with pytest.raises(ConnectionError):
        work(ledger, drawn, fail=True)
    drawn.clear()
    with pytest.raises(ConnectionError):
        work(ledger, drawn, fail=True)
    work(ledger, drawn)
    assert drawn == [0, 1]
    assert committed(served, population) == [COUNT]


def test_a_try_that_was_killed_is_stopped_until_somebody_looks(
    served: Running, population: str, ledger: Client
) -> None:
    """An open grant of an earlier try stops the next, which says so; released by hand, it lets it
    draw.
    """
    drawn: list[int] = []
    killed = paid(ledger, "test", NAMES, "visits", [COUNT], purpose="test", tracked=True)
    grant = killed.__enter__()
    with pytest.raises(MayHaveRun, match=grant.id) as raised:
        work(ledger, drawn)
    assert "the grant is open" in raised.value.__notes__[0]
    assert "release the grant and try again" in raised.value.__notes__[0]
    ledger.release(grant.id, "the machine stopped before the query was sent")
    work(ledger, drawn)
    assert committed(served, population) == [COUNT]
    with suppress(AccountantError):  # else the block ends when its memory is freed
        killed.__exit__(None, None, None)


def test_a_person_may_decide_to_draw_again(
    served: Running, population: str, ledger: Client
) -> None:
    """``again`` is another work, which is charged."""
    drawn: list[int] = []
    work(ledger, drawn)
    work(ledger, drawn, again=1)
    with pytest.raises(MayHaveRun) as raised:
        work(ledger, drawn, again=1)
    assert "again=2" in raised.value.__notes__[0]
    assert committed(served, population) == [COUNT, COUNT]


def test_a_refusal_stays_for_the_work(served: Running, population: str, ledger: Client) -> None:
    """A refused work draws nothing, and is refused whenever it is tried."""
    for _ in range(2):
        with (
            pytest.raises(Refused),
            paid(ledger, "test", NAMES, "visits", [laplace(1, "0.1")], purpose="test"),
        ):
            raise AssertionError
    assert committed(served, population) == []


def test_parts_of_a_task_are_different_work(
    served: Running, population: str, ledger: Client
) -> None:
    """Two grants of one task have keys of their own."""
    drawn: list[int] = []
    for part in ("counts", "means"):
        work(ledger, drawn, part=part)
    assert committed(served, population) == [COUNT, COUNT]


def test_keys_tell_works_apart_and_fit() -> None:
    """Names of any length and script make keys of at most 200 plain characters, all different."""
    works = [
        Work("t", ("a", "b")),
        Work("t", ("a, b",)),
        Work("t", ("a",), "b"),
        Work("t", ("a",), again=1),
        Work("t", ("é" * 500,)),
    ]
    keys = [work.key(number) for work in works for number in (1, 2)]
    assert len(set(keys)) == len(keys)
    assert all(key.isascii() and len(key) <= 200 for key in keys)


def test_a_client_may_be_made_when_the_work_begins(served: Running, population: str) -> None:
    """A function in place of a client is called for the work, and its client closed after."""
    made: list[Client] = []

    def opened() -> Client:
        made.append(served.client(population))
        return made[0]

    with paid(opened, "test", NAMES, "visits", [COUNT], purpose="test"):
        pass
    assert made[0]._open is None
    assert committed(served, population) == [COUNT]


def test_a_decorated_task_cannot_be_tracked(ledger: Client) -> None:
    """A function that never sees its grant cannot say what it draws: nothing would be charged."""
    with pytest.raises(ValueError, match="tracked"):
        charging(lambda: paid(ledger, "test", NAMES, "visits", [COUNT]), {"tracked": True})
